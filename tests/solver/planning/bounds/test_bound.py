"""The bound over every plan: never above one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver.bounds import infeasible
from adaptpipe.solver.core.placement import Placement
from adaptpipe.solver.evaluate.simulate import simulate
from adaptpipe.solver.greedy import greedy
from adaptpipe.solver.heuristics.one_by_one import one_by_one
from adaptpipe.solver.planning.bounds.bound import division_bound, lower_bound
from adaptpipe.solver.planning.workload import Split, Workload, split_of
from tests.solver.planning.shapes import workload, workloads

BLOCK = (2.0, 3.0, 1.0, 1, 1, 1)


@st.composite
def splits_of(draw: st.DrawFn, work: Workload) -> tuple[Split, Placement]:
    """A split of a workload, and a placement of its stages."""
    stages = draw(st.integers(work.ranks, work.layers))
    cuts = sorted(draw(st.permutations(range(1, work.layers)))[: stages - 1])
    more = draw(st.lists(st.integers(0, work.ranks - 1), min_size=stages - work.ranks, max_size=stages - work.ranks))
    row = draw(st.permutations([*range(work.ranks), *more]))
    return split_of([0, *cuts, work.layers]), Placement(work.ranks, (tuple(row),))


@settings(max_examples=60)
@given(workloads(max_layers=9, max_ranks=4, max_samples=6), st.data())
def test_no_schedule_is_below_the_bound(work: Workload, data: st.DataObject) -> None:
    split, placement = data.draw(splits_of(work))
    division = data.draw(st.sampled_from(work.divisions))
    problem = work.problem(split, placement, division)
    if infeasible(problem, division):
        return
    bound = division_bound(work, division)
    assert bound is not None
    start = simulate(problem, one_by_one(problem, division)).makespan
    assert bound <= start
    assert lower_bound(work, seconds=0.0) <= start
    better = greedy(problem, deadline=0.0)
    if better is not None:
        other = division_bound(work, better.sizes)
        assert other is not None
        assert other <= simulate(problem, better).makespan


def test_layers_stay_whole() -> None:
    """7 layers on 2 ranks: one rank has 4, whatever the order."""
    work = workload([BLOCK] * 7, 2, 100)
    assert lower_bound(work) >= 100 * 4 * 6 > 100 * 7 * 6 // 2


def test_ranks_start_one_after_another() -> None:
    work = workload([BLOCK] * 8, 4, 10, latency=5.0)
    assert lower_bound(work) >= 10 * 2 * 6 + 3 * (2 + 5)


def test_a_rank_waits_for_its_first_backward_once_its_memory_is_full() -> None:
    """Memory for two micro-batches: each rank runs two F's, then waits for the way of the first there and back."""
    layers = [(10.0, 10.0, 10.0, 1, 1, 0), *[(10.0, 10.0, 10.0, 1, 1, 0)] * 2, (10.0, 20.0, 10.0, 1, 1, 0)]
    free, tight = workload(layers, 4, 10), workload(layers, 4, 10, memory=[2] * 4)
    # The last layer's rank works for 400 ticks. It starts after the first layer; or waits for 40 there, less two F's.
    assert lower_bound(free) == 10 + 400
    assert lower_bound(tight) == 40 - 20 + 400


def test_a_rank_of_two_stages_pays_for_both() -> None:
    """8 layers on 4 ranks: a second rank that starts after one layer has two stages, or starts after two."""
    op = 1.0
    work = workload([BLOCK] * 8, 4, 10, op=op)
    one = 10 * (2 * 6 + 2 * op)
    assert lower_bound(work) > one + 3 * (2 + op)


def test_layers_of_one_sort_that_never_follow_each_other_are_in_stages_of_their_own() -> None:
    """Attention and MLP take turns: two ranks could share 6 of 3 ticks and 6 of 5 evenly with 4 stages or more only."""
    small, large = (1.0, 1.0, 1.0, 0, 0, 0), (1.0, 2.0, 2.0, 0, 0, 0)
    work = workload([small, large] * 6, 2, 20, op=1.0)
    even = 20 * (6 * 3 + 6 * 5) / 2
    assert lower_bound(work) > even + 20 * 2
    assert lower_bound(workload([small] * 6 + [large] * 6, 2, 20, op=1.0)) <= lower_bound(work)


def test_few_micro_batches_are_bounded_by_the_way_there_and_back() -> None:
    """Before the first backward a micro-batch has gone through all ranks; then each has all its backwards to do."""
    work = workload([(5.0, 1.0, 3.0, 1, 1, 1)] * 12, 4, 2, latency=1.0)
    assert division_bound(work, (1, 1)) == 12 * 5 + 3 + 2 * 3 * 4
