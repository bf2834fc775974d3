"""The plan search's benchmark: how short a step it finds, how soon, and how far from what is proven.

    python -m benchmarks.plans                               # every workload; a quarter of an hour
    python -m benchmarks.plans --only 'gemma2*'              # some of them, merged into the day's results

A workload gets 60 s, and 180 s where it has more than 8 ranks, for all that `adaptpipe plan` does in that time:
today's schedules, the bound, the plan, the plan at equal memory, and its worth under wrong costs. `KNOWN` are the
shortest steps that an earlier study of these workloads found, with a search of its own, in whole layers or with
attention and MLP apart, and `GAINS` what it gained. Results go to `benchmarks/results/DATE-plans.json`, with a table
beside them as `.md`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from adaptpipe.solver.planning.answer import answer
from adaptpipe.solver.planning.files.instance_file import InstanceFile, load_workload
from adaptpipe.solver.portfolio.request import Progress

from .instances import WORKLOADS
from .solve import machine

RESULTS = Path(__file__).parent / "results"

KNOWN = {
    "llama2-7b-p4": 3172,
    "llama2-7b-p8": 3396,
    "llama3-8b-p8": 4434,
    "llama3-70b-tp8-p8": 5030,
    "gemma2-9b-p8": 2211,
    "gpt6.2b-measured-p8": 3153,
    "llama3-8b-p8-2speeds": 5335,
    "gemma2-27b-p16": 4580,
    "dsv3-like-p16": 9650,
    "llama3-8b-p8-attn-mlp": 4033,
    "llama3-70b-tp8-p8-attn-mlp": 4918,
}
"""Milliseconds of one step."""

GAINS: dict[str, tuple[float, float | None]] = {
    "llama2-7b-p4": (0.014, 0.014),
    "llama2-7b-p8": (0.023, 0.022),
    "llama3-8b-p8": (0.051, 0.051),
    "llama3-70b-tp8-p8": (0.020, 0.020),
    "gemma2-9b-p8": (0.216, 0.202),
    "gpt6.2b-measured-p8": (0.160, None),
    "llama3-8b-p8-2speeds": (0.126, 0.114),
    "gemma2-27b-p16": (0.354, None),
    "dsv3-like-p16": (0.038, None),
}
"""What the study gained over the best of its schedules of today: with all memory, and with no more than that one's."""

WITHIN = 0.003
"""How far above the known step a plan may be."""

MANY_RANKS = 8
"""Workloads with more ranks get three times the time."""


class Row(msgspec.Struct, frozen=True):
    """One workload. Times of steps are milliseconds.

    Attributes
    ----------
    known, makespan, equal, bound, base
        The earlier study's step, ours, ours with no more memory on any rank than the best of today's schedules takes,
        what no plan gets below, and the best of today's schedules.
    recommended
        Whether the gain survives wrong costs.
    time_s, known_s
        Seconds of everything, and until a plan was within `WITHIN` of the known one; None: never.
    method, placement, split, division
        Of the plan: how it was found, its family, layers of each stage, and micro-batches by size.
    """

    workload: str
    known: float
    makespan: float
    equal: float | None
    bound: float
    base: float | None
    base_method: str
    recommended: bool
    time_s: float
    known_s: float | None
    method: str
    placement: str
    split: tuple[int, ...]
    division: str


class Results(msgspec.Struct, frozen=True):
    """Everything that was found, where and when."""

    date: str
    machine: str
    rows: dict[str, Row]


