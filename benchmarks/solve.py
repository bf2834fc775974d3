"""The solver's benchmark: solve every row of the sets, and write tables and a chart.

    python -m benchmarks.solve                               # everything; about an hour
    python -m benchmarks.solve --set v1x --time-limit 60     # one set, merged into the day's results
    python -m benchmarks.solve --only '*p8-m24*'             # rows by name
    python -m benchmarks.solve --report                      # tables and chart again, from the kept results

Results go to `benchmarks/results/DATE-solve.json`, with the report beside them as `.md` and `.svg`. Ctrl-C ends the run
and keeps the rows that are done.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from adaptpipe.solver import Problem, Result, solve
from adaptpipe.solver.core.errors import InputError
from adaptpipe.solver.methods import METHODS
from adaptpipe.solver.solving import Progress
from adaptpipe.solver.warming import warm_up

from . import raw
from .instances import HERE, load
from .report import report
from .sets import SETS, Row

RESULTS = Path(__file__).parent / "results"
GREEDY_S = 10.0
"""Seconds that the greedy grid may take where it stands as a heuristic."""


class Interrupted(Exception):
    """The user has ended the run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code."""
    options = _options(arguments)
    kept: Path = options.results
    rows = [row for rows in SETS if rows.name in (options.set or [rows.name]) for row in rows.rows]
    rows = [row for row in rows if fnmatch(row.key, options.only)]
    runs = raw.read(kept)
    code = 0
    if not options.report:
        if not rows:
            _say(f"--only: no row is named {options.only!r}")
            return 2
        code = _solve_all(rows, runs, options)
    if runs:
        for path in report(runs, kept.with_suffix(".md"), kept.with_suffix(".svg")):
            _say(f"wrote {path}")
    return code


def run_row(
    row: Row, time_limit: float, workers: int, seed: int, start_s: float, on_progress: Callable[[Progress], None]
) -> raw.Run:
    """Solve one row, heuristics first.

    Raises
    ------
    Interrupted
        When the user has pressed Ctrl-C; what the row had so far is not comparable, and dropped.
    """
    problem = load(row.instance)
    heuristics = tuple(_heuristic(problem, row, name) for name in _heuristics(problem))
    steps: list[raw.Step] = []

    def note(progress: Progress) -> None:
        steps.append(raw.Step(round(progress.time_s, 3), progress.value, progress.bound, progress.found_by))
        on_progress(progress)

    result = _uninterrupted(
        solve(problem, objective=row.objective, time_limit=time_limit, workers=workers, seed=seed, on_progress=note)
    )
    timeline = result.timeline
    return raw.Run(
        instance=row.instance,
        objective=row.objective,
        date=str(datetime.now(tz=UTC).date()),
        machine=machine(),
        time_limit_s=time_limit,
        workers=workers,
        seed=seed,
        start_s=start_s,
        unit=problem.unit,
        status=str(result.status),
        value=result.value,
        bound=result.bound,
        makespan=None if timeline is None else timeline.makespan,
        span=None if timeline is None else timeline.span,
        bubble=None if timeline is None else timeline.bubble,
        span_bubble=None if timeline is None else timeline.span_bubble,
        found_by=result.found_by,
        time_s=round(result.time_s, 3),
        reason=result.reason,
        steps=tuple(steps),
        heuristics=heuristics,
    )


def machine() -> str:
    """Processor, cores and Python of this machine, as reports name it."""
    return f"{_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def _solve_all(rows: Sequence[Row], runs: raw.Runs, options: argparse.Namespace) -> int:
    try:
        _say("loading compiled code (a first time compiles it) …")
        start_s = _start_seconds()
        _load_compiled(options.workers)
        for index, row in enumerate(rows):
            began = time.monotonic()
            run = _watched(f"[{index + 1}/{len(rows)}] {row.key}", row, options, start_s)
            runs[row.key] = run
            raw.write(options.results, runs)
            gap = run.gap(run.value)
            _say(
                f"[{index + 1}/{len(rows)}] {row.key}: {run.status}"
                + ("" if gap is None else f", gap {gap:.2%} by {run.found_by}")
                + f", search {run.time_s:.1f} s, in all {time.monotonic() - began:.1f} s"
            )
    except (KeyboardInterrupt, Interrupted):
        _say(f"interrupted; the rows that are done are kept in {options.results}")
        return 130
    return 0


def _watched(title: str, row: Row, options: argparse.Namespace, start_s: float) -> raw.Run:
    """Solve one row; in a terminal, with the best so far on the last line."""
    with Console(stderr=True).status(f"{escape(title)}: heuristics", refresh_per_second=2) as status:

        def show(progress: Progress) -> None:
            gap = "" if progress.gap is None else f", gap {progress.gap:.2%}"
            status.update(f"{escape(title)}: {progress.value:,} by {progress.found_by}{gap}, {progress.time_s:.1f} s")

        return run_row(row, options.time_limit, options.workers, options.seed, start_s, show)


def _heuristics(problem: Problem) -> list[str]:
    return [m.name for m in METHODS if m.build is not None and m.updates == "step"] + ["greedy"]


def _heuristic(problem: Problem, row: Row, name: str) -> raw.Heuristic:
    try:
        result = _uninterrupted(solve(problem, name, objective=row.objective, time_limit=GREEDY_S))
    except InputError:
        return raw.Heuristic(name, None, "n/a")
    return raw.Heuristic(name, result.value, result.standing)


def _uninterrupted(result: Result) -> Result:
    if result.interrupted:
        raise Interrupted
    return result


def _load_compiled(workers: int) -> None:
    """Have every part of the search in memory before times are taken, on a problem that needs them."""
    warm_up()
    for row in (Row("v-1.5b-p4-m16-0.5x"), Row("v-1.5b-p4-m16-0.5x", "span")):
        _uninterrupted(solve(load(row.instance), objective=row.objective, time_limit=3, workers=workers))


def _start_seconds() -> float:
    """Seconds of the command beside the search, on a problem that needs no search; the second of two tries."""
    command = [sys.executable, "-m", "adaptpipe", "solve", str(HERE / "linear-1.5b-p4-m8-1x.toml"), "--json"]
    for _ in range(2):
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        taken = time.monotonic() - began
    return round(taken - float(json.loads(done.stdout)["time_s"]), 2)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    assert __doc__ is not None
    today = datetime.now(tz=UTC).date()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.solve", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [rows.name for rows in SETS]
    parser.add_argument("--set", action="append", choices=names, metavar="NAME", help=f"{', '.join(names)}; repeatable")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="rows whose name matches")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S", help="seconds a row (60)")
    parser.add_argument("--workers", type=int, default=2, help="processes of the search (2)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS / f"{today}-solve.json", help="file to merge into")
    parser.add_argument("--report", action="store_true", help="solve nothing; write tables and chart from the results")
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
