"""The steady state is exact: by formulas, and by simulation of many batches."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, NoAnswerError, Problem, Schedule, check, place, simulate
from adaptpipe.solver.core.stream import stream
from adaptpipe.solver.evaluate.steady import Steady, stale, steady
from adaptpipe.solver.heuristics import eager_one_f_one_b, one_f_one_b, one_f_one_b_split
from tests.solver.heuristics.shapes import problem
from tests.strategies import problems, schedules_of


def asynchronous(schedule: Schedule) -> Schedule:
    return replace(schedule, updates="stash")


@pytest.mark.parametrize("latency", [0, 1, 2, 7])
@pytest.mark.parametrize(("ranks", "microbatches"), [(p, m) for p in (1, 2, 3, 4, 6) for m in (1, 2, 3, 5, 12)])
def test_1f1b_is_bound_by_work_or_by_the_round_trip(ranks: int, microbatches: int, latency: int) -> None:
    """F + B = 15 on each stage; p micro-batches are in flight from the first stage to the last and back.

    Batches of fewer than p keep the first p - m + 1 stages at m in flight each, so that these take turns.
    """
    at = problem(ranks, microbatches, latency=latency)
    found = steady(at, asynchronous(one_f_one_b(at)))
    trip = ranks * 15 + 2 * (ranks - 1) * latency
    short = max(ranks - microbatches, 0)
    turns = (short + 1) * 15 + 2 * short * latency
    assert found.microbatch == max(Fraction(trip, min(ranks, microbatches)), Fraction(turns))
    assert found.bubble == pytest.approx(float(1 - 15 / found.microbatch))
    assert found.batch == microbatches * found.microbatch


def test_a_slow_stage_is_the_pace() -> None:
    data = {
        "pipeline": {"ranks": 3},
        "batch": {"samples": 6},
        "costs": {"forward": [1, 5, 1], "backward_input": [2, 6, 2], "backward_weight": [0, 4, 0]},
    }
    at = Problem.from_dict(data)
    found = steady(at, asynchronous(one_f_one_b(at)))
    assert found == Steady(Fraction(90), 6, 90)
    assert (found.microbatch.numerator, found.bubble) == (15, 0)


def test_more_in_flight_bring_more_until_the_work_is_all_there_is() -> None:
    """With messages, 1F1B waits; with about twice as many in flight there is no wait left."""
    at = problem(4, 8, latency=5)
    assert steady(at, asynchronous(one_f_one_b(at))).microbatch == Fraction(4 * 15 + 6 * 5, 4)
    assert steady(at, asynchronous(eager_one_f_one_b(at))).bubble == 0


def test_gradients_that_leave_before_w_make_the_round_trip_shorter() -> None:
    at = problem(2, 4, latency=4)
    # Stage 1 in flight: F + I + 4 there and back, then W and its own turn.
    whole, split = (steady(at, asynchronous(build(at))).microbatch for build in (one_f_one_b, one_f_one_b_split))
    assert (whole, split) == (Fraction(19), Fraction(17))


@settings(max_examples=40)
@given(st.data())
def test_it_is_what_many_batches_take(data: st.DataObject) -> None:
    """After its first batches a stream repeats itself, every one, two, … batches later by as much."""
    at = data.draw(problems(families=("linear", "explicit"), max_samples=4, limited=False))
    if at.stages > at.ranks:
        return
    schedule = asynchronous(data.draw(schedules_of(at)))
    try:
        found = steady(at, schedule)
    except NoAnswerError:
        with pytest.raises(NoAnswerError, match="deadlock"):
            simulate(replace(at, samples=5 * at.samples), stream(schedule, 5))
        return
    early, late = (
        simulate(replace(at, samples=count * at.samples), stream(schedule, count)).makespan for count in (20, 32)
    )
    assert late - early == 12 * found.batch


def test_in_words() -> None:
    memory: dict[str, object] = {"activation": 1, "static": 4, "weights": 2}
    at = problem(4, 8, latency=2, memory=memory)
    text = stale(simulate(at, asynchronous(one_f_one_b(at))))
    assert text.startswith("stale weights, 3 updates late at most (an update after each micro-batch, ")
    assert text.endswith("in the steady state a micro-batch takes 18 us, bubble 16.67%")
    assert stale(simulate(at, one_f_one_b(at))) == ""
    doubled = replace(one_f_one_b(at), updates="double")
    assert stale(simulate(at, doubled)).startswith("stale weights, 1 update late at most (one update a batch ")
    text = stale(simulate(at, replace(one_f_one_b(at), updates="newest")))
    assert text.startswith("stale weights, 0.375 updates late in the mean of the stalest stage (one update a batch ")
    at = problem(4, 8)
    assert stale(simulate(at, asynchronous(one_f_one_b(at)))).endswith("further copies of weights are not counted")


def test_refusals() -> None:
    at = problem(2, 3)
    with pytest.raises(InputError, match="updates: 'step' flushes after every batch"):
        steady(at, one_f_one_b(at))
    with pytest.raises(NoAnswerError, match="rank 0: 0B2, or 0I2 and 0W2, is missing"):
        steady(at, asynchronous(replace(one_f_one_b(at), ops=(one_f_one_b(at).ops[0][:-1], one_f_one_b(at).ops[1]))))
    # The last backward of stage 1 waits for the second batch, whose forward waits for the first backward of stage 0.
    rows = [["0F0", "0F1", "0F2", "0B2", "0B0", "0B1"], ["1F0", "1F1", "1B0", "1B1", "1F2", "1B2"]]
    schedule = Schedule.parse(place("linear", 2), [1] * 3, rows, updates="stash")
    assert simulate(at, schedule).makespan > 0
    with pytest.raises(NoAnswerError, match=r"without a flush the order of one batch cannot go on.*: deadlock: rank"):
        steady(at, schedule)
    (violation,) = check(at, schedule)
    assert violation.message.startswith("without a flush the order of one batch cannot go on into the next: deadlock: ")
    assert check(at, replace(schedule, updates="step")) == ()
