"""`check` finds every kind of fault, and says where."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Kind, NoAnswerError, Problem, Schedule, Violation, check, place, simulate
from tests.strategies import problems, schedules_of

PROBLEM = Problem.from_dict(
    {
        "pipeline": {"ranks": 2},
        "batch": {"samples": 1},
        "costs": {"forward": 3, "backward_input": 4, "weight_units": [1, 1, 1]},
        "memory": {"unit": "MB", "activation": 3, "retained": 3, "static": 1, "limit": [4, 3]},
    }
)
FREE = Problem.from_dict(
    {
        "pipeline": {"ranks": 2},
        "batch": {"samples": 1},
        "costs": {"forward": 3, "backward_input": 4, "weight_units": [1, 1, 1]},
    }
)


def found(first: str, second: str, problem: Problem = FREE) -> list[str]:
    schedule = Schedule.parse(problem.placement, [1], [first.split(), second.split()])
    return [violation.message for violation in check(problem, schedule)]


@pytest.mark.parametrize(
    ("first", "second", "messages"),
    [
        ("0F0 0B0", "1F0 1B0", []),
        ("0F0 0I0 0W0", "1F0 1I0 1W0[0:1] 1W0[1:3]", []),
        ("0F0 0I0 0W0", "1F0 1I0 1W0[2:3] 1W0[0:2]", []),
        ("0F0 1F0 0B0", "1B0", ["rank 0, position 1: 1F0 belongs to rank 1"]),
        ("0F0 0F0 0B0", "1F0 1B0", ["rank 0, position 1: 0F0 is there twice, first at position 0"]),
        ("0B0", "1F0 1B0", ["rank 0: 0F0 is missing"]),
        ("0F0", "1F0 1B0", ["rank 0: 0B0, or 0I0 and 0W0, is missing"]),
        ("0F0 0W0", "1F0 1B0", ["rank 0: 0B0, or 0I0 and 0W0, is missing"]),
        ("0F0 0I0", "1F0 1B0", ["rank 0: 0W0 is missing"]),
        ("0F0 0I0 0W0[0:1] 0W0[2:3]", "1F0 1B0", ["rank 0: unit 1 of 0W0 is missing"]),
        ("0F0 0I0 0W0[0:2]", "1F0 1B0", ["rank 0: unit 2 of 0W0 is missing"]),
        ("0F0 0I0 0W0[1:3]", "1F0 1B0", ["rank 0: unit 0 of 0W0 is missing"]),
        ("0F0 0I0 0W0 0W0[1:2]", "1F0 1B0", ["rank 0, position 3: unit 1 of 0W0 is computed twice"]),
        ("0F0 0I0 0W0[0:4]", "1F0 1B0", ["rank 0, position 2: 0W0[0:4] ends beyond unit 2, the stage's last"]),
        ("0F0 0B0 0W0", "1F0 1B0", ["rank 0, position 2: 0W0 beside 0B0, which holds it already"]),
        ("0F0 0B0 0I0", "1F0 1B0", ["rank 0, position 2: 0I0 beside 0B0 at position 1; one of them is enough"]),
        (
            "0F0 0B0",
            "1B0 1F0",
            ["deadlock: rank 1, position 0: 1B0 waits for 1F0 (rank 1, position 1)"],
        ),
        ("0F0 0W0 0I0", "1F0 1B0", ["deadlock: rank 0, position 1: 0W0 waits for 0I0 (rank 0, position 2)"]),
    ],
)
def test_every_kind_of_fault(first: str, second: str, messages: list[str]) -> None:
    assert found(first, second) == messages


@pytest.mark.parametrize(
    ("row", "messages"),
    [
        ("0F0 0F1 0B1 0B0 0F2 0F3 0I3 0I2 0W2 0W3", []),
        ("0F2 0F0 0F3 0F1 0B3 0B1 0B0 0B2", []),
        (
            "0F1 0F0 0B1 0B0 0F2 0F3 0B3 0B2",
            [
                "rank 0, position 0: 0F1 is before 0F0, at position 1; the 2 slices of a micro-batch run first to last "
                "in the forward"
            ],
        ),
        (
            "0F0 0F1 0B1 0B0 0F2 0I2 0F3 0B3 0W2",
            [
                "rank 0, position 5: 0I2 is before 0B3, at position 7; the 2 slices of a micro-batch run last to first "
                "in the backward"
            ],
        ),
        ("0F0 0F1 0B0 0F2 0F3 0B3 0B2", ["rank 0: 0B1, or 0I1 and 0W1, is missing"]),
    ],
)
def test_slices_take_turns(row: str, messages: list[str]) -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 1},
            "batch": {"samples": 2, "slices": 2},
            "costs": {"forward": 3, "backward_input": 4, "weight_units": [1, 1, 1]},
        }
    )
    schedule = Schedule.parse(problem.placement, problem.default_sizes(), [row.split()], 2)
    assert [violation.message for violation in check(problem, schedule)] == messages
    if messages:
        with pytest.raises(NoAnswerError, match=re.escape(messages[0])):
            simulate(problem, schedule)


@given(st.data())
@settings(max_examples=40)
def test_a_slice_before_its_turn_is_found(data: st.DataObject) -> None:
    problem = data.draw(problems(slices=True, limited=False))
    schedule = data.draw(schedules_of(problem))
    assert check(problem, schedule) == ()
    rank = data.draw(st.sampled_from([r for r, row in enumerate(schedule.ops) if row]))
    forwards = [at for at, op in enumerate(schedule.ops[rank]) if op.kind is Kind.F]
    row, at = list(schedule.ops[rank]), data.draw(st.sampled_from(forwards))
    slices, j = problem.slice_count, row[at].microbatch
    other = row.index(replace(row[at], microbatch=j - 1 if j % slices else j + 1))
    row[at], row[other] = row[other], row[at]
    swapped = replace(schedule, ops=(*schedule.ops[:rank], tuple(row), *schedule.ops[rank + 1 :]))
    assert any("in the forward" in violation.message for violation in check(problem, swapped))


def test_memory_names_the_first_op_over_the_limit() -> None:
    message = "rank 1, position 0: 1F0 brings the memory to 4 MB, above the limit of 3 MB"
    assert found("0F0 0B0", "1F0 1B0", PROBLEM) == [message]


def test_static_memory_above_the_limit() -> None:
    data = {
        "pipeline": {"ranks": 1},
        "batch": {"samples": 1},
        "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
        "memory": {"activation": 1, "static": 9, "limit": 8},
    }
    problem = Problem.from_dict(data)
    schedule = Schedule.parse(problem.placement, [1], [["0F0", "0B0"]])
    assert check(problem, schedule) == (Violation(0, None, "rank 0: static memory 9 B is above the limit of 8 B"),)


def test_versions_of_weights_count_against_the_limit() -> None:
    memory: dict[str, object] = {"activation": 2, "static": 9, "weights": 4, "limit": [17, 13]}
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2},
            "batch": {"samples": 2},
            "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
            "memory": memory,
        }
    )
    rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    schedule = Schedule.parse(problem.placement, [1, 1], rows, updates="stash")
    assert check(problem, schedule) == ()
    assert simulate(problem, schedule).peak_memory == (9 + 4 + 2 * 2, 9 + 2)
    # Two versions on each rank: the second does not fit.
    both = replace(schedule, updates="newest")
    message = "rank 1, position 0: 1F0 brings the memory to 15 B, above the limit of 13 B"
    assert [each.message for each in check(problem, both)] == [message]
    less = replace(problem, memory=replace(problem.memory, limit=(17, 12)))
    message = "rank 1: static memory 13 B, 4 B of it for more copies of the weights, is above the limit of 12 B"
    assert [each.message for each in check(less, both)] == [message]


def test_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match="the schedule is for 3 stages on 3 ranks"):
        check(FREE, Schedule(place("linear", 3), (1,), ((), (), ())))
    with pytest.raises(InputError, match="the schedule cuts a micro-batch into 2 slices, and the problem into 1"):
        check(FREE, Schedule(FREE.placement, (1, 1), ((), ()), 2))


@given(st.data())
def test_dropping_or_moving_an_op_is_found(data: st.DataObject) -> None:
    problem = data.draw(problems(limited=False))
    schedule = data.draw(schedules_of(problem))
    assert check(problem, schedule) == ()
    rank = data.draw(st.sampled_from([r for r, row in enumerate(schedule.ops) if row] or [0]))
    assume(schedule.ops[rank])
    rows = [list(row) for row in schedule.ops]
    op = rows[rank].pop(data.draw(st.integers(0, len(rows[rank]) - 1)))
    without = Schedule(schedule.placement, schedule.sizes, tuple(map(tuple, rows)))
    assert any("missing" in violation.message for violation in check(problem, without))
    if problem.ranks > 1:
        rows[(rank + 1) % problem.ranks].insert(0, op)
        moved = Schedule(schedule.placement, schedule.sizes, tuple(map(tuple, rows)))
        expected = f"rank {(rank + 1) % problem.ranks}, position 0: {op} belongs to rank {rank}"
        assert expected in [violation.message for violation in check(problem, moved)]


@given(st.data())
def test_swapping_two_ops_deadlocks_or_stays_valid(data: st.DataObject) -> None:
    """Where an op cannot be reached, the message closes a cycle of real waits."""
    problem = data.draw(problems(limited=False))
    schedule = data.draw(schedules_of(problem))
    rank = data.draw(st.integers(0, problem.ranks - 1))
    row = data.draw(st.permutations(schedule.ops[rank]))
    rows = tuple(tuple(row) if r == rank else old for r, old in enumerate(schedule.ops))
    shuffled = Schedule(schedule.placement, schedule.sizes, rows)
    for violation in check(problem, shuffled):
        assert violation.message.startswith("deadlock: rank ")
        assert violation.position is not None
        assert str(shuffled.ops[violation.rank][violation.position]) in violation.message
