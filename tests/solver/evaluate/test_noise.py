"""The model of noise: what it draws, and that it belongs to ops and messages, not to orders."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import InputError, Kind, NoAnswerError, Op, Problem, Schedule, simulate
from adaptpipe.solver.core.instance import Instance
from adaptpipe.solver.core.precedence import op_nodes
from adaptpipe.solver.evaluate.noise import EVALUATION, TRAINING, Noise
from adaptpipe.solver.evaluate.noisy import Noisy, noisy, run_value
from adaptpipe.solver.evaluate.scenario import Planned, Scenario, fine_parts
from adaptpipe.solver.evaluate.simulate import op_ticks
from adaptpipe.solver.heuristics.one_f_one_b import one_f_one_b, one_f_one_b_split
from tests.solver.heuristics.shapes import problem as shape
from tests.strategies import problems, schedules_of


def times_by_op(schedule: Schedule, scenario: Scenario) -> dict[Op, tuple[int, ...]]:
    flat = [op for row in schedule.ops for op in row]
    ticks, lags = scenario.ticks(schedule).tolist(), scenario.lags(schedule).tolist()
    return {op: (time, *lag) for op, time, lag in zip(flat, ticks, lags, strict=True)}


@given(st.data())
def test_noise_belongs_to_ops_not_to_their_places(data: st.DataObject) -> None:
    problem = data.draw(problems(limited=False))
    schedule = data.draw(schedules_of(problem))
    shuffled = tuple(tuple(data.draw(st.permutations(row))) for row in schedule.ops)
    other = Schedule(schedule.placement, schedule.sizes, shuffled)
    scenario = Noise(sigma=0.5, link=1).scenario(problem.instance(schedule.sizes), 3)
    assert times_by_op(schedule, scenario) == times_by_op(other, scenario)


@given(st.data())
def test_without_noise_every_run_is_the_plan(data: st.DataObject) -> None:
    problem = data.draw(problems(limited=False))
    schedule = data.draw(schedules_of(problem))
    timeline = simulate(problem, schedule)
    silent = Noise(sigma=0, link=0)
    assert silent.silent
    assert noisy(problem, schedule, silent, count=2).values == (timeline.makespan,) * 2
    assert noisy(problem, schedule, silent, "span", count=2).values == (timeline.span,) * 2


@given(st.data())
def test_zero_times_stay_zero(data: st.DataObject) -> None:
    problem = data.draw(problems(limited=False))
    schedule = data.draw(schedules_of(problem))
    instance = problem.instance(schedule.sizes)
    ticks = Noise(sigma=1).scenario(instance, 0).ticks(schedule)
    planned = op_ticks(instance, schedule)
    assert not ticks[planned == 0].any()
    assert (ticks >= 0).all()


def test_factors_are_lognormal_of_mean_one() -> None:
    instance = shape(4, 500).instance((1,) * 500)
    factor = Noise(sigma=0.3).scenario(instance, 0).factor
    count = factor.size
    assert factor.mean() == pytest.approx(1, abs=5 * 0.31 / math.sqrt(count))
    assert np.log(factor).std() == pytest.approx(0.3, abs=5 * 0.3 / math.sqrt(2 * count))
    assert np.log(factor).mean() == pytest.approx(-(0.3**2) / 2, abs=5 * 0.3 / math.sqrt(count))


def test_delays_are_exponential_and_between_ranks_only() -> None:
    problem = shape(4, 500, "v", costs=(100, 100, 50))
    instance = problem.instance((1,) * 500)
    delay = Noise(link=0.2).scenario(instance, 0).delay
    there = instance.before >= 0
    rank = np.tile(instance.rank.reshape(-1), 3)
    crossing = there & (rank[instance.before] != rank[:, None])
    assert not delay[~crossing].any()
    late = delay[crossing]
    assert (late > 0).all()
    # 7 boundaries between 8 stages, one of them inside a rank; forward and back.
    assert late.size == 2 * 6 * 500
    assert late.mean() == pytest.approx(20, abs=5 * 20 / math.sqrt(late.size))
    assert late.std() == pytest.approx(20, rel=0.1)


def test_scenarios_are_fixed_by_seed_stream_and_number() -> None:
    instance = shape(2, 3).instance((1,) * 3)

    def draw(seed: int, number: int, stream: int = EVALUATION) -> tuple[float, ...]:
        return tuple(Noise(seed=seed).scenario(instance, number, stream).factor.reshape(-1).tolist())

    assert draw(0, 0) == draw(0, 0)
    assert len({draw(0, 0), draw(0, 1), draw(1, 0), draw(0, 0, TRAINING)}) == 4
    stream = islice(Noise(seed=1).scenarios(instance, TRAINING), 3)
    in_turn = [tuple(each.factor.reshape(-1).tolist()) for each in stream]
    assert in_turn == [draw(1, number, TRAINING) for number in range(3)]


def test_scenarios_of_a_comparison_do_not_depend_on_their_number() -> None:
    problem = shape(3, 6, costs=(60, 50, 40))
    schedule = one_f_one_b(problem)
    assert noisy(problem, schedule, Noise(), count=9).values[:4] == noisy(problem, schedule, Noise(), count=4).values


def test_ranges_of_one_weight_gradient_share_its_noise() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 1},
            "batch": {"samples": 1},
            "costs": {"forward": 1000, "backward_input": 1000, "weight_units": [3000, 1000]},
        }
    )
    whole = Schedule.parse(problem.placement, (1,), [["0F0", "0I0", "0W0"]])
    cut = Schedule.parse(problem.placement, (1,), [["0F0", "0I0", "0W0[0:1]", "0W0[1:2]"]])
    scenario = Noise().scenario(problem.instance((1,)), 0)
    assert scenario.ticks(whole)[2] == pytest.approx(scenario.ticks(cut)[2:].sum(), abs=1)
    assert scenario.ticks(whole)[2] != 4000 * scenario.parts


def test_a_constant_delay_is_a_latency_and_a_constant_factor_a_scale() -> None:
    problem, slow = shape(3, 6), shape(3, 6, latency=7)
    doubled = shape(3, 6, costs=(12, 10, 8))
    schedule = one_f_one_b_split(problem)
    instance = problem.instance(schedule.sizes)
    planned = Planned.of(instance, schedule)

    def run(factor: float, delay: float) -> float:
        crossing = slow.instance(schedule.sizes).lag > 0
        factors = np.full((3, instance.stages, instance.microbatches), factor)
        return run_value(
            schedule, planned, Scenario(instance, factors, np.where(crossing, float(delay), 0.0), 4), "makespan"
        )

    assert run(1, 7) == simulate(slow, schedule).makespan
    assert run(2, 0) == simulate(doubled, schedule).makespan


def test_coarse_ticks_are_cut_into_parts() -> None:
    instance = shape(2, 40, costs=(1, 1, 1)).instance((1,) * 40)
    scenario = Noise().scenario(instance, 0)
    assert scenario.parts == fine_parts(instance) == 256
    assert Noise().scenario(instance, 0, parts=1).parts == 1
    assert fine_parts(shape(2, 2, costs=(500, 500, 500)).instance((1, 1))) == 1
    assert fine_parts(shape(2, 2, costs=(0, 0, 0)).instance((1, 1))) == 1
    problem = instance.problem
    schedule = one_f_one_b(problem)
    flat = scenario.ticks(schedule) / scenario.parts
    node = scenario.factor.reshape(-1)[op_nodes(schedule)] * op_ticks(instance, schedule)
    assert flat == pytest.approx(node, abs=1 / 256)


def test_noisy_figures() -> None:
    runs = Noisy(tuple(float(value) for value in range(1, 101)))
    assert runs.mean == 50.5
    assert runs.p95 == pytest.approx(95.05)
    assert runs.error == pytest.approx(np.std(runs.values, ddof=1) / 10)
    assert runs.mean_interval == pytest.approx((50.5 - 1.96 * runs.error, 50.5 + 1.96 * runs.error), abs=1e-3)
    assert runs.row() == {
        "mean": 50.5, "p95": 95.05, "error": 2.901, "runs": 100,
        "mean_interval": [44.814, 56.186], "p95_interval": [91.0, 100.0],
    }  # fmt: skip
    assert Noisy((3.0,)).p95_interval == (3, 3)
    assert Noisy((3.0,)).error == 0
    half = Noisy(tuple(value / 2 for value in runs.values))
    gain, error = half.gain(runs)
    assert gain == pytest.approx(0.5)
    assert error == pytest.approx(runs.error / 2 / 50.5)
    assert Noisy((0.0,)).gain(Noisy((0.0,))) == (0.0, 0.0)


def test_noise_lengthens_a_run_and_more_noise_more() -> None:
    problem = shape(4, 12, costs=(100, 100, 60))
    schedule = one_f_one_b_split(problem)
    planned = simulate(problem, schedule).makespan
    means = [noisy(problem, schedule, Noise(sigma=sigma)).mean for sigma in (0.05, 0.2, 0.6)]
    assert planned < means[0] < means[1] < means[2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sigma": -0.1}, r"noise.sigma: -0.1 is not within 0..2; 0.2 is usual"),
        ({"sigma": 2.5}, r"noise.sigma: 2.5 is not within"),
        ({"sigma": math.nan}, r"noise.sigma: nan is not within"),
        ({"link": -1.0}, r"noise.link: -1.0 is not a share"),
        ({"link": math.inf}, r"noise.link: inf is not a share"),
        ({"seed": -1}, r"noise.seed: -1 is below 0"),
    ],
)
def test_numbers_out_of_range(values: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(Noise(), **values)  # type: ignore[arg-type]  # seed is an int in the case that gives it


def test_times_beyond_integers_are_refused() -> None:
    problem = shape(1, 1, costs=(2**53, 0, 0))
    with pytest.raises(InputError, match=r"noise: the sum of all durations is .* above 2\^60; choose a coarser unit"):
        Noise(link=1e9, sigma=2).scenario(shape(2, 2, costs=(2**53, 0, 0)).instance((1, 1)), 0)
    assert isinstance(problem.instance((1,)), Instance)


def test_runs_that_cannot_be() -> None:
    problem = shape(2, 2)
    schedule = one_f_one_b(problem)
    with pytest.raises(InputError, match="noise: 0 runs are too few; run at least 1"):
        noisy(problem, schedule, Noise(), count=0)
    with pytest.raises(InputError, match="noise: 2 runs are compared with 1; run the same"):
        Noisy((1.0, 2.0)).gain(Noisy((1.0,)))
    stuck = Schedule(schedule.placement, schedule.sizes, (schedule.ops[0][::-1], schedule.ops[1]))
    with pytest.raises(NoAnswerError, match="deadlock"):
        noisy(problem, stuck, Noise())
    instance = problem.instance(schedule.sizes)
    with pytest.raises(NoAnswerError, match="of 8 ops can run in the schedule's order"):
        run_value(stuck, Planned.of(instance, stuck), Noise().scenario(instance, 0), "makespan")


def test_fused_backward_has_the_noise_of_its_input_gradient() -> None:
    problem = shape(1, 1, costs=(1000, 1000, 0), fused=1000)
    fused = Schedule.parse(problem.placement, (1,), [["0F0", "0B0"]])
    split = Schedule.parse(problem.placement, (1,), [["0F0", "0I0", "0W0"]])
    scenario = Noise().scenario(problem.instance((1,)), 0)
    assert fused.ops[0][1].kind is Kind.B
    assert scenario.ticks(fused)[1] == scenario.ticks(split)[1]


def test_text_form_of_noise() -> None:
    text = "sigma=0.3,link=0.1,imbalance=0.2,pause=5000,slow_rank=1:1.5,slow_link=2>3:5000"
    noise = Noise.parse(text, seed=4)
    assert noise == Noise(0.3, 0.1, 4, 0.2, 5000, (1, 1.5), (2, 3, 5000))
    assert str(noise) == text
    assert Noise.parse(" slow_link = 2>3:5000 , pause=1").slow_link == (2, 3, 5000)
    assert Noise.parse("none").silent
    assert str(Noise(sigma=0, link=0)) == "none"
    assert not any(Noise.parse(part).silent for part in text.split(","))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sigma=0.3,jitter=2", r"noise: 'jitter=2' is none of sigma=…, link=…, imbalance=…, pause=…, slow_rank=…, sl"),
        ("", r"noise: '' is none of sigma=…"),
        ("none,sigma=1", r"noise: 'none' is none of sigma=…"),
        ("sigma=0.3,sigma=0.2", r"noise: sigma is there twice"),
        ("sigma=much", r"noise.sigma: 'much' is not a number, as sigma=0.3"),
        ("pause", r"noise.pause: '' is not a number of ticks, as pause=5000"),
        ("slow_rank=1.5", r"noise.slow_rank: '1.5' is not rank:factor, as slow_rank=1:1.5"),
        ("slow_link=2:3:5", r"noise.slow_link: '2:3:5' is not from>to:ticks, as slow_link=2>3:5000"),
        ("imbalance=3", r"noise.imbalance: 3.0 is not within 0..2; 0.2 is usual"),
        ("pause=-1", r"noise.pause: -1.0 is not a number of ticks of at least 0"),
        ("slow_rank=1:0", r"noise.slow_rank: 1:0 is not a rank and a factor above 0, as 1:1.5"),
        ("slow_link=2>2:5", r"noise.slow_link: 2>2:5 is not two ranks and ticks of at least 0, as 2>3:5000"),
    ],
)
def test_text_that_is_no_noise(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Noise.parse(text)


@pytest.mark.parametrize(("text", "name"), [("slow_rank=3:2", "slow_rank"), ("slow_link=0>3:2", "slow_link")])
def test_noise_of_a_rank_that_is_not_there(text: str, name: str) -> None:
    with pytest.raises(InputError, match=f"noise.{name}: there is no rank 3; ranks are 0..2"):
        Noise.parse(text).scenario(shape(3, 2).instance((1, 1)), 0)


def test_a_slow_rank_and_a_slow_link_are_those_alone() -> None:
    problem = shape(3, 4, "v", costs=(100, 100, 50), latency=7)
    schedule = one_f_one_b_split(shape(6, 4))
    schedule = Schedule(
        problem.placement, schedule.sizes, tuple(schedule.ops[r] + schedule.ops[5 - r] for r in range(3))
    )
    instance = problem.instance(schedule.sizes)
    slow = Noise.parse("slow_rank=1:1.5").scenario(instance, 0)
    late = Noise.parse("slow_link=1>2:40").scenario(instance, 0)
    assert not slow.delay.any()
    assert (late.factor == 1).all()
    for op in (op for row in schedule.ops for op in row):
        rank = problem.placement.rank_of(op.stage, op.microbatch, 4)
        assert slow.factor_of(op) == (1.5 if rank == 1 else 1)
        # Forward from stage 1 to 2, and back from stage 4 to 3.
        assert late.delay_of(op) == (40 if (op.kind, op.stage) in ((Kind.F, 2), (Kind.I, 3)) else 0)


def test_pauses_are_uniform_and_lengthen_what_sends() -> None:
    instance = shape(4, 500, costs=(100, 0, 50)).instance((1,) * 500)
    scenario = Noise.parse("pause=30").scenario(instance, 0)
    ops = [Op(stage, kind, j) for stage in range(4) for kind in (Kind.F, Kind.I, Kind.W) for j in range(500)]
    pauses = {
        kind: np.array([scenario.pause_of(op) for op in ops if op.kind is kind]) for kind in (Kind.F, Kind.I, Kind.W)
    }
    assert not pauses[Kind.W].any()
    for kind in (Kind.F, Kind.I):
        assert (pauses[kind] >= 0).all()
        assert (pauses[kind] <= 30).all()
        assert pauses[kind].mean() == pytest.approx(15, abs=5 * 30 / math.sqrt(12 * 2000))
    schedule = one_f_one_b_split(instance.problem)
    flat = [op for row in schedule.ops for op in row]
    planned = op_ticks(instance, schedule)
    for op, ticks, plan in zip(flat, scenario.ticks(schedule) / scenario.parts, planned, strict=True):
        assert ticks == pytest.approx(plan + scenario.pause_of(op), abs=1 / scenario.parts)
    assert Noise(sigma=0, link=0).scenario(instance, 0).pause_of(flat[0]) == 0


def test_imbalance_is_of_a_stage_and_micro_batch() -> None:
    instance = shape(4, 500, costs=(100, 100, 50)).instance((1,) * 500)
    scenario = Noise.parse("imbalance=0.3").scenario(instance, 0)
    assert (scenario.factor[0] == scenario.factor[1]).all()
    assert (scenario.factor[0] == scenario.factor[2]).all()
    assert np.log(scenario.factor[0]).std() == pytest.approx(0.3, abs=5 * 0.3 / math.sqrt(4000))
    assert scenario.factor[0].mean() == pytest.approx(1, abs=5 * 0.31 / math.sqrt(2000))


def test_what_is_added_leaves_the_rest_of_the_noise_as_it_was() -> None:
    """Runs under more noise are compared with those under less: the same ops are slow."""
    instance = shape(3, 6, costs=(100, 100, 50)).instance((1,) * 6)
    plain = Noise(seed=1).scenario(instance, 2)
    more = Noise(seed=1, imbalance=0.2, pause=9, slow_rank=(0, 2), slow_link=(0, 1, 5)).scenario(instance, 2)
    assert (more.factor[:, 1] / plain.factor[:, 1])[0] == pytest.approx((more.factor[:, 1] / plain.factor[:, 1])[2])
    assert set((more.delay - plain.delay).round(6).reshape(-1).tolist()) == {0, 5}