def run(name: str, time_limit: float, workers: int, seed: int) -> Row:
    """Plan one workload."""
    workload = load_workload(WORKLOADS, name)
    told: list[Progress] = []
    found = answer(workload, time_limit=time_limit, workers=workers, seed=seed, on_progress=told.append)
    best, base = found.plan, found.base
    near = KNOWN[name] * (1 + WITHIN) * 1e3
    counts = {size: best.division.count(size) for size in sorted(set(best.division), reverse=True)}
    return Row(
        workload=name,
        known=KNOWN[name],
        makespan=best.makespan / 1e3,
        equal=None if found.equal is None else found.equal.makespan / 1e3,
        bound=best.bound / 1e3,
        base=None if base is None else base.makespan / 1e3,
        base_method="" if base is None else base.name,
        recommended=found.recommended,
        time_s=found.time_s,
        known_s=min((step.time_s for step in told if step.value <= near), default=None),
        method=best.method,
        placement=best.placement.name,
        split=tuple(len(part) for part in best.split),
        division=" + ".join(f"{count} of {size}" for size, count in counts.items()),
    )


def report(results: Results) -> str:
    """The table, as Markdown."""
    lines = [
        "# Plans: layers, placement and order together",
        "",
        f"{results.date}, {results.machine}. Made by `python -m benchmarks.plans`. Milliseconds of one step; the bound "
        "holds for every split, placement, division of the batch and order. *Known* is the shortest step of an earlier "
        f"study; *after* is how many seconds it took to come within {WITHIN:.1%} of it, of all seconds of planning. "
        "*Today* is the best of today's schedules that fits, over split rules and micro-batch sizes; *gain* is over "
        "it, beside the study's over its own (–: not told), with all memory, and with no rank above the most that "
        "today's best takes. *Recommended* where the gain survives costs that are 10 % off.",
        "",
        "| workload | step | known | to known | after | of | bound | gap | today | gain (study) "
        "| at equal memory (study) | recommended | placement | micro-batches |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in results.rows.values():
        base, gains = "–", ["–", "–"]
        if row.base is not None:
            base = f"{row.base:.1f} ({row.base_method})"
            theirs = GAINS.get(row.workload, (None, None))
            gains = [_gain(row.makespan, row.base, theirs[0]), _gain(row.equal, row.base, theirs[1])]
        after = "–" if row.known_s is None else f"{row.known_s:.0f} s"
        lines.append(
            f"| {row.workload} | {row.makespan:.1f} | {row.known:.0f} | {row.makespan / row.known - 1:+.2%} | {after} "
            f"| {row.time_s:.0f} s | {row.bound:.1f} | {_share(row.makespan / row.bound - 1)} | {base} "
            f"| {gains[0]} | {gains[1]} | {'yes' if row.recommended else 'no'} | {row.placement} | {row.division} |"
        )
    lines += ["", "Layers of each stage:", ""]
    lines += [f"- {row.workload}: {', '.join(map(str, row.split))}" for row in results.rows.values()]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Plan, write, and tell by the exit code whether all are as good as what is known."""
    today = datetime.now(tz=UTC).date()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plans", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="workloads whose name matches")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S", help="seconds a workload (60)")
    parser.add_argument("--workers", type=int, default=2, help="threads of the search (2)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS / f"{today}-plans.json", help="file to merge into")
    options = parser.parse_args(arguments)
    specs = msgspec.json.decode(WORKLOADS.read_bytes(), type=InstanceFile).instances
    path: Path = options.results
    rows = msgspec.json.decode(path.read_bytes(), type=Results).rows if path.exists() else {}
    for name in KNOWN:
        if fnmatch(name, options.only):
            limit = options.time_limit * (3 if specs[name].p > MANY_RANKS else 1)
            rows[name] = row = run(name, limit, options.workers, options.seed)
            _say(f"{name}: {row.makespan:.1f} ms, {row.makespan / row.known - 1:+.2%} to {row.known:.0f} ms")
            results = Results(str(today), machine(), {each: rows[each] for each in KNOWN if each in rows})
            path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
            path.with_suffix(".md").write_text(report(results))
    print(report(results))
    return 0 if all(row.makespan <= row.known * (1 + WITHIN) for row in rows.values()) else 1


def _share(value: float) -> str:
    return f"{value:.2%}"


def _gain(step: float | None, base: float, study: float | None) -> str:
    return f"{'–' if step is None else _share(1 - step / base)} ({'–' if study is None else f'{study:.1%}'})"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
