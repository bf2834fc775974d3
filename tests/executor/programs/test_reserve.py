"""How many messages a schedule can have on their way; that it holds in runs is tested with the memory limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adaptpipe.executor.programs.lowering import lower
from adaptpipe.executor.programs.reserve import borders, reserve_for, widened
from adaptpipe.executor.programs.route import WINDOW
from adaptpipe.solver import Placement, Problem, Schedule, place
from adaptpipe.solver.core.slices import Slices
from adaptpipe.solver.heuristics import one_f_one_b, seq_one_f_one_b

from ..orders import problem_for, stage_by_stage

COUNT = 20


def priced(placement: Placement, message: int, named: bool) -> Problem:
    """Messages of some bytes, which the problem names or does not, and the usual reserve."""
    ranks, problem = placement.ranks, problem_for(placement, (1,) * COUNT)
    links = replace(problem.links, bandwidth=((1e9,) * ranks,) * ranks, message=(message,) * placement.stage_count)
    usual = tuple(2 * WINDOW * message * len(stages) for stages in borders(placement))
    return replace(
        problem,
        links=links if named else problem.links,
        memory=replace(problem.memory, reserve=usual, limit=(10**6,) * ranks),
    )


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("message", [7, 64])
def test_windows_are_enough_for_most_schedules(message: int, named: bool) -> None:
    problem = priced(place("linear", 4), message, named)
    schedule = one_f_one_b(problem)
    assert problem.memory.reserve == (4 * message, 8 * message, 8 * message, 4 * message)
    assert widened(problem, lower(problem, schedule)) == problem
    free = replace(problem, memory=replace(problem.memory, limit=(None,) * 4))
    assert reserve_for(free, schedule) == problem.memory.reserve


@pytest.mark.parametrize("named", [True, False])
def test_messages_that_pile_up_count(named: bool) -> None:
    """All of a stage before the next: on a loop sends wait for receivers, on one rank all is passed on at once."""
    problem = priced(place("loop", 2, 3), 10, named)
    wide = reserve_for(problem, stage_by_stage(problem.placement, COUNT))
    # A window of the next stage's messages waits on the rank, and nearly all of one stage's are on their way to it.
    assert all(
        usual == 200 < needed <= 10 * (COUNT + 10 * WINDOW) for usual, needed in zip((200, 200), wide, strict=True)
    )

    alone = priced(place("loop", 1, 3), 10, named)
    assert reserve_for(alone, stage_by_stage(alone.placement, COUNT)) == (10 * COUNT,)


def test_one_that_takes_a_later_message_first_holds_those_before_it() -> None:
    problem = replace(priced(place("linear", 2), 10, True), samples=4)
    first = ["0F0", "0F1", "0F2", "0F3", "0B3", "0B0", "0B1", "0B2"]
    second = ["1F3", "1F0", "1F1", "1F2", "1B3", "1B0", "1B1", "1B2"]
    schedule = Schedule.parse(problem.placement, (1,) * 4, [first, second])
    assert reserve_for(problem, schedule)[1] >= 10 * 4


def test_who_says_nothing_of_messages_or_limits_keeps_that() -> None:
    problem = priced(place("loop", 2, 3), 10, True)
    schedule = stage_by_stage(problem.placement, COUNT)
    silent = replace(problem, memory=replace(problem.memory, reserve=(0, 200)))
    assert reserve_for(silent, schedule)[0] == 0 < 200 < reserve_for(silent, schedule)[1]
    half = replace(problem, memory=replace(problem.memory, limit=(None, 10**6)))
    found = widened(half, lower(half, schedule)).memory.reserve
    assert found[0] == 200


def test_messages_of_slices_are_as_long_as_the_longest_of_them() -> None:
    problem = replace(priced(place("linear", 2), 40, True), slices=Slices(tokens=(3, 1), work=(1, 1)))
    least = replace(problem, memory=replace(problem.memory, reserve=(1, 1)))
    assert reserve_for(least, seq_one_f_one_b(problem)) == (2 * WINDOW * 30,) * 2
