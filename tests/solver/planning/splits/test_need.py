"""Whether any plan fits, against every assignment of layers to ranks; and what is said where none does."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings

from adaptpipe.solver.bounds import infeasible
from adaptpipe.solver.planning.splits.least_lack import MOST_TIES, least_lack
from adaptpipe.solver.planning.splits.need import GIGABYTE, why_not
from adaptpipe.solver.planning.workload import Tie, Workload
from tests.solver.planning.shapes import placements, splits, workload, workloads


def lack_of_all(work: Workload) -> int:
    """The least largest lack over all sizes and assignments, 0 where one fits."""
    best = 10**9
    for row in product(range(work.ranks), repeat=work.layers):
        if len(set(row)) < work.ranks:
            continue
        for size in {max(division) for division in work.divisions}:
            held = [
                max(m.transient for part in work.profile.parts for m in part.measurements if m.size == size)
            ] * work.ranks
            for layer, rank in enumerate(row):
                held[rank] += int(work.static[layer] + work.prices(size).activation[layer])
            for tie in work.ties:
                first, second = (row[layer] for layer in tie.layers)
                held[first] -= tie.static * (first == second)
            lacks = [h - m for h, m in zip(held, work.cluster.memory, strict=True) if m is not None]
            best = min(best, max([0, *lacks]))
    return best


@settings(max_examples=60)
@given(workloads(limited=True))
def test_the_lack_is_that_of_the_best_assignment(work: Workload) -> None:
    lack, least = why_not(work), lack_of_all(work)
    assert (0 if lack is None else lack.lacks) == least
    if lack is not None:
        assert lack.limit == work.cluster.memory[lack.rank]
        assert lack.proven == lack.lacks
        assert lack.static + lack.activation == lack.limit_needed


@settings(max_examples=30)
@given(workloads(max_layers=4, limited=True))
def test_it_is_said_exactly_where_every_problem_is_infeasible(work: Workload) -> None:
    some = any(
        not infeasible(work.problem(split, placement, division), division)
        for stages in range(work.ranks, work.layers + 1)
        for split in splits(work.layers, stages)
        for placement in placements(work.ranks, stages)
        for division in work.divisions
    )
    assert (why_not(work) is None) == some


GB = GIGABYTE
BLOCK = (1.0, 1.0, 1.0, GB, GB, 2 * GB)


def test_what_would_fit_is_said() -> None:
    lack = why_not(workload([BLOCK] * 6, 2, memory=[8 * GB, 8 * GB], sizes=(2, 3)))
    assert lack is not None
    assert (lack.rank, lack.layers, lack.lacks, lack.ranks_needed, lack.microbatch) == (0, 3, 4 * GB, 3, None)
    assert str(lack) == (
        "rank 0 needs 12.00 GB at least, for 3 layers (static 6.00 GB, activations of one micro-batch of 2 samples "
        "6.00 GB), which is 4.00 GB above its limit of 8.00 GB; no split and no placement lacks less; what would fit: "
        "4.00 GB more on each rank, or 3 ranks, or less activation memory: recompute, or shorter sequences"
    )
    assert "8.00 GB; some rank lacks 1.00 GB at least, whatever the split" in str(replace(lack, proven=GB))
    smaller = why_not(workload([BLOCK] * 6, 2, memory=[9 * GB, 9 * GB], sizes=(2,)))
    assert smaller is not None
    assert smaller.microbatch == 1
    assert "or micro-batches of 1" in str(smaller)


def test_what_one_op_holds_for_itself_must_be_free_on_every_rank() -> None:
    """A recomputing backward holds one layer's activations while it runs, which no op leaves behind."""
    tight, wide = (workload([BLOCK] * 2, 2, memory=[size * GB] * 2, transient=GB) for size in (3, 4))
    lack = why_not(tight)
    assert lack is not None
    assert (lack.static, lack.activation, lack.limit, lack.lacks) == (2 * GB, 2 * GB, 3 * GB, GB)
    assert why_not(wide) is None
    assert why_not(workload([BLOCK] * 2, 2, memory=[3 * GB] * 2)) is None


def test_no_number_of_ranks_holds_a_layer_that_is_too_large() -> None:
    lack = why_not(workload([BLOCK, (1.0, 1.0, 1.0, 0, 0, 9 * GB)], 2, memory=[8 * GB, 8 * GB]))
    assert lack is not None
    assert (lack.ranks_needed, lack.layer, lack.static_fits) == (None, 1, False)
    assert "optimizer state sharded" in str(lack)
    assert "layer 1 cut or sharded" in str(lack)


def test_what_is_tied_counts_once_where_both_are_on_one_rank() -> None:
    """Under V the embedding and the head are on one rank, which holds their common weight once
    (NVIDIA/Megatron-LM issue 656, the side of its cost)."""
    ends = (1.0, 1.0, 1.0, 0, 0, 6 * GB)
    layers = [ends, BLOCK, BLOCK, ends]
    assert why_not(workload(layers, 2, memory=[8 * GB, 8 * GB])) is not None
    assert why_not(workload(layers, 2, memory=[6 * GB, 6 * GB], ties=(Tie((0, 3), 6 * GB),))) is None


def test_more_ties_than_are_tried_prove_a_lack_only() -> None:
    ties = tuple(Tie((0, layer), 2) for layer in range(1, MOST_TIES + 2))
    found = least_lack([2, 2, 2, 2, 2, 2], ties, [2, 2], 5.0)
    assert found is not None
    assert found.proven == 0
    assert least_lack([9], (), [2], 0.0) is None


@pytest.mark.parametrize("limits", [[None, 8 * GB], [None, None]])
def test_a_rank_without_limit_holds_everything(limits: list[int | None]) -> None:
    assert why_not(workload([BLOCK] * 6, 2, memory=limits)) is None
