"""Wrong costs, against workloads rebuilt with those costs, and what gains under them say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from adaptpipe.solver.core.errors import InputError
from adaptpipe.solver.core.placement import place
from adaptpipe.solver.core.profile import Part
from adaptpipe.solver.evaluate.noisy import Noisy, run_value
from adaptpipe.solver.evaluate.scenario import Planned
from adaptpipe.solver.evaluate.simulate import simulate
from adaptpipe.solver.evaluate.timeline import Timeline
from adaptpipe.solver.heuristics import one_f_one_b, one_f_one_b_split
from adaptpipe.solver.planning.files.instance_file import load_workload
from adaptpipe.solver.planning.judging.robust import ERRORS, EXECUTIONS, Gain, Robustness, ranked, robustness
from adaptpipe.solver.planning.judging.wrong_costs import SOURCES, Draw, Source, WrongCosts
from adaptpipe.solver.planning.plan import Plan
from adaptpipe.solver.planning.rivals.today import Today, capped, rivals, todays
from adaptpipe.solver.planning.workload import Workload, split_of
from benchmarks.instances import WORKLOADS
from tests.solver.planning.shapes import workload as made

LAYERS = [(3000, 500, 2000, 4, 2, 1), *[(8000, 9000, 6000, 20, 10, 5)] * 6, (15000, 14000, 11000, 30, 10, 9)]


def small(samples: int = 8, sizes: tuple[int, ...] = (1,), **more: object) -> Workload:
    return made(LAYERS, 2, samples, sizes, op=80.0, latency=50.0, **more)  # type: ignore[arg-type]


def value(workload: Workload, today: Today, draw: Draw, source: Source, error: float) -> float:
    """Makespan of a schedule in one draw, its order fixed."""
    problem, schedule = today.timeline.problem, today.timeline.schedule
    scenario = WrongCosts(workload, today.split, problem, schedule).scenario(draw, source, error)
    planned = Planned.of(problem.instance(schedule.sizes), schedule)
    return run_value(schedule, planned, scenario, "makespan")


def scaled(part: Part, kind: tuple[float, float, float], layer: float) -> Part:
    f, i, w = (each * layer for each in kind)
    return replace(
        part,
        measurements=tuple(
            replace(
                m,
                forward_s=m.forward_s * f,
                backward_input_s=m.backward_input_s * i,
                backward_weight_s=m.backward_weight_s * w,
                backward_s=m.backward_input_s * i + m.backward_weight_s * w,
            )
            for m in part.measurements
        ),
    )


@pytest.mark.parametrize("source", ["layer", "rank", "kind", "all"])
def test_wrong_costs_are_those_of_a_workload_that_is_made_of_them(source: Source) -> None:
    workload, error = small(speed=(1.0, 0.6)), 0.3
    share = error / 2 if source == "all" else error
    chosen = {each.method: each for each in todays(workload) if each.method in ("1F1B", "ZB-H1", "ZB-V")}
    assert len(chosen) == 3
    for number in range(3):
        draw = replace(Draw.of(workload, 5, number), sample=np.zeros(workload.samples))
        layer, rank, kind = (
            np.exp(share * (source in (name, "all")) * normal - (share * (source in (name, "all"))) ** 2 / 2)
            for name, normal in (("layer", draw.layer), ("rank", draw.rank), ("kind", draw.kind))
        )
        mean = math.exp(-(share**2) / 2) if source == "all" else 1.0
        parts = tuple(
            scaled(part, (kind[0], kind[1], kind[2]), factor * mean)
            for part, factor in zip(workload.profile.parts, layer.tolist(), strict=True)
        )
        speed = tuple(s / f for s, f in zip(workload.cluster.speed, rank.tolist(), strict=True))
        actual = replace(
            workload,
            profile=replace(workload.profile, parts=parts, op_s=workload.profile.op_s * mean),
            cluster=replace(workload.cluster, speed=speed),
        )
        for today in chosen.values():
            schedule = today.timeline.schedule
            problem = actual.problem(today.split, schedule.placement, schedule.sizes)
            rebuilt = simulate(problem, schedule).makespan
            assert value(workload, today, draw, source, error) == pytest.approx(rebuilt, rel=2e-4)


def test_a_micro_batch_takes_longer_on_all_stages_and_alike_in_every_division() -> None:
    workload = made([(5000, 5000, 5000, 1, 1, 1)] * 2, 1, 12, (1, 2, 3))
    draw = Draw.of(workload, 0, 0)
    for size in (1, 2, 3):
        today = next(each for each in todays(workload) if each.method == "1F1B" and set(each.division) == {size})
        sums = draw.sample.reshape(-1, size).sum(1) / math.sqrt(size)
        expected = 30_000 * size * np.exp(0.2 * sums - 0.02).sum()
        assert value(workload, today, draw, "micro-batch", 0.2) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("source", "share"),
    [
        ("layer", 1.0),
        ("rank", 1.0),
        ("micro-batch", 1.0),
        ("kind", math.sqrt(0.4**2 + 0.6**2)),
        ("all", math.sqrt(0.75 + 0.25 * (0.4**2 + 0.6**2))),
    ],
)
def test_times_are_right_in_the_mean_and_off_by_the_error(source: Source, share: float) -> None:
    """One layer on one rank, one micro-batch, 0.4 of it in I and 0.6 in W: the time is the product of its factors."""
    workload = made([(0, 4000, 6000, 1, 1, 1)], 1, 1)
    split, placement = split_of([0, 1]), place("linear", 1)
    problem = workload.problem(split, placement, (1,))
    schedule = one_f_one_b(problem, (1,))
    costs, planned = WrongCosts(workload, split, problem, schedule), Planned.of(problem.instance((1,)), schedule)
    draws = 600
    times = [
        run_value(schedule, planned, costs.scenario(Draw.of(workload, 1, n), source, 0.2), "makespan") / 10_000
        for n in range(draws)
    ]
    assert abs(float(np.mean(times)) - 1) < 4 * 0.2 * share / math.sqrt(draws)
    assert float(np.std(times)) == pytest.approx(0.2 * share, rel=0.15)


def uneven(workload: Workload, layer: int, sigma: float) -> Workload:
    parts = list(workload.profile.parts)
    parts[layer] = replace(parts[layer], uneven=sigma)
    return replace(workload, profile=replace(workload.profile, parts=tuple(parts)))


@pytest.mark.parametrize("size", [1, 2])
def test_what_is_in_a_micro_batch_lengthens_an_uneven_layer_and_no_other(size: int) -> None:
    """Two layers on one rank, a third of the time in the uneven one; beside an error of ranks next to nothing."""
    workload = uneven(made([(5000, 5000, 10_000, 1, 1, 1), (2000, 3000, 5000, 1, 1, 1)], 1, 4, (size,)), 1, 0.3)
    today = next(each for each in todays(workload) if each.method == "1F1B")
    draws = [Draw.of(workload, 3, number) for number in range(400)]
    for draw in draws[:3]:
        normal = draw.uneven[0].reshape(-1, size).sum(1) / math.sqrt(size)
        expected = size * (20_000 * 4 / size + 10_000 * np.exp(0.3 * normal - 0.045).sum())
        assert value(workload, today, draw, "rank", 1e-9) == pytest.approx(expected, rel=1e-4)
        assert value(workload, today, draw, "rank", 0.0) == pytest.approx(120_000)
    times = [value(workload, today, draw, "rank", 1e-9) / 120_000 for draw in draws]
    assert float(np.std(times)) == pytest.approx(0.3 / 3 / math.sqrt(4 / size), rel=0.15)
    assert float(np.mean(times)) == pytest.approx(1, abs=0.02)


def compared(workload: Workload) -> tuple[Plan, Today]:
    fitting = [each for each in todays(workload) if each.fits]
    base = next(each for each in fitting if each.method == "1F1B")
    return fitting[0].plan(workload), base


def test_without_error_the_gain_is_that_of_the_plan() -> None:
    plan, base = compared(small())
    found = robustness(plan, [base], errors=(0.0,))
    assert len(found.gains) == len(SOURCES) * len(EXECUTIONS)
    for source in SOURCES:
        gain = found.gain(0.0, source, "fixed")
        assert gain.values == (1 - plan.makespan / base.makespan,)
        assert gain.spread == gain.interval == (gain.mean, gain.mean)
        assert found.gain(0.0, source, "adaptive over fixed").mean >= gain.mean


def test_a_schedule_gains_nothing_over_itself() -> None:
    plan, _ = compared(small())
    found = robustness(plan, [plan], errors=ERRORS, draws=5)
    for gain in found.gains:
        if gain.execution != "adaptive over fixed":
            assert set(gain.values) == {0.0}
    assert not found.survives(0.1)


def test_a_large_gain_survives_and_a_small_one_does_not() -> None:
    workload = load_workload(WORKLOADS, "gemma2-9b-p8", sizes=(1,))
    fitting = [each for each in todays(workload) if each.fits]
    best, slow = fitting[0], next(each for each in fitting if (each.method, each.rule) == ("1F1B", "even"))
    assert robustness(best.plan(workload), [slow], errors=(0.1,), sources=("all",)).survives()
    near = next(each for each in fitting if (each.method, each.split) == ("ZB-V at mean costs", best.split))
    found = robustness(best.plan(workload), [near], errors=(0.0, 0.1), sources=("all",))
    assert found.gain(0.0, "all", "fixed").mean > 0.002
    assert not found.survives(), "both run F and I in the same order, and so do the same with floating weights"


def test_draws_depend_on_the_seed_alone() -> None:
    plan, base = compared(small(sizes=(1, 2)))
    one, same, other = (robustness(plan, [base], errors=(0.1,), draws=4, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    more = robustness(plan, [base], errors=(0.1,), draws=6, seed=1)
    assert all(a.values == b.values[:4] for a, b in zip(one.gains, more.gains, strict=True))


def test_figures_of_a_gain_are_of_its_draws() -> None:
    plan, base = compared(small())
    gain = robustness(plan, [base], errors=(0.2,), draws=20, sources=("rank",)).gain(0.2, "rank", "fixed")
    assert gain.mean == pytest.approx(np.mean(gain.values))
    assert gain.standard_error == pytest.approx(np.std(gain.values, ddof=1) / math.sqrt(20))
    assert gain.interval[0] < gain.mean < gain.interval[1]
    assert min(gain.values) <= gain.spread[0] <= gain.spread[1] <= max(gain.values)
    row = gain.row()
    assert (row["source"], row["error"], row["execution"], row["draws"]) == ("rank", 0.2, "fixed", 20)
    assert row["gain"] == pytest.approx(gain.mean, abs=1e-6)


def test_the_base_that_does_best_under_the_errors_counts() -> None:
    """Llama 3 70B: ZB-H2 is the best of today's as planned, and ZB-V, run adaptively, where costs are wrong."""
    workload = load_workload(WORKLOADS, "llama3-70b-tp8-p8", sizes=(1,))
    known = todays(workload)
    best = rivals(known)
    assert [each.method for each in best] == ["ZB-H2", "ZB-V", "Interleaved1F1B v=6"]
    plan = best[2].plan(workload)
    found = robustness(plan, best, errors=(0.0, 0.1), draws=20, sources=("all",))
    assert found.gain(0.0, "all", "fixed").rival == 0
    assert found.gain(0.1, "all", "adaptive").rival == 1
    alone = [robustness(plan, [each], errors=(0.1,), draws=20, sources=("all",)) for each in best]
    for execution in EXECUTIONS:
        gain = found.gain(0.1, "all", execution)
        assert gain.base.mean == min(each.gain(0.1, "all", execution).base.mean for each in alone)


