"""Today's schedules: published figures, and what must hold for every one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adaptpipe.solver.core.cluster import uniform_cluster
from adaptpipe.solver.core.profile import Measurement, Part, Profile
from adaptpipe.solver.evaluate.check import check
from adaptpipe.solver.evaluate.simulate import simulate
from adaptpipe.solver.planning.files.instance_file import load_workload
from adaptpipe.solver.planning.rivals.rules import RULES, TUNED, Anatomy
from adaptpipe.solver.planning.rivals.today import rivals, todays
from adaptpipe.solver.planning.workload import Workload
from benchmarks.instances import WORKLOADS

MEASURED = {
    # name: size, best of today, then the best 1F1B, interleaved, ZB-H1 (None: none fits), in ms
    "llama2-7b-p4": (2, 3217.0, 3718.6, 3273.5, 3407.1),
    "llama2-7b-p8": (2, 3475.2, 4033.3, 3586.1, 3659.5),
    "llama3-8b-p8": (1, 4671.8, 5222.6, 5528.7, 4767.7),
    "llama3-70b-tp8-p8": (1, 5132.9, 6002.4, 5159.0, 5533.6),
    "gemma2-9b-p8": (1, 2819.6, 3465.5, 3195.1, 3172.2),
    "gemma2-27b-p16": (1, 6951.7, 6951.7, None, None),
    "gpt6.2b-measured-p8": (1, 3753.1, 4176.2, None, 3831.1),
    "dsv3-like-p16": (1, 9885.7, 13451.3, None, None),
    "llama3-8b-p8-2speeds": (1, 6103.0, 8388.4, 9119.7, 7698.4),
}
"""Of an independent simulator, on even stages and torchtitan's rule, without ZB-H2."""


@pytest.mark.parametrize("name", MEASURED)
def test_the_best_of_each_method_is_what_another_simulator_found(name: str) -> None:
    """Fused backwards pay the cost of an op once here and twice there, which is most of the difference."""
    size, *values = MEASURED[name]
    found = todays(load_workload(WORKLOADS, name, sizes=(size,)), RULES[:2])
    methods: tuple[tuple[str, ...], ...] = (
        ("1F1B", "Interleaved1F1B", "ZB-H1", "ZB-V"),
        ("1F1B",),
        ("Interleaved1F1B",),
        ("ZB-H1",),
    )
    for value, named in zip(values, methods, strict=True):
        best = next((each for each in found if each.fits and each.method.startswith(named)), None)
        if value is None:
            assert best is None
        else:
            assert best is not None
            share = 0.0035 if best.timeline.schedule.fused_share else 0.001
            assert best.makespan / 1000 == pytest.approx(value, rel=share)


def test_more_rules_and_sizes_never_make_the_best_worse() -> None:
    """Gemma 2 9B under 1F1B: fewer blocks at the ends beat both simpler rules by a tenth; Llama 2 7B: size 3."""
    gemma = load_workload(WORKLOADS, "gemma2-9b-p8", sizes=(1,))
    by_rules = [
        next(each for each in todays(gemma, rules) if each.fits and each.method == "1F1B")
        for rules in (RULES[:2], RULES, RULES + TUNED)
    ]
    assert [each.rule for each in by_rules] == [
        "torchtitan",
        "Megatron, fewer at the ends",
        "torchtitan, weights 0 and 4",
    ]
    assert by_rules[0].makespan > 1.1 * by_rules[1].makespan > 1.1 * by_rules[2].makespan
    llama = load_workload(WORKLOADS, "llama2-7b-p8", sizes=(2, 3))
    best = todays(llama)[0]
    assert best.fits
    assert set(best.division) == {2, 3}


def small() -> Workload:
    def part(kind: str, time: float, static: int) -> Part:
        return Part(
            kind,
            static,
            tuple(Measurement(z, time * z, time * z, time * z, 2 * time * z, 10 * z, 4 * z, 0) for z in (1, 2)),
            kind=kind,
        )

    parts = (part("embedding", 1e-6, 50), *[part("block", 4e-6, 20)] * 8, part("head", 9e-6, 50))
    return Workload("small", Profile("", parts, 0.0), uniform_cluster("", 2, None, 1e-6, 1e9), 6, (1, 2))


@pytest.mark.parametrize("memory", [None, (350, 350), (250, 250), (100, 100), (300, 150)])
def test_every_schedule_is_valid_and_sorted_and_fits_or_says_where_not(memory: tuple[int, int] | None) -> None:
    workload = small()
    if memory is not None:
        workload = replace(workload, cluster=replace(workload.cluster, memory=memory))
    found = todays(workload)
    fitting = [each for each in found if each.fits]
    assert list(found[: len(fitting)]) == sorted(fitting, key=lambda each: each.makespan)
    missing = [each.overflow.missing for each in found if each.overflow is not None]
    assert missing == sorted(missing)
    for each in found:
        problem, schedule = each.timeline.problem, each.timeline.schedule
        assert problem == workload.problem(each.split, schedule.placement, each.division)
        assert simulate(problem, schedule).makespan == each.makespan
        assert (check(problem, schedule) == ()) is each.fits
        if each.overflow is not None:
            rank = each.overflow.rank
            assert each.overflow.needed == each.timeline.peak_memory[rank]
            assert each.overflow.limit == workload.cluster.memory[rank]
            pairs = zip(each.timeline.peak_memory, workload.cluster.memory, strict=True)
            assert each.overflow.missing == max(peak - limit for peak, limit in pairs if limit is not None) > 0
    assert found[0].fits is bool(fitting)
    assert len({(each.method, each.split, each.division) for each in found}) == len(found)
    assert {each.division for each in found} == set(workload.divisions)


def test_all_methods_are_tried() -> None:
    methods = {each.method for each in todays(small())}
    assert methods == {
        "GPipe",
        "1F1B",
        "ZB-H1",
        "ZB-H2",
        "ZB-V",
        "ZB-V at mean costs",
        "Interleaved1F1B v=2",
        "Interleaved1F1B v=3",
        "Interleaved1F1B v=4",
        "Interleaved1F1B v=5",
    }, "10 layers make at most 5 stages on each of 2 ranks, by torchtitan's rule"


def test_of_rules_with_the_same_split_the_first_is_named() -> None:
    workload = load_workload(WORKLOADS, "gemma2-9b-p8", sizes=(1,))
    for each in todays(workload, RULES + TUNED):
        placement = each.timeline.schedule.placement
        anatomy = Anatomy.of(workload.profile)
        assert each.rule == next(rule.name for rule in RULES + TUNED if rule.split(anatomy, placement) == each.split)


def test_rivals_are_the_best_of_different_methods_that_fit() -> None:
    found = todays(replace(small(), cluster=replace(small().cluster, memory=(250, 250))))
    methods = list(dict.fromkeys(each.method for each in found if each.fits))
    assert len(methods) > 2
    assert [each.method for each in rivals(found, 2)] == methods[:2]
    assert len(rivals(found, 100)) == len(methods)
    for each in rivals(found):
        assert each.makespan == min(other.makespan for other in found if other.fits and other.method == each.method)
    assert rivals([each for each in found if not each.fits]) == ()


def test_a_plan_of_it_is_the_same_schedule() -> None:
    workload = small()
    today = todays(workload)[0]
    plan = today.plan(workload, bound=7)
    assert (plan.makespan, plan.split, plan.division) == (today.makespan, today.split, today.division)
    assert (plan.bound, plan.method) == (7, f"{today.method}, {today.rule}")
    assert plan.placement == today.timeline.schedule.placement
