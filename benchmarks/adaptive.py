"""Adaptive against static execution in simulated runs under noise: what floating weight gradients are worth.

    nice python -m benchmarks.adaptive             # two minutes
    nice python -m benchmarks.adaptive --runs 20   # sooner, and less exact

Every schedule runs with its order fixed and with floating weight gradients, in the same random runs. Ops take 10 ms
(F, I, W), a W has four units, a message takes 0.6 ms. Results go to `benchmarks/results/DATE-adaptive.json`, with
tables beside them as `.md`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from adaptpipe.solver import Problem, Schedule, check, simulate
from adaptpipe.solver.anneal import anneal
from adaptpipe.solver.evaluate.noise import Noise
from adaptpipe.solver.floating import disturbed, simulate_adaptive
from adaptpipe.solver.greedy import greedy
from adaptpipe.solver.heuristics import one_f_one_b_split, zb_h1, zb_h2, zb_v

from .solve import machine

RESULTS = Path(__file__).parent / "results"

SIZES = ((4, 8), (8, 16), (16, 32))
"""Ranks and micro-batches."""

ACTIVATION = 200
"""Bytes of one; W holds half of it."""

SLACK = "1F1B-split, p + 1"
"""The schedule whose limit leaves one activation beyond what its order needs."""

WORSE, BETTER = 0.005, 0.05
"""How much worse adaptive execution may ever be, and how much better it has to be where memory has room."""

MUST_GAIN = ("sigma 0.3", "slow link")
"""Noises under which it has to."""

MOVES = 200_000
"""Of the annealer that makes the searched schedule, after as long a greedy search as takes `GREEDY_S`."""

GREEDY_S = 5.0


class Row(msgspec.Struct, frozen=True):
    """One schedule under one noise.

    Attributes
    ----------
    ranks, schedule, noise
        What ran; `noise` is the short name, `text` what `--noise` takes.
    runs
        How many; one where nothing is random.
    static_us, adaptive_us
        Means of the makespans.
    p95
        95th percentile of the adaptive makespans over that of the static ones.
    gain, half
        How much shorter the adaptive runs are in the mean, as a share of the static mean; half its 95 % interval.
    """

    ranks: int
    schedule: str
    noise: str
    text: str
    runs: int
    static_us: float
    adaptive_us: float
    p95: float
    gain: float
    half: float


class Results(msgspec.Struct, frozen=True):
    """All rows, where and when."""

    date: str
    machine: str
    cpu_s: float
    rows: tuple[Row, ...]


def problem(ranks: int, microbatches: int, limit: list[int] | None = None, placement: str = "linear") -> Problem:
    """Equal ops of 10 ms on a rank; two stages a rank share them."""
    part = 2 if placement == "v" else 1
    return Problem.from_dict(
        {
            "name": f"equal-p{ranks}-m{microbatches}",
            "unit": "us",
            "pipeline": {"ranks": ranks, "placement": placement},
            "batch": {"samples": microbatches},
            "costs": {
                "forward": 10_000 // part,
                "backward_input": 10_000 // part,
                "weight_units": [2_500 // part] * 4,
            },
            "links": {"latency": 600},
            "memory": {"activation": ACTIVATION // part, "retained": ACTIVATION // part // 2}
            | ({} if limit is None else {"limit": limit}),
        }
    )


def schedules(ranks: int, microbatches: int) -> Iterator[tuple[str, Problem, Schedule]]:
    """The schedules of the table, each with a problem whose limit it keeps."""

    def limited(*activations: int, placement: str = "linear") -> Problem:
        return problem(ranks, microbatches, [ACTIVATION * count for count in activations], placement)

    def at_its_peak(schedule: Schedule, placement: str = "linear") -> Problem:
        free = problem(ranks, microbatches, placement=placement)
        return problem(ranks, microbatches, list(simulate(free, schedule).peak_memory), placement)

    one_more = limited(*[ranks + 1] * ranks)
    split = one_f_one_b_split(one_more)
    yield SLACK, one_more, split
    yield "1F1B-split, p - r + 1", limited(*(ranks - r + 1 for r in range(ranks))), split
    yield "1F1B, W placed, p + 1", one_more, simulate_adaptive(one_more, split).schedule
    yield "ZB-H1, its peak", at_its_peak(zb_h1(one_more)), zb_h1(one_more)
    yield "ZB-H1, p + 1", one_more, zb_h1(one_more)
    yield "ZB-H2, its peak", at_its_peak(zb_h2(one_more)), zb_h2(one_more)
    folded = problem(ranks, microbatches, placement="v")
    yield "ZB-V, its peak", at_its_peak(zb_v(folded), "v"), zb_v(folded)
    as_1f1b = limited(*[ranks] * ranks)
    start = greedy(as_1f1b, deadline=time.monotonic() + GREEDY_S)
    assert start is not None, "one micro-batch after another fits"
    yield "searched, p", as_1f1b, anneal(as_1f1b, start, iterations=MOVES)


def noises(ranks: int) -> dict[str, Noise]:
    """The noises of the table."""
    middle = ranks // 2
    texts = {
        "none": "none",
        "sigma 0.1": "sigma=0.1",
        "sigma 0.3": "sigma=0.3",
        "links": "link=0.5",
        "slow link": f"slow_link={middle - 1}>{middle}:8000",
        "slow last link": f"slow_link={ranks - 2}>{ranks - 1}:8000",
        "slow rank": f"slow_rank={middle}:1.3",
        "pauses": "pause=5000",
        "imbalance": "imbalance=0.3",
        "mix": "sigma=0.3,link=0.3",
    }
    return {name: Noise.parse(text) for name, text in texts.items()}


def measure(sizes: tuple[tuple[int, int], ...], runs: int) -> Iterator[Row]:
    """Run everything."""
    for ranks, microbatches in sizes:
        for name, given, schedule in schedules(ranks, microbatches):
            assert not check(given, schedule), f"{name} keeps its limit"
            for noise, model in noises(ranks).items():
                fixed = replace(model, slow_rank=None, slow_link=None).silent
                found = disturbed(given, schedule, model, count=1 if fixed else runs)
                assert found.adaptive is not None, "what keeps its limit can float"
                assert found.gain is not None
                yield Row(
                    ranks,
                    name,
                    noise,
                    str(model),
                    len(found.static.values),
                    round(found.static.mean, 1),
                    round(found.adaptive.mean, 1),
                    round(found.adaptive.p95 / found.static.p95, 4),
                    round(found.gain[0], 5),
                    round(found.gain[1], 5),
                )


def report(results: Results) -> str:
    """The tables, in Markdown."""
    rows = results.rows
    worst = min(rows, key=lambda row: row.gain)
    gains = [row for row in rows if row.schedule == SLACK and row.noise in MUST_GAIN]
    least = min(gains, key=lambda row: row.gain)
    runs = max(row.runs for row in rows)
    lines = [
        "# What adaptive execution is worth",
        "",
        "Made by `python -m benchmarks.adaptive`, simulated. "
        f"{results.date}, {results.machine}; {results.cpu_s:.0f} s of CPU time.",
        "",
        f"Makespan with floating weight gradients over that of the fixed order, both in the mean of the same {runs} "
        "random runs, ± half the 95 % confidence interval; one run where nothing is random. Below 1, it is faster.",
        "",
        "F, I and W take 10 ms, W in four units, a message 0.6 ms; m = 2p. W holds half an activation. Behind the name "
        'of a schedule is its limit, in activations; "its peak" leaves nothing. "W placed" is the order of 1F1B with '
        "its W's where the policy runs them at the planned times: that is what the fixed order then is.",
        "",
        f"- Never more than {WORSE:.1%} worse: {_verdict(worst.gain >= -WORSE)}. The worst is {1 - worst.gain:.4f}, "
        f"{worst.schedule} on {worst.ranks} ranks, noise {worst.noise}.",
        f"- At least {BETTER:.0%} better in {SLACK} under {' and '.join(MUST_GAIN)}: "
        f"{_verdict(least.gain >= BETTER)}. The least is {1 - least.gain:.3f}, on {least.ranks} ranks, {least.noise}.",
    ]
    names = list(dict.fromkeys(row.noise for row in rows))
    for ranks in dict.fromkeys(row.ranks for row in rows):
        lines += ["", f"## {ranks} ranks", "", f"| schedule | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
        for schedule in dict.fromkeys(row.schedule for row in rows if row.ranks == ranks):
            cells = [
                f"{1 - row.gain:.3f}" + (f" ± {row.half:.3f}" if row.runs > 1 else "")
                for row in rows
                if (row.ranks, row.schedule) == (ranks, schedule)
            ]
            lines.append(f"| {schedule} | " + " | ".join(cells) + " |")
    texts = {row.noise: row.text for row in reversed(rows)}  # those of the first rows, the fewest ranks
    lines += ["", f"Noises, on {rows[0].ranks} ranks: " + "; ".join(f"{name} `{texts[name]}`" for name in names) + "."]
    return "\n".join(lines) + "\n"


def _verdict(holds: bool) -> str:
    return "**yes**" if holds else "**no**"


def main(words: list[str]) -> int:
    """Run, write, and tell."""
    parser = argparse.ArgumentParser(prog="benchmarks.adaptive", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="random runs of each noise")
    options = parser.parse_args(words)
    date = datetime.now(UTC).date().isoformat()
    rows = []
    for row in measure(SIZES, options.runs):
        rows.append(row)
        print(f"p={row.ranks:<3} {row.schedule:24} {row.noise:16} {1 - row.gain:.4f} ± {row.half:.4f}", flush=True)
    results = Results(date, machine(), round(time.process_time(), 1), tuple(rows))
    stem = RESULTS / f"{date}-adaptive"
    stem.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
    stem.with_suffix(".md").write_text(report(results), encoding="utf-8")
    print(f"written to {stem}.md and .json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
