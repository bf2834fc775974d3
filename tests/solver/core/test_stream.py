"""What batches become that follow each other without a flush: order, versions of weights, staleness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Kind, Op, Problem, Schedule, check, place
from adaptpipe.solver.core.stream import staleness, stream, weight_copies
from adaptpipe.solver.core.updates import Updates
from adaptpipe.solver.heuristics import gpipe, one_f_one_b, one_f_one_b_split
from tests.solver.heuristics.shapes import problem
from tests.strategies import problems, schedules_of

LINEAR = place("linear", 2)


def asynchronous(at: Problem, updates: Updates = "stash") -> Schedule:
    return replace(one_f_one_b(at), updates=updates)


def single(row: str, microbatches: int, updates: Updates = "stash") -> Schedule:
    return Schedule.parse(place("linear", 1), [1] * microbatches, [row.split()], updates=updates)


@pytest.mark.parametrize(("ranks", "microbatches"), [(p, m) for p in (1, 2, 3, 5) for m in (1, 2, 4, 7)])
def test_where_batches_are_at_least_as_deep_as_the_pipeline_1f1b_goes_on_as_one_longer_batch(
    ranks: int, microbatches: int
) -> None:
    at = problem(ranks, microbatches)
    found = stream(asynchronous(at), 3)
    if microbatches >= ranks:
        assert found == asynchronous(problem(ranks, 3 * microbatches))
    assert check(problem(ranks, 3 * microbatches), found) == ()


def test_the_next_batch_fills_the_drain_and_no_earlier_place() -> None:
    row = "0F0 0B0 0F1 0F2 0B1 0B2"
    assert stream(single(row, 3), 2).ops[0] == single("0F0 0B0 0F1 0F2 0B1 0F3 0B2 0B3 0F4 0F5 0B4 0B5", 6).ops[0]
    assert stream(single("0F0 0F1 0B0 0B1", 2), 2).ops[0] == single("0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3", 4).ops[0]


@given(st.data())
def test_a_stream_is_its_batches_merged(data: st.DataObject) -> None:
    """Each batch keeps its order, a rank's activations stay within those of one batch."""
    at = data.draw(problems(families=("linear",), limited=False))
    schedule = replace(data.draw(schedules_of(at)), updates="stash")
    count, batches = schedule.microbatches, data.draw(st.integers(1, 4))
    found = stream(schedule, batches)
    assert found.sizes == schedule.sizes * batches
    for row, merged in zip(schedule.ops, found.ops, strict=True):
        for batch in range(batches):
            own = [op for op in merged if op.microbatch // count == batch]
            assert tuple(replace(op, microbatch=op.microbatch - batch * count) for op in own) == row
        assert most_in_flight(merged) == most_in_flight(row)


def most_in_flight(row: Sequence[Op]) -> int:
    kinds = [op.kind for op in row]
    return max(
        kinds[:at].count(Kind.F) - kinds[:at].count(Kind.I) - kinds[:at].count(Kind.B) for at in range(len(kinds) + 1)
    )


def versions_in_words(schedule: Schedule) -> tuple[list[int], list[Fraction]]:
    """Copies and staleness of "stash", by a list of weights that is kept as the paper says."""
    copies, late = [], []
    for row in stream(schedule, 6).ops:
        newest, stash, updates, ages, most = 0, dict[int, int](), dict[int, int](), dict[int, int](), 1
        for at, op in enumerate(row):
            if op.kind is Kind.F:
                stash[op.microbatch] = newest
                ages[op.microbatch] = newest
            if op.is_backward:
                del stash[op.microbatch]
            rest = row[at + 1 :]
            ended = op.kind is Kind.B or (
                op.kind is Kind.W and not any(r.kind is Kind.W and r.microbatch == op.microbatch for r in rest)
            )
            if ended:
                updates[op.microbatch] = newest
                newest += 1
            most = max(most, len(set(stash.values()) | {newest}))
        count = schedule.microbatches
        middle = range(3 * count, 4 * count)
        copies.append(most)
        late.append(Fraction(sum(updates[j] - ages[j] for j in middle), count))
    return copies, late


@given(st.data())
def test_versions_of_any_order_are_those_that_a_list_of_weights_would_hold(data: st.DataObject) -> None:
    at = data.draw(problems(families=("linear",), limited=False))
    schedule = replace(data.draw(schedules_of(at)), updates="stash")
    copies, late = versions_in_words(schedule)
    assert list(weight_copies(schedule)) == copies
    assert list(staleness(schedule)) == late


@pytest.mark.parametrize(("ranks", "microbatches"), [(p, k * p) for p in range(1, 9) for k in (1, 2, 4)])
def test_1f1b_with_stashing_keeps_p_minus_s_versions_and_is_as_many_updates_late(ranks: int, microbatches: int) -> None:
    at = problem(ranks, microbatches)
    for build in (one_f_one_b, one_f_one_b_split):
        schedule = replace(build(at), updates="stash")
        assert weight_copies(schedule) == tuple(ranks - s for s in range(ranks))
        assert staleness(schedule) == tuple(ranks - 1 - s for s in range(ranks))


def test_the_other_ways_to_update() -> None:
    at = problem(4, 8)
    assert weight_copies(one_f_one_b(at)) == (1,) * 4
    assert staleness(one_f_one_b(at)) == (Fraction(0),) * 4
    assert weight_copies(asynchronous(at, "double")) == weight_copies(asynchronous(at, "newest")) == (2,) * 4
    assert staleness(asynchronous(at, "double")) == (Fraction(1),) * 4
    # The first p - 1 - s forwards of a batch come before the update of the batch before.
    assert staleness(asynchronous(at, "newest")) == tuple(Fraction(3 - s, 8) for s in range(4))


def test_forwards_that_share_a_version_share_its_copy() -> None:
    at = problem(1, 3)
    assert weight_copies(replace(gpipe(at), updates="stash")) == (3,)
    assert weight_copies(single("0F0 0F1 0B0 0B1", 2)) == (2,)
    assert weight_copies(single("0F0 0B0 0F1 0F2 0B1 0B2", 3)) == (2,)


def test_refusals() -> None:
    with pytest.raises(InputError, match="updates: 'step' flushes after every batch"):
        stream(one_f_one_b(problem(2, 2)), 2)
    with pytest.raises(InputError, match="batches: 0 is below 1"):
        stream(asynchronous(problem(2, 2)), 0)
    with pytest.raises(InputError, match="updates: 'weekly' is none of step, stash, double, newest"):
        Schedule.parse(LINEAR, [1], [[], []], updates="weekly")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(InputError, match=r"'double' needs one stage on every rank.*'v' with 4 stages on 2 ranks"):
        Schedule(place("v", 2, 2), (1,), ((), ()), updates="double")
    with pytest.raises(InputError, match="'stash' is for whole micro-batches, and these have 2 slices"):
        Schedule(LINEAR, (1, 1), ((), ()), slices=2, updates="stash")
    with pytest.raises(InputError, match=r"'stash' needs one stage on every rank.*'bidirectional'"):
        Schedule(place("bidirectional", 2), (1,), ((), ()), updates="stash")
