"""Adaptive execution: what it may never do, that simulator and executor decide alike, and what is gained."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Kind, NoAnswerError, Op, Problem, Schedule, check, simulate
from adaptpipe.solver.core.precedence import predecessors
from adaptpipe.solver.evaluate.dag import op_graph
from adaptpipe.solver.evaluate.kernel import earliest
from adaptpipe.solver.evaluate.noise import Noise
from adaptpipe.solver.evaluate.scenario import Planned, Scenario
from adaptpipe.solver.floating import ORDERS, Floater, FloatingPlan, Order, Runs, disturbed, simulate_adaptive
from adaptpipe.solver.heuristics.one_f_one_b import one_f_one_b_split
from adaptpipe.solver.heuristics.zero_bubble import zb_h1, zb_h2, zb_v
from tests.strategies import problems, schedules_of

NOISES = st.builds(
    Noise,
    sigma=st.sampled_from([0.0, 0.5]),
    link=st.sampled_from([0.0, 2.0]),
    imbalance=st.sampled_from([0.0, 0.5]),
    pause=st.sampled_from([0.0, 8.0]),
    slow_rank=st.none() | st.just((0, 2.5)),
    seed=st.integers(0, 99),
)


def eager(problem: Problem, schedule: Schedule) -> Schedule:
    """The schedule with every W whole and right after its I: no order holds less at any F, I or B."""
    fixed = (tuple(op for op in row if op.kind is not Kind.W) for row in schedule.ops)
    rows = (
        tuple(
            part for op in row for part in ((op, Op(op.stage, Kind.W, op.microbatch)) if op.kind is Kind.I else (op,))
        )
        for row in fixed
    )
    return Schedule(schedule.placement, schedule.sizes, tuple(rows))


@given(st.data(), NOISES, st.sampled_from(ORDERS))
def test_the_limit_is_never_passed_and_nothing_else_changes(data: st.DataObject, noise: Noise, order: Order) -> None:
    """Random schedules, limits, noise and orders of units.

    The published policy passes its limit without a word where no W is left to run; such a schedule is refused here.
    """
    free = data.draw(problems(limited=False))
    schedule = data.draw(schedules_of(free))
    scenario = noise.scenario(free.instance(schedule.sizes), 0, parts=1)
    least = simulate(free, eager(free, schedule)).peak_memory
    room = data.draw(st.integers(0, 6))
    problem = replace(free, memory=replace(free.memory, limit=tuple(peak + room for peak in least)))
    timeline = simulate_adaptive(problem, schedule, scenario, order=order)
    assert check(problem, timeline.schedule) == ()
    for given_row, row in zip(schedule.ops, timeline.schedule.ops, strict=True):
        assert [op for op in row if op.kind is not Kind.W] == [op for op in given_row if op.kind is not Kind.W]


@given(st.data(), NOISES)
def test_without_a_limit_a_rank_holds_one_activation_more_than_the_fullest_does_by_plan(
    data: st.DataObject, noise: Noise
) -> None:
    """Weight gradients piled up to 2.7 times what was planned."""
    problem = data.draw(problems(limited=False))
    schedule = data.draw(schedules_of(problem))
    scenario = noise.scenario(problem.instance(schedule.sizes), 0, parts=1)
    found = simulate_adaptive(problem, schedule, scenario).peak_memory
    static = [problem.static_bytes(rank) for rank in range(problem.ranks)]
    planned = max(a - b for a, b in zip(simulate(problem, schedule).peak_memory, static, strict=True))
    activation = int(problem.instance(schedule.sizes).activation.max())
    assert all(a - b <= planned + activation for a, b in zip(found, static, strict=True))


@given(st.data())
def test_what_does_not_fit_with_every_earlier_unit_done_is_refused(data: st.DataObject) -> None:
    free = data.draw(problems(limited=False))
    schedule = data.draw(schedules_of(free))
    least = simulate(free, eager(free, schedule)).peak_memory
    rank = data.draw(st.integers(0, free.ranks - 1))
    limit = tuple(peak - (number == rank) for number, peak in enumerate(least))
    with pytest.raises(NoAnswerError, match=f"rank {rank}: .* above the limit of"):
        FloatingPlan.of(replace(free, memory=replace(free.memory, limit=limit)), schedule)


@given(st.data(), NOISES)
def test_the_order_that_came_out_takes_as_long_when_it_is_fixed(data: st.DataObject, noise: Noise) -> None:
    noise = replace(noise, sigma=0, imbalance=0, slow_rank=None)  # so that ranges of units are rounded as their parts
    problem = data.draw(problems(limited=False))
    schedule = data.draw(schedules_of(problem))
    instance = problem.instance(schedule.sizes)
    scenario = noise.scenario(instance, 0, parts=1)
    timeline = simulate_adaptive(problem, schedule, scenario)
    planned = Planned.of(instance, timeline.schedule)
    ticks, lags = scenario.times(planned)
    start, done = np.zeros_like(ticks), np.zeros(problem.ranks, dtype=np.int64)
    earliest(timeline.schedule.table.offsets, ticks, planned.before, lags, start, done)
    assert timeline.start.tolist() == start.tolist()
    assert timeline.end.tolist() == (start + ticks).tolist()


def by_hand(problem: Problem, plan: FloatingPlan, scenario: Scenario) -> list[list[tuple[Op, int]]]:
    """Adaptive execution as an executor does it: one `Floater` a rank, asked when its rank is free."""
    schedule, last = plan.schedule, problem.stages
    skeleton = Schedule(schedule.placement, schedule.sizes, plan.fixed)
    flat = [op for row in plan.fixed for op in row]
    ticks, lags = (
        dict(zip(flat, each.tolist(), strict=True)) for each in (scenario.ticks(skeleton), scenario.lags(skeleton))
    )
    units = Schedule(schedule.placement, schedule.sizes, plan.units)
    ticks |= dict(zip((op for row in plan.units for op in row), scenario.ticks(units).tolist(), strict=True))
    ended: dict[tuple[int, int, int], int] = {}
    floaters = [Floater(plan, rank) for rank in range(problem.ranks)]
    free, ran = [0] * problem.ranks, [list[tuple[Op, int]]() for _ in floaters]

    def arrival(op: Op | None) -> float:
        if op is None:
            return 0
        needs = [(row, stage, op.microbatch) for row, stage in predecessors(op, last)]
        return max((ended.get(need, np.inf) + lag for need, lag in zip(needs, lags[op], strict=False)), default=0)

    while not all(floater.done for floater in floaters):
        when = [np.inf if floater.done else at for floater, at in zip(floaters, free, strict=True)]
        # A rank that has to wait, and cannot know how long, lets the others go first.
        for rank in sorted(range(problem.ranks), key=lambda r: (when[r], r)):
            floater, there = floaters[rank], arrival(floaters[rank].awaited)
            op = floater.next(free[rank], there <= free[rank])
            if op is None and there < np.inf:
                free[rank] = int(there)
                break
            if op is not None:
                floater.finished(op)
                ran[rank].append((op, free[rank]))
                free[rank] += ticks[op]
                if op.kind is not Kind.W:
                    ended[0 if op.kind is Kind.F else 1, op.stage, op.microbatch] = free[rank]
                break
    return ran


@pytest.mark.parametrize("placement", ["linear", "v"])
@pytest.mark.parametrize("number", range(4))
def test_an_executor_that_asks_step_by_step_does_what_the_simulator_does(placement: str, number: int) -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 3, "placement": placement},
            "batch": {"samples": 6},
            "costs": {"forward": 900, "backward_input": 1000, "weight_units": [300, 500, 200]},
            "memory": {"activation": 30, "retained": 20, "limit": 150 if placement == "linear" else 240},
            "links": {"latency": 70},
        }
    )
    schedule = zb_v(problem) if placement == "v" else zb_h1(problem)
    plan = FloatingPlan.of(problem, schedule, parts=1)
    scenario = Noise(sigma=0.5, link=0.5).scenario(problem.instance(schedule.sizes), number, parts=1)
    expected = [dict(row) for row in by_hand(problem, plan, scenario)]
    timeline = Runs(plan).timeline(scenario)
    for rank in range(3):
        for op, start, _ in timeline.of(rank):
            if op.kind is Kind.W:
                first = (op.units or (0, 3))[0]
                op = replace(op, units=(first, first + 1))
            assert expected[rank][op] == start


@given(st.data())
def test_latest_starts_are_those_of_the_longest_paths(data: st.DataObject) -> None:
    problem = data.draw(problems(limited=False))
    schedule = data.draw(schedules_of(problem))
    graph = op_graph(problem, schedule)
    way: dict[Op, int] = {}
    for op in reversed(list(nx.topological_sort(graph))):
        after = (edge["lag"] + way[other] for _, other, edge in graph.out_edges(op, data=True))
        way[op] = graph.nodes[op]["ticks"] + max(after, default=0)
    makespan = simulate(problem, schedule).makespan
    plan = FloatingPlan.of(problem, schedule, parts=1)
    assert plan.pieces.latest.tolist() == [makespan - way[op] for row in plan.fixed for op in row]


def line(
    limit: int | None = None, *, units: int = 4, ranks: int = 4, microbatches: int = 8, latency: int = 600
) -> Problem:
    """Equal stages of 10 ms ops, messages of 0.6 ms, an activation 200 B of which W holds half."""
    return Problem.from_dict(
        {
            "unit": "us",
            "pipeline": {"ranks": ranks},
            "batch": {"samples": microbatches},
            "costs": {"forward": 10_000, "backward_input": 10_000, "weight_units": [10_000 // units] * units},
            "links": {"latency": latency},
            "memory": {"activation": 200, "retained": 100} | ({} if limit is None else {"limit": limit}),
        }
    )


@pytest.mark.parametrize(
    ("order", "units"),
    [
        ("planned", "0W0[1:2] 0W0[0:1] 0W1[0:1] 0W1[1:2]"),
        ("oldest", "0W0[0:1] 0W0[1:2] 0W1[0:1] 0W1[1:2]"),
        ("newest", "0W1[0:1] 0W1[1:2] 0W0[0:1] 0W0[1:2]"),
    ],
)
def test_orders_of_units(order: Order, units: str) -> None:
    problem = line(units=2, ranks=1, microbatches=2)
    row = ["0F0", "0F1", "0I0", "0I1", "0W0[1:2]", "0W0[0:1]", "0W1"]
    schedule = Schedule.parse(problem.placement, (1, 1), [row])
    plan = FloatingPlan.of(problem, schedule, order=order)
    floater, ran = Floater(plan, 0), []
    while not floater.done:
        op = floater.next(0, arrived=True)
        assert op is not None
        floater.finished(op)
        ran.append(str(op))
    assert " ".join(ran) == f"0F0 0F1 0I0 0I1 {units}"


def test_a_unit_is_pulled_forward_only_as_far_as_the_slack_of_the_plan() -> None:
    """Rank 0 of 1F1B waits for 0I1 from 50 to 60 in plan; what it may run meanwhile depends on the clock alone."""
    problem = line(ranks=2, microbatches=2, latency=0)
    row = [["0F0", "0F1", "0I0", "0I1", "0W0", "0W1"], ["1F0", "1I0", "1W0", "1F1", "1I1", "1W1"]]
    plan = FloatingPlan.of(problem, Schedule.parse(problem.placement, (1, 1), row))
    latest = dict(zip(map(str, plan.fixed[0]), plan.pieces.latest.tolist(), strict=False))

    def offered(now: int, late: int = 0) -> Op | None:
        floater = Floater(plan, 0)
        for op, at in (("0F0", 0), ("0F1", 10_000), ("0I0", latest["0I0"] + late)):
            assert str(floater.next(at, arrived=True)) == op
            floater.finished(plan.fixed[0][0])
        return floater.next(now, arrived=False)

    assert str(offered(latest["0I1"] - 2500)) == "0W0[0:1]"
    assert offered(latest["0I1"] - 2499) is None
    assert str(offered(latest["0I1"] - 2499, late=1)) == "0W0[0:1]"


def test_a_schedule_that_could_be_forced_past_its_limit_is_refused() -> None:
    """The published policy overruns silently: ZB-H2 in the memory of 1F1B reaches 15 activations of 8 on 8 ranks."""
    problem = line(limit=8 * 200, ranks=8, microbatches=16)
    message = (
        r"rank 0: 0F8 brings the memory to 1,800 B, above the limit of 1,600 B, even with every earlier weight "
        r"gradient done; raise memory.limit, or take a schedule that starts fewer micro-batches ahead"
    )
    with pytest.raises(NoAnswerError, match=message):
        FloatingPlan.of(problem, zb_h2(problem))
    static = replace(problem, memory=replace(problem.memory, static=(9000, *[0] * 7)))
    with pytest.raises(NoAnswerError, match=r"rank 0: static memory 9,000 B is above the limit of 1,600 B"):
        FloatingPlan.of(static, zb_h1(static))


def test_where_each_weight_gradient_is_an_update_none_may_move() -> None:
    with pytest.raises(InputError, match="where updates are 'stash' each moves an update of the weights"):
        FloatingPlan.of(line(), replace(zb_h1(line()), updates="stash"))


def test_versions_of_weights_count_in_adaptive_execution() -> None:
    problem = replace(line(), memory=replace(line().memory, static=(7,) * line().stages, weights=(3,) * line().stages))
    schedule = replace(zb_h1(problem), updates="double")
    expected = np.array(simulate_adaptive(problem, replace(schedule, updates="step")).peak_memory) + 3
    assert simulate_adaptive(problem, schedule).peak_memory == tuple(expected)


def test_an_order_that_is_none() -> None:
    with pytest.raises(InputError, match="order: 'best' is none of planned, oldest, newest"):
        FloatingPlan.of(line(), zb_h1(line()), order="best")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("noise", ["none", "sigma=0.1", "sigma=0.3", "link=0.5", "slow_link=2>3:8000", "pause=5000"])
@pytest.mark.parametrize("units", [1, 4])
def test_adaptive_is_never_much_worse_than_static_and_better_where_memory_has_room(noise: str, units: int) -> None:
    """A policy that knows no slack loses up to 4.3 % against a good plan, with whole W's at nominal times."""
    tight = line(limit=4 * 200, units=units)
    roomy = line(limit=5 * 200, units=units)
    for problem, schedule, most in (
        (tight, zb_h1(tight), 1.005),
        (roomy, one_f_one_b_split(roomy), 0.95 if units > 1 else 1.005),
    ):
        found = disturbed(problem, schedule, Noise.parse(noise), count=20)
        assert found.adaptive is not None
        assert found.adaptive.mean <= most * found.static.mean
