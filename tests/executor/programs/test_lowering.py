"""Lowering: instructions, the proof that they end, and what is refused."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.executor.programs.lowering import forward_only, lower
from adaptpipe.executor.programs.program import Pass, Program, Receive, Run, Send
from adaptpipe.executor.programs.route import WINDOW
from adaptpipe.solver import InputError, Kind, NoAnswerError, Placement, Problem, Schedule, check, explicit, place

from ..orders import POLICIES, problem_for, schedule_for, stage_by_stage


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    ranks = draw(st.integers(1, 4))
    family, per_rank = draw(st.sampled_from([("linear", 1), ("loop", 1), ("loop", 2), ("v", 2), ("wave", 4), ("", 0)]))
    if family:
        return place(family, ranks, per_rank)
    extra = draw(st.lists(st.integers(0, ranks - 1), max_size=4))
    return explicit(ranks, [*draw(st.permutations(range(ranks))), *extra])


def lowered(placement: Placement, sizes: tuple[int, ...], policy: str, seed: int = 0) -> tuple[Schedule, Program]:
    schedule = schedule_for(placement, sizes, policy, seed)
    return schedule, lower(problem_for(placement, sizes), schedule)


@settings(max_examples=40, deadline=None)
@given(placements(), st.integers(1, 5), st.sampled_from(POLICIES), st.integers(0, 99))
def test_every_send_has_its_receive_around_the_same_ops(
    placement: Placement, count: int, policy: str, seed: int
) -> None:
    """Valid orders of any kind are lowered, never refused: pytorch/pytorch#172668 hung on some of them."""
    schedule, program = lowered(placement, (1,) * count, policy, seed)
    sends, receives = Counter[tuple[object, int]](), Counter[tuple[object, int]]()
    for rank, row in enumerate(program.rows):
        assert tuple(i.op for i in row if isinstance(i, Run)) == schedule.ops[rank]
        for place_in_row, i in enumerate(row):
            if isinstance(i, Send):
                assert row[place_in_row - 1] == Run(i.op)
                assert i.route.source == rank
                sends[i.route, i.op.microbatch] += 1
            if isinstance(i, Receive):
                assert row[place_in_row + 1] == Run(i.op)
                assert i.route.target == rank
                receives[i.route, i.op.microbatch] += 1
            if isinstance(i, Pass):
                assert placement.stages[0][i.receiver] == rank
    assert sends == receives
    assert set(sends.values()) <= {1}
    crossings = sum(a != b for a, b in zip(placement.stages[0], placement.stages[0][1:], strict=False))
    assert len(program.routes) == 2 * crossings
    assert sum(sends.values()) == 2 * crossings * count


@settings(max_examples=60, deadline=None)
@given(placements(), st.integers(1, 3), st.integers(0, 999))
def test_orders_that_end_are_those_that_the_checker_passes(placement: Placement, count: int, seed: int) -> None:
    """Both sides of a pair waited for the other first, and nothing said so: NVIDIA/nccl#479."""
    schedule = schedule_for(placement, (1,) * count, "1f1b")
    chance = random.Random(seed)
    rows = [list(row) for row in schedule.ops]
    for row in rows:
        for _ in range(chance.randrange(3)):
            a, b = chance.randrange(len(row)), chance.randrange(len(row))
            row[a], row[b] = row[b], row[a]
    shuffled = Schedule(placement, schedule.sizes, tuple(tuple(row) for row in rows))
    problem = problem_for(placement, schedule.sizes)
    found = check(problem, shuffled)
    if not found:
        lower(problem, shuffled)
        return
    with pytest.raises(NoAnswerError) as caught:
        lower(problem, shuffled)
    assert str(caught.value) == found[0].message


def test_a_circle_of_waiting_ranks_is_named() -> None:
    """Such a pair never finished: pytorch/pytorch#172668."""
    placement = place("linear", 2)
    schedule = Schedule.parse(placement, (1, 1), [["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B0", "1B1"]])
    text = (
        r"^deadlock: rank 0, position 1: 0B0 waits for 1B0 \(rank 1, position 2\); "
        r"rank 1, position 1: 1F1 waits for 0F1 \(rank 0, position 2\)$"
    )
    with pytest.raises(NoAnswerError, match=text):
        lower(problem_for(placement, (1, 1)), schedule)


def test_the_pair_that_hung_elsewhere_ends_here() -> None:
    """These orders hung when each rank sent before it received, and sends waited: pytorch/pytorch#172668."""
    placement = place("loop", 2, 2)
    rows = [
        ["0F0", "0F1", "2F0", "2F1", "0F2", "2B0", "2F2", "0B0", "2B1", "0B1", "2B2", "0B2"],
        ["1F0", "1F1", "3F0", "3B0", "3F1", "3B1", "1F2", "1B0", "3F2", "3B2", "1B1", "1B2"],
    ]
    program = lower(problem_for(placement, (1, 1, 1)), Schedule.parse(placement, (1, 1, 1), rows))
    assert len(program.routes) == 6


def test_an_op_on_a_wrong_rank() -> None:
    """A V schedule with the looped placement: pytorch/torchtitan#774."""
    placement = place("v", 2, 2)
    rows = [["0F0", "2F0", "2B0", "0B0"], ["1F0", "3F0", "3B0", "1B0"]]
    with pytest.raises(NoAnswerError, match="rank 0, position 1: 2F0 belongs to rank 1"):
        lower(problem_for(placement, (1,)), Schedule.parse(placement, (1,), rows))