def test_a_plan_is_compared_with_something() -> None:
    plan, _ = compared(small())
    with pytest.raises(InputError, match="nothing to compare the plan with"):
        robustness(plan, [])


def test_percentiles_are_between_the_draws() -> None:
    values = Noisy(tuple(float(value) for value in range(101)))
    gain = Gain("all", 0.1, "fixed", values, Noisy((100.0,) * 101))
    assert gain.spread == pytest.approx((0.05, 0.95))


@pytest.mark.parametrize(("plan", "survives"), [((99.0, 98.0, 97.0), True), ((80.0, 100.0, 101.0), False)])
def test_a_gain_survives_where_chance_does_not_explain_it(plan: tuple[float, ...], survives: bool) -> None:
    """The second is larger in the mean, and of one draw."""
    gain = Gain("all", 0.1, "adaptive", Noisy(plan), Noisy((100.0,) * 3))
    assert gain.mean > 0.019
    assert Robustness((gain,)).survives() is survives


def test_where_the_base_does_not_fit_only_fixed_orders_are_compared() -> None:
    _, fits = compared(small())
    workload = capped(small(), fits)
    over = next(each for each in todays(workload) if not each.fits and each.method == "GPipe")
    result = robustness(fits.plan(workload), [over], errors=(0.1,), draws=5, sources=("all",))
    assert [gain.execution for gain in result.gains] == ["fixed"]
    assert "brings the memory to" in result.reason
    assert result.survives() is (result.gain(0.1, "all", "fixed").interval[0] > 0)
    with pytest.raises(InputError, match=r"nothing is known of adaptive execution under an error of 0\.1 by all; rank"):
        result.gain(0.1)


