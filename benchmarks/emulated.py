"""Eight emulated ranks against the simulator: how well the makespan of a step is predicted.

    python -m benchmarks.emulated                  # four minutes; 8 processes
    python -m benchmarks.emulated --steps 4        # sooner, and less exact

Ops sleep for their planned 10 ms (F, I and W; B 20 ms), messages of 64 KB are real, 16 micro-batches. What a message
takes is measured first, in running pipelines whose ops are shorter and longer; predictions are made with that, and in
the same noise. Results go to `benchmarks/results/DATE-emulated.json`, with a table beside them as `.md`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median

import msgspec

from adaptpipe.executor.measuring.emulation import (
    Way,
    emulate,
    message_seconds,
    predicted_s,
    with_latency,
)
from adaptpipe.executor.report import makespan_s
from adaptpipe.executor.running.plan import ExecutionMode
from adaptpipe.solver import Problem, Schedule, solve
from adaptpipe.solver.evaluate.noise import Noise
from adaptpipe.solver.heuristics import one_f_one_b, one_f_one_b_split, zb_h1

from .solve import machine

RESULTS = Path(__file__).parent / "results"

RANKS, MICROBATCHES, TICK_S = 8, 16, 1e-6

OTHER_OPS_S = (0.005, 0.02)
"""Seconds of the ops between which messages are timed; those that are predicted take 10 ms."""

NOISES = ("none", "sigma=0.3", "slow_link=3>4:8000")

SEARCH_S = 20.0

WITHIN = 0.03
"""How far measured may be from predicted."""

EXECUTIONS: tuple[ExecutionMode, ...] = ("static", "adaptive")


class Row(msgspec.Struct, frozen=True):
    """One schedule in one way.

    Attributes
    ----------
    schedule, execution, noise
        What ran.
    predicted_s, measured_s
        Makespan of each step.
    """

    schedule: str
    execution: str
    noise: str
    predicted_s: tuple[float, ...]
    measured_s: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median over the steps of measured over predicted."""
        return median(a / b for a, b in zip(self.measured_s, self.predicted_s, strict=True))


class Results(msgspec.Struct, frozen=True):
    """Everything that was measured, where and when."""

    date: str
    machine: str
    message_s: tuple[float, ...]
    rows: tuple[Row, ...]


def problem() -> Problem:
    """The problem; a rank may hold what 1F1B's first one does."""
    return Problem.from_dict(
        {
            "name": "emulated-p8-m16",
            "unit": "us",
            "pipeline": {"ranks": RANKS},
            "batch": {"samples": MICROBATCHES},
            "costs": {"forward": 10_000, "backward_input": 10_000, "weight_units": [2_500] * 4},
            "memory": {"activation": 2, "retained": 1, "limit": 2 * RANKS},
        }
    )


def schedules(priced: Problem) -> dict[str, Schedule]:
    """What runs without noise."""
    found = solve(priced, time_limit=SEARCH_S)
    return {
        "1F1B": one_f_one_b(priced),
        "1F1B, W split": one_f_one_b_split(priced),
        "ZB-H1": zb_h1(priced),
        f"solver ({found.found_by or found.method})": found.schedule,
    }


def measure(priced: Problem, steps: int) -> Iterator[Row]:
    """Run every schedule in every way: all in turns without noise, the split ones in noise."""
    known = schedules(priced)
    for noise in NOISES:
        disturbed = Noise.parse(noise)
        some = {name: each for name, each in known.items() if noise == "none" or name != "1F1B"}
        ways = [
            (name, Way(schedule, execution, disturbed))
            for name, schedule in some.items()
            for execution in EXECUTIONS
            if (name, execution) != ("1F1B", "adaptive")  # nothing floats
        ]
        _say(f"noise {noise}: {len(ways)} ways, {steps} steps each")
        found = emulate(priced, [way for _, way in ways], steps=steps, seconds_per_tick=TICK_S)
        for (name, way), ran in zip(ways, found, strict=True):
            said = predicted_s(priced, way, steps, TICK_S)
            row = Row(name, way.execution, noise, said, tuple(makespan_s(step) for step in ran))
            _say(f"  {name}, {way.execution}: {row.ratio:.3f}")
            yield row


def report(results: Results) -> str:
    """The table, as Markdown."""
    messages = " and ".join(f"{seconds * 1e3:.2f} ms" for seconds in results.message_s)
    lines = [
        "# Emulated ranks against the simulator",
        "",
        f"{results.date}, {results.machine}. {RANKS} ranks, {MICROBATCHES} micro-batches, ops of 10 ms, messages of "
        f"64 KB, which take {messages} between ops of {' and '.join(f'{op * 1e3:g} ms' for op in OTHER_OPS_S)}; "
        "predictions are made with the mean of these, in the same noise. Measured over predicted makespan: the median "
        "over the steps. Ranks of root ask that other processes wait for them; those of others may wake later.",
        "",
        "| noise | schedule | execution | predicted | measured | measured/predicted |",
        "|---|---|---|---|---|---|",
    ]
    for row in results.rows:
        lines.append(
            f"| {row.noise} | {row.schedule} | {row.execution} | {median(row.predicted_s) * 1e3:.1f} ms "
            f"| {median(row.measured_s) * 1e3:.1f} ms | {row.ratio:.3f} |"
        )
    worst = max(results.rows, key=lambda row: abs(row.ratio - 1))
    lines += ["", f"Farthest off: {worst.ratio:.3f}, {worst.schedule}, {worst.execution}, noise {worst.noise}.", ""]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, and tell by the exit code whether all are within 3 %."""
    today = datetime.now(tz=UTC).date()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.emulated", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=9, help="steps of each way (9)")
    parser.add_argument("--results", type=Path, default=RESULTS / f"{today}-emulated.json", help="where to write")
    options = parser.parse_args(arguments)
    _say("timing messages")
    message_s = tuple(message_seconds(RANKS, op_s=op_s) for op_s in OTHER_OPS_S)
    _say("messages take " + ", ".join(f"{seconds * 1e3:.2f} ms" for seconds in message_s))
    rows = tuple(measure(with_latency(problem(), fmean(message_s), TICK_S), options.steps))
    results = Results(str(today), machine(), message_s, rows)
    options.results.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    options.results.with_suffix(".md").write_text(report(results))
    print(report(results))
    _say(f"wrote {options.results} and the table beside it")
    return 0 if all(abs(row.ratio - 1) <= WITHIN for row in rows) else 1


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