def test_a_schedule_for_another_placement() -> None:
    schedule = schedule_for(place("loop", 2, 2), (1,), "1f1b")
    with pytest.raises(InputError, match=r"stage 2 .* is on rank 0 in the schedule and on rank 1 in the problem"):
        lower(problem_for(place("v", 2, 2), (1,)), schedule)


def test_parts_of_a_weight_gradient_come_as_they_are() -> None:
    placement = place("linear", 1)
    problem = problem_for(placement, (1, 2), units=3)
    rows = ["0F0", "0I0", "0W0[1:3]", "0F1", "0W0[0:1]", "0I1", "0W1"]
    program = lower(problem, Schedule.parse(placement, (1, 2), [rows]))
    assert program.texts() == (tuple(rows),)
    assert program.unit_ticks == (((2, 2, 2), (3, 3, 3)),)
    other = ["0W0[0:2]" if text == "0W0[0:1]" else "0W0[2:3]" if text == "0W0[1:3]" else text for text in rows]
    assert lower(problem, Schedule.parse(placement, (1, 2), [other])).fingerprint != program.fingerprint


def test_a_unit_that_no_range_covers_is_missing() -> None:
    placement = place("linear", 1)
    schedule = Schedule.parse(placement, (1,), [["0F0", "0I0", "0W0[0:1]", "0W0[2:3]"]])
    with pytest.raises(NoAnswerError, match="rank 0: unit 1 of 0W0 is missing"):
        lower(problem_for(placement, (1,), units=3), schedule)


def test_a_range_of_all_units_is_the_whole() -> None:
    placement = place("linear", 1)
    schedule = Schedule.parse(placement, (1,), [["0F0", "0I0", "0W0[0:3]"]])
    program = lower(problem_for(placement, (1,), units=3), schedule)
    assert program.texts() == (("0F0", "0I0", "0W0[0:3]"),)
    assert program.split == {(0, 0)}


def test_the_order_of_each_route_is_its_senders() -> None:
    placement = place("linear", 2)
    rows = [["0F1", "0F0", "0B0", "0B1"], ["1F1", "1F0", "1B0", "1B1"]]
    program = lower(problem_for(placement, (1, 1)), Schedule.parse(placement, (1, 1), rows))
    assert {str(route): order for route, order in program.orders.items()} == {
        "B 1->0 (rank 1 to rank 0)": (0, 1),
        "F 0->1 (rank 0 to rank 1)": (1, 0),
    }


def test_programs_that_differ_have_different_fingerprints() -> None:
    placement, marks = place("linear", 2), set()
    for sizes in ((1, 2), (2, 1)):
        for policy in ("gpipe", "zb"):
            marks.add(lowered(placement, sizes, policy)[1].fingerprint)
    assert len(marks) == 4
    assert lowered(placement, (1, 2), "zb")[1].fingerprint in marks


@given(placements(), st.integers(1, 4))
def test_an_evaluation_runs_every_forward_and_nothing_else(placement: Placement, count: int) -> None:
    program = forward_only(placement, (1,) * count)
    ops = Counter(i.op for i in program.instructions() if isinstance(i, Run))
    assert {(op.stage, op.microbatch) for op in ops} == {
        (s, j) for s in range(placement.stage_count) for j in range(count)
    }
    assert set(ops.values()) == {1}
    assert {op.kind for op in ops} == {Kind.F}
    assert not program.split


def test_a_long_evaluation_leaves_a_window_of_messages_on_their_way() -> None:
    """All outputs of the first rank waited for the second: the longer the evaluation, the more memory it took."""
    program = forward_only(place("linear", 3), (1,) * 20)
    assert program.windows == dict.fromkeys(program.routes, WINDOW)


def test_both_directions_have_routes_of_their_own() -> None:
    placement = place("bidirectional", 2)
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2, "placement": "bidirectional"},
            "batch": {"samples": 2},
            "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
        }
    )
    rows = [["0F0", "1F1", "1B1", "0B0"], ["0F1", "1F0", "1B0", "0B1"]]
    program = lower(problem, Schedule.parse(placement, (1, 1), rows))
    routes = {(r.kind, r.direction, r.source) for r in program.routes}
    assert routes == {("F", 0, 0), ("F", 1, 1), ("B", 0, 1), ("B", 1, 0)}


def limited(problem: Problem) -> Problem:
    return replace(problem, memory=replace(problem.memory, limit=(10**9,) * problem.ranks))


def test_sends_have_windows_where_memory_is_limited() -> None:
    problem = problem_for(place("linear", 3), (1,) * 6)
    schedule = schedule_for(problem.placement, (1,) * 6, "1f1b")
    assert lower(problem, schedule).windows == {}
    program = lower(limited(problem), schedule)
    assert program.windows == dict.fromkeys(program.routes, WINDOW)
    only_first = replace(problem, memory=replace(problem.memory, limit=(10**9, None, None)))
    assert {route.source for route in lower(only_first, schedule).windows} == {0}


def test_windows_grow_where_ranks_would_wait_for_each_other() -> None:
    """All forwards of a stage before the next stage's fill every window of a loop: each rank would wait in a send."""
    placement, sizes = place("loop", 2, 2), (1,) * 12
    windows = lower(limited(problem_for(placement, sizes)), stage_by_stage(placement, 12)).windows
    assert WINDOW < max(windows.values()) < 12
    assert min(windows.values()) >= WINDOW