def test_what_was_not_looked_at_is_not_told() -> None:
    plan, base = compared(small())
    found = robustness(plan, [base], errors=(0.1,), draws=2, sources=("all",))
    with pytest.raises(InputError, match=r"under an error of 0.2 by all; look at it first"):
        found.survives(0.2)


@pytest.mark.parametrize("error", [-0.1, 1.5, float("nan")])
def test_errors_out_of_range_are_refused(error: float) -> None:
    plan, base = compared(small())
    with pytest.raises(InputError, match=r"an error of .* is not within 0\.\.1"):
        robustness(plan, [base], errors=(0.1, error))
    with pytest.raises(InputError, match=r"an error of .* is not within 0\.\.1"):
        ranked([plan], error)


def test_at_least_one_draw_is_taken() -> None:
    plan, base = compared(small())
    with pytest.raises(InputError, match="0 draws are too few"):
        robustness(plan, [base], draws=0)
    with pytest.raises(InputError, match="0 draws are too few"):
        ranked([plan], draws=0)


def test_plans_are_ranked_by_their_mean_under_errors() -> None:
    workload = small(sizes=(1, 2))
    plans = [each.plan(workload) for each in todays(workload)[:12]]
    order = ranked(plans, error=0.2, draws=8, seed=3)
    assert {id(plan) for plan, _ in order} == {id(plan) for plan in plans}
    means = [values.mean for _, values in order]
    assert means == sorted(means)
    for plan, values in order:
        alone = robustness(plan, [plan], errors=(0.2,), draws=8, seed=3, sources=("all",))
        assert values == alone.gain(0.2, "all", "adaptive").plan
    still = ranked(plans, error=0.0)
    assert all(len(values.values) == 1 for _, values in still)


