"""Decoders of every family on real ranks: loss and gradients are those of transformers' own model."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptpipe.executor import launch
from adaptpipe.solver import Kind, Op, Schedule, place

from ...executor.orders import problem_for, schedule_for
from .decoder_jobs import Case, compare_all
from .decoders import DECODERS, decoder

UNITS = 3


def cut(schedule: Schedule) -> Schedule:
    """Cut every other weight gradient into two ranges of its units, the later one first."""
    rows = []
    for row in schedule.ops:
        ops: list[Op] = []
        for op in row:
            whole = op.kind is not Kind.W or op.microbatch % 2
            ops += [op] if whole else [Op(op.stage, Kind.W, op.microbatch, (a, b)) for a, b in ((1, UNITS), (0, 1))]
        rows.append(tuple(ops))
    return Schedule(schedule.placement, schedule.sizes, tuple(rows))


def cases() -> list[Case]:
    """A linear placement and a V of every decoder, with fused, whole and cut backwards, and unequal sizes.

    Of each decoder one head is tied: by a linear placement to an embedding on the other rank, by a V to one here. In
    one of three cases the blocks are computed again in the backward.
    """
    found: list[Case] = []
    for number, name in enumerate(DECODERS):
        for turn, placement in enumerate((place("linear", 2), place("v", 2, 2))):
            problem = problem_for(placement, (1, 3, 2), units=UNITS)
            schedule = schedule_for(placement, (1, 3, 2), "random" if number % 2 else "zb", seed=number)
            tied, recomputed = (number + turn) % 2 == 0, len(found) % 3 == 0
            found.append(Case(name, tied, recomputed, problem, cut(schedule)))
    return found


@pytest.mark.timeout(120)
def test_gradients_equal_those_of_transformers_own_model(tmp_path: Path) -> None:
    ran = cases()
    kinds = {op.kind for case in ran for row in case.schedule.ops for op in row}
    assert kinds == set(Kind)
    for rank in launch(compare_all, 2, (ran, tmp_path), threads=1, preload=decoder("llama").slow_imports):
        assert len(rank) == len(ran)
        for seen in rank:
            assert seen.gradient < 1e-5, seen
            assert seen.loss < 1e-6, seen
            assert seen.coverage > 0.3, seen  # all but the first stage's embedding, norms and biases
