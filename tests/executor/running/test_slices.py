"""Sequences in slices on real ranks: gradients are those of the whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from adaptpipe.executor.launching.launcher import launch
from adaptpipe.executor.running.plan import ExecutionMode, Plan
from adaptpipe.solver import InputError, NoAnswerError, Schedule, place

from ..orders import in_units, problem_for, schedule_for
from . import slices_jobs as jobs

pytestmark = pytest.mark.timeout(180)


def case(
    family: str,
    ranks: int,
    policy: str,
    tokens: Sequence[int],
    execution: ExecutionMode = "adaptive",
    units: int = 1,
    lengths: tuple[int, ...] = (jobs.LENGTH,),
) -> jobs.Sliced:
    """Three micro-batches of two samples each."""
    placement, slices = place(family, ranks, 1 if family == "linear" else 2), len(tokens)
    sizes = (2,) * (3 * slices)
    schedule = schedule_for(placement, sizes, policy, seed=ranks, slices=slices)
    if units > 1:
        schedule = in_units(schedule, units)
    name = f"{family} p={ranks} {policy} {tokens} {execution}"
    return jobs.Sliced(name, problem_for(placement, sizes, units, tokens), schedule, execution, lengths)


def cases(ranks: int) -> list[jobs.Sliced]:
    found = [
        case("linear", ranks, "1f1b", (3, 2, 1), lengths=(12, 6, 24)),  # fused, as Seq1F1B
        case("loop", ranks, "zb", (1, 1), "adaptive", units=4),  # as SVPP
        case("loop", ranks, "late-w", (1, 1, 1, 1), "static", units=3),
    ]
    if ranks == 2:
        found += [
            case("linear", ranks, "zb", (1, 1), "static"),
            case("loop", ranks, "random", (1, 5)),
            case("v", ranks, "gpipe", (1, 1)),
        ]
    return found


def assert_equal(found: Iterable[tuple[str, float, float]]) -> None:
    for name, gradient, loss in found:
        assert gradient < 1e-11, name
        assert loss < 1e-12, name


def test_gradients_equal_the_unsplit_models_on_four_ranks() -> None:
    for found in launch(jobs.compare_all, 4, cases(4), threads=1):
        assert_equal(found)


def test_gradients_keywords_refusals_and_a_limit_on_two_ranks() -> None:
    wanted = (
        r"InputError: micro-batch 0: {} has sequences of length 10, which slices in the proportions 3:2:1 do not "
        r"divide; use multiples of 6, as 6 or 12, or other slices",
        r"InputError: {} has shape \(2,\) and no sequence to cut into slices; give it a second dimension",
        r"InputError: stage 0 is a TransformerEncoderLayer, which takes whole sequences only",
    )
    results = launch(jobs.everything, 2, cases(2), threads=1)
    for data, (found, keywords, refusals, (free, limited)) in zip(("batch", "target"), results, strict=True):
        assert_equal(found)
        assert keywords < 1e-12
        for message, pattern in zip(refusals, wanted, strict=True):
            assert re.match(pattern.format(data), message), message
        assert 0 < limited == free


def test_slices_out_of_turn_do_not_run() -> None:
    """Here the backward of the first slice would not have the gradients that come from the second."""
    placement, sizes = place("linear", 2), (1, 1)
    rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1F1", "1B0", "1B1"]]
    schedule = Schedule.parse(placement, sizes, rows, slices=2)
    with pytest.raises(NoAnswerError, match=r"0B0 is before 0B1.*last to first in the backward"):
        Plan.of(problem_for(placement, sizes, tokens=(1, 1)), schedule, "static")


def test_ranks_must_cut_alike() -> None:
    made = [Plan.of(each.problem, each.schedule, "static") for each in (case("linear", 2, "zb", (1, 1)),) * 2]
    other = replace(made[1].problem, slices=replace(made[1].problem.slices, tokens=(1, 2)))  # type: ignore[type-var]
    assert made[0].fingerprint == made[1].fingerprint
    assert Plan.of(other, made[1].schedule, "static").fingerprint != made[0].fingerprint
    with pytest.raises(InputError, match="cuts a micro-batch into 2 slices"):
        Plan.of(replace(other, slices=None), made[1].schedule, "static")