def test_floating_weights_make_up_for_wrong_costs() -> None:
    """1F1B with a whole W in each wait: what waits is filled, whoever is late."""
    workload = small(memory=(400, 400))
    split, placement = split_of([0, 4, 8]), place("linear", 2)
    problem = workload.problem(split, placement, (1,) * 8)
    timeline: Timeline = simulate(problem, one_f_one_b_split(problem))
    plan = Plan(workload, split, timeline, 0, "1F1B-split", 0.0)
    found = robustness(plan, [plan], errors=(0.2,), draws=10, sources=("all",))
    assert found.gain(0.2, "all", "adaptive over fixed").interval[0] > 0


def test_at_equal_memory_every_rank_may_hold_what_the_base_holds_at_most() -> None:
    workload = small(memory=(400, 200))
    base = next(each for each in todays(workload) if each.fits and each.method == "1F1B")
    most = max(base.timeline.peak_memory)
    assert 0 < most < 200
    equal = capped(workload, base)
    assert equal.cluster.memory == (most, most)
    again = next(each for each in todays(equal) if (each.method, each.split) == (base.method, base.split))
    assert again.fits
    assert again.makespan == base.makespan
    tighter = replace(workload, cluster=replace(workload.cluster, memory=(None, most - 1)))
    assert capped(tighter, base.plan(workload)).cluster.memory == (most, most - 1)
