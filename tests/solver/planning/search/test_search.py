"""Plans that the search finds: valid, better than where it starts, and no worse for more to choose from."""

from __future__ import annotations

from random import Random

import pytest

from adaptpipe.solver import InputError, NoAnswerError, check, place, simulate
from adaptpipe.solver.core.cluster import uniform_cluster
from adaptpipe.solver.core.profile import Measurement, Part, Profile
from adaptpipe.solver.heuristics import zb_v
from adaptpipe.solver.planning.files.instance_file import load_workload
from adaptpipe.solver.planning.search import running, search
from adaptpipe.solver.planning.search.floated import floated
from adaptpipe.solver.planning.workload import Workload, split_of
from adaptpipe.solver.portfolio.request import Progress
from benchmarks.instances import WORKLOADS

from .workloads import random_workload


def unequal(memory: int | None = None) -> Workload:
    """Eleven equal layers and a head four times as large, on three ranks."""

    def part(name: str, size: float) -> Part:
        rows = (Measurement(1, 1e-3 * size, 1e-3 * size, 1e-3 * size, 2e-3 * size, 100, 60, 0),)
        return Part(name, 10, rows)

    layers = tuple(part(f"block {i}", 1.0) for i in range(11))
    profile = Profile("unequal", (*layers, part("head", 4.0)), 0.0)
    return Workload("unequal", profile, uniform_cluster("three", 3, memory, 1e-5, 1e9), 8, (1,))


def test_an_unequal_head_is_given_fewer_blocks() -> None:
    """Even a fixed good order cannot repair an even split; the plan beats ZB-V on it, within the same memory."""
    workload = unequal()
    placement, division = place("v", 3, 2), (1,) * 8
    even = workload.problem(split_of([0, 2, 4, 6, 8, 10, 12]), placement, division)
    base = simulate(even, zb_v(even, division))
    told: list[Progress] = []
    plans = search(workload, time_limit=1.0, on_progress=told.append)
    assert plans[0].makespan < 0.9 * base.makespan
    assert [each.value for each in told] == sorted({each.value for each in told}, reverse=True)
    assert told[-1].value == plans[0].makespan
    assert [plan.makespan for plan in plans] == sorted(plan.makespan for plan in plans)
    assert len({(plan.split, plan.placement.stages, plan.division) for plan in plans}) == len(plans)


@pytest.mark.parametrize("seed", range(3))
def test_plans_are_valid(seed: int) -> None:
    """Every rank's memory is kept, every layer is in one stage, and no plan is below its bound."""
    workload = random_workload(Random(seed), 3, 10, 8, (1, 2))
    for plan in search(workload, time_limit=0.5, seed=seed):
        problem = workload.problem(plan.split, plan.placement, plan.division)
        schedule = plan.timeline.schedule
        assert not check(problem, schedule)
        assert simulate(problem, schedule).makespan == plan.makespan >= plan.bound


def test_what_fits_nowhere_is_said() -> None:
    """Two layers of a micro-batch do not fit on any rank."""
    with pytest.raises(NoAnswerError, match=r"unequal: rank \d needs .* at least, for \d layers"):
        search(unequal(memory=150), time_limit=0.3)


def test_ctrl_c_keeps_the_best() -> None:
    """Even before the first order was annealed, what was found by then is returned."""

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    plans = search(unequal(memory=3_000), time_limit=60.0, on_progress=interrupt)
    assert plans[0].reason == "interrupted"


def test_ctrl_c_before_there_is_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """That nothing was found is no answer then: a case of many would be taken as finished."""

    def interrupt(_: Workload) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "floated", interrupt)
    with pytest.raises(KeyboardInterrupt):
        search(unequal(), time_limit=60.0)


def test_a_search_goes_on_from_plans() -> None:
    """A plan that fits is never lost, whatever the time; with less memory, its split is a start."""
    workload = unequal()
    first = search(workload, time_limit=0.5)
    again = search(workload, time_limit=0.01, start=first)
    assert again[0].makespan <= first[0].makespan
    most = max(first[0].timeline.peak_memory)
    tight = search(unequal(memory=most - 1), time_limit=0.3, start=first)
    assert max(tight[0].timeline.peak_memory) < most


def test_a_search_goes_on_from_plans_that_are_made_at_once() -> None:
    """ZB-V with floating weight gradients; on Llama 2 7B no search of two seconds gets there by itself."""
    workload = load_workload(WORKLOADS, "llama2-7b-p4", sizes=(2,))
    assert search(workload, time_limit=2.0)[0].makespan <= min(plan.makespan for plan in floated(workload))
    with_linear = search(workload, time_limit=0.2, families=[("linear", 1)])
    assert {plan.placement.name for plan in with_linear} == {"linear"}, "but not where V is not asked for"


def test_families_are_kept_to() -> None:
    """Only those that were asked for are looked at."""
    assert {plan.placement.name for plan in search(unequal(), time_limit=0.2, families=[("linear", 1)])} == {"linear"}


def test_options_out_of_range_are_refused() -> None:
    """With their value."""
    with pytest.raises(InputError, match=r"time limit: 0\.0 is not a positive number"):
        search(unequal(), time_limit=0.0)
    with pytest.raises(InputError, match="workers: 0 is below 1"):
        search(unequal(), workers=0)
