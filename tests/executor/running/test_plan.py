"""What is agreed on before the first message, and the noise that a run meets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.executor.channels.ledger import Ledger
from adaptpipe.executor.errors import MemoryLimitError
from adaptpipe.executor.launching.launcher import launch
from adaptpipe.executor.running.disturbance import Disturbance
from adaptpipe.executor.running.memory import Account
from adaptpipe.executor.running.plan import Plan
from adaptpipe.executor.running.prices import Prices
from adaptpipe.solver import InputError, Kind, Noise, Op, Problem, place
from adaptpipe.solver.core.slices import Slices
from adaptpipe.solver.evaluate.simulate import op_bytes, op_ticks
from adaptpipe.solver.heuristics import one_f_one_b_split

from ...strategies import problems, schedules_of
from ..orders import problem_for, schedule_for
from .memory_jobs import Limited, real

PROBLEM = Problem.from_dict(
    {
        "pipeline": {"ranks": 2},
        "batch": {"samples": 3},
        "costs": {"forward": 3, "backward_input": 4, "weight_units": [1, 2], "overhead": 1},
        "memory": {"activation": 10, "retained": 6, "static": 7, "reserve": 5, "limit": 60},
        "links": {"latency": 2},
    }
)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"execution": "dynamic"}, "execution = 'dynamic': is none of adaptive, static"),
        ({"memory": "ignore"}, "memory = 'ignore': is none of enforce, report"),
        ({"unit_ticks": -1.0}, "-1 ticks are not above 0"),
    ],
)
def test_arguments_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"execution": "adaptive", **changes}
    with pytest.raises(InputError, match=message):
        Plan.of(PROBLEM, one_f_one_b_split(PROBLEM), **arguments)


def test_what_is_only_reported_is_no_limit() -> None:
    schedule = one_f_one_b_split(PROBLEM)
    assert Plan.of(PROBLEM, schedule, "adaptive", "report").program.windows == {}
    assert Plan.of(PROBLEM, schedule, "adaptive", "enforce").program.windows
    tight = replace(PROBLEM, memory=replace(PROBLEM.memory, limit=(1, 1)))
    assert Plan.of(tight, schedule, "static", "report").floating is None


def test_units_are_cut_to_the_time_that_is_asked_for() -> None:
    plan = Plan.of(PROBLEM, one_f_one_b_split(PROBLEM), "adaptive", unit_ticks=0.6)

    assert len(plan.problem.weight_units[0]) == 6
    assert plan.program.unit_ticks[0][0] == plan.problem.weight_units[0]


@given(st.data())
def test_prices_are_the_simulators(data: st.DataObject) -> None:
    problem = data.draw(problems())
    schedule = data.draw(schedules_of(problem))
    instance = problem.instance(schedule.sizes)
    prices, ops = Prices(instance), [op for row in schedule.ops for op in row]
    assert [prices.ticks(op) for op in ops] == op_ticks(instance, schedule).tolist()
    take, _, free = op_bytes(instance, schedule)
    assert [prices.kept(op) for op in ops] == (take - free).tolist()


def test_steps_meet_the_scenarios_that_the_simulator_draws() -> None:
    schedule = one_f_one_b_split(PROBLEM)
    instance, program = PROBLEM.instance(schedule.sizes), Plan.of(PROBLEM, schedule, "static").program
    noise = Noise.parse("sigma=0.5,link=1,pause=3", seed=4)
    disturbance = Disturbance(noise, instance, 0.5)
    for step in range(3):
        disturbance.begin(step)
        scenario = noise.scenario(instance, step)
        for row in schedule.ops:
            for op in row:
                planned = Prices(instance).ticks(op)
                taken = (planned * scenario.factor_of(op) + scenario.pause_of(op)) * 0.5
                assert disturbance.seconds(op) == pytest.approx(taken)
                assert disturbance.added_s(op) == pytest.approx(max(0.0, taken - planned * 0.5))
        late = [disturbance.late_s(program, rank) for rank in range(2)]
        assert {route.target for route in late[0]} == {0}
        assert {str(route)[0] for each in late for route in each} == {"F", "B"}
        for each in late:
            for route, delays in each.items():
                for j, seconds in delays.items():
                    kind = Kind.F if route.kind == "F" else Kind.I
                    assert seconds == scenario.delay_of(Op(route.receiver, kind, j)) * 0.5 > 0
    silent = Disturbance(Noise.parse("none"), instance, 0.5)
    silent.begin(0)
    assert silent.silent
    assert silent.late_s(program, 0) == {}
    assert silent.seconds(Op(0, Kind.F, 0)) == 1.5


@pytest.mark.timeout(60)
def test_noise_makes_real_ops_longer_and_nothing_else() -> None:
    """The published code disturbs its runs by sleeps of 0 to 5 ms after every F and backward."""
    problem = replace(problem_for(place("linear", 2), (1,) * 3), unit="ms")
    schedule = schedule_for(problem.placement, (1,) * 3, "zb")
    noise = Noise.parse("pause=8,slow_rank=1:3")
    cases = [Limited(problem, schedule, "static", each) for each in (None, noise)]
    scenario = noise.scenario(problem.instance(schedule.sizes), 0)
    for rank, ((quiet, loss), (disturbed, same)) in enumerate(launch(real, 2, cases, threads=1)):
        assert same == loss
        assert [a.op for a in quiet.records] == [b.op for b in disturbed.records]
        for record in disturbed.records:
            added = scenario.pause_of(record.op) + 2 * (2 if record.op.kind is not Kind.B else 4) * (rank == 1)
            assert record.end_s - record.start_s >= added * 1e-3


@dataclass
class Holding:
    """A stage that holds so many bytes."""

    held_bytes: int = 0


def account(problem: Problem = PROBLEM) -> tuple[Account, Holding, Ledger]:
    holding, messages = Holding(), Ledger()
    return Account(problem, (1, 1, 1), 0, {0: holding}, messages, "enforce"), holding, messages  # type: ignore[dict-item]


def test_messages_count_beyond_their_reserve() -> None:
    """Static 7, reserve 5, limit 60: ops may hold 48, and less by what messages hold beyond 5."""
    book, holding, messages = account()
    forward = Op(0, Kind.F, 0)
    holding.held_bytes = 10
    book.ran(forward, 0, ())
    holding.held_bytes = 38
    book.require(forward, ())
    messages.add(5)
    book.require(forward, ())
    messages.add(1)
    with pytest.raises(
        MemoryLimitError, match=r"with 0F0 rank 0 would hold 61 B, above memory.limit = 60 B: 7 B static"
    ):
        book.require(forward, ())
    without = replace(PROBLEM, memory=replace(PROBLEM.memory, reserve=(0, 0)))
    book, holding, messages = account(without)
    holding.held_bytes = 10
    book.ran(forward, 0, ())
    holding.held_bytes = 43
    messages.add(10**6)
    book.require(forward, ())
    holding.held_bytes = 44
    with pytest.raises(MemoryLimitError, match="would hold 61 B"):
        book.require(forward, ())


def test_what_an_op_was_seen_to_take_is_expected_of_the_next() -> None:
    book, holding, _ = account()
    short, long = ((1, 4),), ((1, 9),)
    holding.held_bytes = 14
    book.ran(Op(0, Kind.F, 0), 0, short)
    assert book.peak_bytes == 14
    assert book.held(None) == 7 + 5 + 14
    assert book.held(Op(0, Kind.F, 1)) == 7 + 5 + 14 + 4
    holding.held_bytes = 35
    book.require(Op(0, Kind.F, 1), long)  # nobody knows
    with pytest.raises(MemoryLimitError, match="with 0F1 rank 0 would hold 61 B"):
        book.require(Op(0, Kind.F, 1), short)
    holding.held_bytes = 49
    with pytest.raises(MemoryLimitError, match="with 0F1 rank 0 holds 61 B"):
        book.ran(Op(0, Kind.F, 1), 35, long)
    holding.held_bytes = 48
    book.updated(Op(0, Kind.B, 0))
    assert book.peak_bytes == 49
    holding.held_bytes = 50
    with pytest.raises(MemoryLimitError, match="with 0B0 rank 0 holds after the update 62 B"):
        book.updated(Op(0, Kind.B, 0))
    assert book.peak_bytes == 50
    book.begin()
    assert book.peak_bytes == 0
    assert book.limited


def test_slices_of_one_place_are_alike_to_the_account() -> None:
    """Later ones hold more than planned, for they keep what earlier ones have handed on; and the first ones do not."""
    problem = replace(PROBLEM, samples=2, slices=Slices(tokens=(3, 1), work=(1, 1)))
    holding = Holding()
    book = Account(problem, (1,) * 4, 0, {0: holding}, Ledger(), "enforce")  # type: ignore[dict-item]
    planned = [int(problem.instance((1,) * 4).activation[0, j]) for j in range(2)]
    assert planned[0] > planned[1] > 0
    before = 0
    for j, taken in enumerate((planned[0], planned[1] + 5)):
        holding.held_bytes = before + taken
        book.ran(Op(0, Kind.F, j), before, ((1, 1),))
        before = holding.held_bytes
    extra = [book.held(Op(0, Kind.F, j)) - book.held(None) for j in (2, 3)]
    assert extra == [0, 5]
