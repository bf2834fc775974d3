"""Schedules run in turns: what is measured, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptpipe.commands.run_file import RunSpec
from adaptpipe.executor.measuring.emulation import message_seconds, with_latency
from adaptpipe.solver import InputError, Problem, Schedule, simulate
from adaptpipe.solver.heuristics import gpipe, one_f_one_b
from benchmarks.granularity.turns import (
    Executed,
    executed,
    main,
    profiled,
    text,
    trained,
)

pytestmark = pytest.mark.timeout(120)

FOUND = Executed(
    predicted_s=(1.0, 0.95),
    measured_s=((1.1, 1.0), (1.0, 0.96), (1.2, 1.08), (1.0, 1.0), (1.0, 0.98)),
    message_s=0.0005,
)


def problem_of(ranks: int, latency: int = 0) -> Problem:
    return Problem.from_dict(
        {
            "unit": "ms",
            "pipeline": {"ranks": ranks},
            "batch": {"samples": 4},
            "costs": {"forward": 4, "backward_input": 4, "backward_weight": 4, "backward": 6},
            "links": {"latency": latency},
        }
    )


def test_gains_are_of_pairs() -> None:
    assert FOUND.predicted_gain == pytest.approx(0.05)
    assert FOUND.medians_s == (1.0, 1.0)
    assert FOUND.gains == pytest.approx((1 / 11, 0.04, 0.1, 0.0, 0.02))
    assert FOUND.gain == pytest.approx(0.04)
    assert FOUND.quartiles == pytest.approx((0.02, 1 / 11))
    assert FOUND.share == pytest.approx(0.8)


def test_one_pair_has_no_spread() -> None:
    assert Executed((1.0, 0.9), ((1.0, 0.8),), None).quartiles == pytest.approx((0.2, 0.2))


def test_no_share_of_no_gain() -> None:
    assert Executed((1.0, 1.0), ((1.0, 0.9),), None).share is None


def test_text_tells_both_gains() -> None:
    assert text(FOUND).splitlines() == [
        "predicted    1000.0 ms     950.0 ms  gain  5.00%",
        "measured     1000.0 ms    1000.0 ms  gain  4.00% (quartiles 2.00% to 9.09%, 5 pairs)",
        "messages       0.50 ms",
    ]


def test_executed_measures_no_less_than_without_messages() -> None:
    problem = problem_of(2)
    first, second = gpipe(problem), one_f_one_b(problem)
    found = executed(problem, first, second, pairs=3, seconds_per_tick=0.0005)
    assert found.predicted_s == tuple(simulate(problem, each).makespan * 0.0005 for each in (first, second))
    assert len(found.measured_s) == 3
    for pair in found.measured_s:
        for measured, predicted in zip(pair, found.predicted_s, strict=True):
            assert measured > predicted
    assert found.message_s is not None
    assert found.message_s > 0


def test_message_seconds_need_two_ranks() -> None:
    assert message_seconds(2, op_s=0.001, message_bytes=1000, steps=1) > 0
    with pytest.raises(InputError, match="ranks = 1: messages need 2 at least"):
        message_seconds(1)


def test_something_must_be_counted() -> None:
    problem = problem_of(2)
    schedule = gpipe(problem)
    with pytest.raises(InputError, match="steps = 0: at least 1 must count"):
        executed(problem, schedule, schedule, pairs=0, seconds_per_tick=1.0)
    with pytest.raises(InputError, match="pairs = 0: at least 1 is needed"):
        trained(RunSpec(model={}), problem, schedule, schedule, pairs=0)


def test_latency_is_written_in_ticks() -> None:
    links = with_latency(problem_of(3, latency=9), 0.0012, 0.0005).links
    assert links.latency == ((0, 2, 2), (2, 0, 2), (2, 2, 0))


def test_training_in_turns() -> None:
    spec = RunSpec(
        model={"kind": "mlp", "layers": 2, "inputs": 8, "width": 16},
        samples=4,
        microbatch_sizes=[1, 2],
        time_limit=1.0,
        memory_limit=2**40,
    )
    problem = profiled(spec)
    assert problem.limited
    found = trained(spec, problem, gpipe(problem, (1, 1, 2)), one_f_one_b(problem, (2, 2)), pairs=2)
    assert len(found.measured_s) == 2
    assert all(seconds > 0 for seconds in (*found.predicted_s, *(each for pair in found.measured_s for each in pair)))


def test_command_runs_kept_schedules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = problem_of(2)
    problem.save(tmp_path / "problem.json")
    gpipe(problem).save(tmp_path / "first.json", problem.fingerprint)
    one_f_one_b(problem).save(tmp_path / "second.json", problem.fingerprint)
    files = [str(tmp_path / f"{name}.json") for name in ("problem", "first", "second")]
    assert main([*files, "--pairs", "1", "--seconds-per-tick", "0.0005"]) == 0
    assert capsys.readouterr().out.startswith("predicted")
    assert main([*files, "--seconds-per-tick", "0"]) == 2
    assert "seconds_per_tick = 0.0" in capsys.readouterr().err
    Schedule(problem.placement, (1,) * 4, ((), ())).save(tmp_path / "second.json", problem.fingerprint)
    assert main(files) == 1
    assert "0F0 is missing" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(files[:2])
    assert "give a problem and two schedules" in capsys.readouterr().err
