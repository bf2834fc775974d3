"""Balanced splits against every split."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver.core.placement import Placement, place
from adaptpipe.solver.core.problem import price
from adaptpipe.solver.planning.splits.partition import balanced
from adaptpipe.solver.planning.splits.stage_table import FAR, StageTable
from adaptpipe.solver.planning.workload import Split, Tie, Workload
from tests.solver.planning.shapes import splits, workload, workloads


def rank_work(work: Workload, split: Split, placement: Placement, division: tuple[int, ...]) -> list[int]:
    """Ticks of each rank, from the problem of the split."""
    problem = work.problem(split, placement, division)
    found = [0] * work.ranks
    for stage, rank in enumerate(placement.stages[0]):
        for z in division:
            whole = price(problem.backward_input[stage], z) + price(problem.weight_units[stage][0], z)
            fused = whole if problem.backward is None else price(problem.backward[stage], z)
            found[rank] += price(problem.forward[stage], z) + min(whole, fused)
    return found


def fits(work: Workload, split: Split, placement: Placement, size: int) -> bool:
    """Whether static bytes and the activations of one micro-batch are within each rank's limit, with one op's own."""
    held = [0] * work.ranks
    static = work.stage_static(split, placement)
    for stage, rank in enumerate(placement.stages[0]):
        held[rank] += static[stage] + sum(int(work.prices(size).activation[layer]) for layer in split[stage])
    own = max(m.transient for part in work.profile.parts for m in part.measurements if m.size == size)
    return all(limit is None or h + own <= limit for h, limit in zip(held, work.cluster.memory, strict=True))


@settings(max_examples=80)
@given(workloads(max_layers=8), st.sampled_from(["linear", "v", "turned"]), st.data())
def test_linear_and_v_are_exact(work: Workload, family: str, data: st.DataObject) -> None:
    division = data.draw(st.sampled_from(work.divisions))
    if family == "turned":
        placement = Placement(work.ranks, (tuple(data.draw(st.permutations(range(work.ranks)))),))
    else:
        placement = place(family, work.ranks, 2 if family == "v" else 1)
    found = balanced(work, placement, division)
    every = [s for s in splits(work.layers, placement.stage_count) if fits(work, s, placement, max(division))]
    if found is None:
        assert not every
        return
    work.check_split(found, placement)
    assert fits(work, found, placement, max(division))
    assert max(rank_work(work, found, placement, division)) == min(
        max(rank_work(work, s, placement, division)) for s in every
    )


@settings(max_examples=40)
@given(workloads(max_layers=8), st.sampled_from(["loop", "wave"]))
def test_other_placements_are_covered_and_within_memory(work: Workload, family: str) -> None:
    placement, division = place(family, work.ranks, 2), work.divisions[0]
    found = balanced(work, placement, division)
    if found is not None:
        work.check_split(found, placement)
        assert fits(work, found, placement, max(division))
    elif work.layers >= placement.stage_count:
        assert any(limit is not None for limit in work.cluster.memory)


@settings(max_examples=40)
@given(workloads(limited=True))
def test_the_table_prices_a_stage_as_its_problem_does(work: Workload) -> None:
    division = work.divisions[-1]
    table, placement = StageTable(work, division), place("linear", work.ranks)
    for split in splits(work.layers, work.ranks):
        bounds = [part.start for part in split] + [work.layers]
        assert list(table.rank_work(bounds, placement.stages[0])) == rank_work(work, split, placement, division)
        assert work.stage_static(split, placement) == tuple(table.static[part.start, part.stop] for part in split)
    assert (table.work[:, 1:, 0] == FAR).all()


BLOCK = (2.0, 3.0, 1.0, 1, 1, 1)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_first_share_moves_layers_between_the_runs_of_a_rank(share: float) -> None:
    """Which of the equally balanced splits is taken matters as much as the balance: small first runs fill sooner."""
    work = workload([BLOCK] * 40, 4)
    found = balanced(work, place("v", 4, 2), (1,) * 4, first_share=share)
    assert found is not None
    assert [len(found[r]) + len(found[7 - r]) for r in range(4)] == [10] * 4
    assert [len(found[r]) for r in range(4)] == [round(10 * share)] * 4


def test_more_micro_batches_under_way_need_more_even_memory() -> None:
    """With a period, early layers hold for longer: they go to ranks in smaller numbers."""
    heavy = (2.0, 3.0, 1.0, 10, 10, 0)
    work = workload([heavy] * 12, 2, memory=[200, 200])
    alone = balanced(work, place("linear", 2), (1,) * 8)
    assert alone == (range(6), range(6, 12))
    # 12 layers of 5 ticks there and back; every 20 ticks a micro-batch: 3 are under way in the first stage.
    assert balanced(work, place("linear", 2), (1,) * 8, period=20) == alone
    assert balanced(work, place("linear", 2), (1,) * 8, period=15) == (range(5), range(5, 12))
    assert balanced(work, place("linear", 2), (1,) * 8, period=2) is None


def test_what_is_tied_fits_where_both_are_on_one_rank() -> None:
    layers = [(1.0, 1.0, 1.0, 0, 0, 10), BLOCK, BLOCK, (1.0, 1.0, 1.0, 0, 0, 10)]
    tied = workload(layers, 2, memory=[12, 12], ties=(Tie((0, 3), 10),))
    assert balanced(tied, place("v", 2, 2), (1,)) is not None
    assert balanced(workload(layers, 2, memory=[12, 12]), place("v", 2, 2), (1,)) is None


def test_speeds_with_many_digits_are_exact() -> None:
    work = workload([(1e7, 1e7, 1e7, 0, 0, 0)] * 4, 2, speed=[0.6180339887498949, 1.0])
    for split in splits(4, 2):
        bounds = [0, split[1].start, 4]
        line = place("linear", 2)
        assert list(StageTable(work, (1,)).rank_work(bounds, (0, 1))) == rank_work(work, split, line, (1,))
