"""The granularity study: what fused backwards, ranges of weight units and micro-batch sizes are worth.

    python -m benchmarks.granularity                          # every set
    python -m benchmarks.granularity --set fixed --time-limit 10
    python -m benchmarks.granularity --only 'v *'             # cases by name
    python -m benchmarks.granularity --executed               # predicted gain beside the measured one, on this machine
    python -m benchmarks.granularity --report                 # tables and chart again, from the kept results

Every case is solved without choices (near-uniform micro-batches, every backward split, every W whole: the best order)
and with each kind of them, all under the same memory limits and in the same time. Results go to
`benchmarks/results/DATE-granularity.json`, with the report beside them as `.md` and `.svg`. Ctrl-C ends the run and
keeps what is done.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

import msgspec
from rich.console import Console
from rich.markup import escape

from adaptpipe.solver import Granularity, solve
from adaptpipe.solver.warming import warm_up

from ..solve import RESULTS, Interrupted, machine
from .cases import SETS, Case, CaseSet
from .raw import Answer, Book, Study, read, write
from .report import report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code."""
    options = _options(arguments)
    kept: Path = options.results
    try:
        book = read(kept)
    except msgspec.MsgspecError as error:
        _say(f"{kept}: not the results of this study: {error}; name another file with --results")
        return 2
    if not options.time_limit > 0:
        _say(f"--time-limit: {options.time_limit:g} is not a positive number of seconds")
        return 2
    code = 0
    if options.executed:
        if options.set or options.only != "*":
            _say("--executed: it has cases of its own; leave --set and --only out")
            return 2
        code = _execute_all(book, kept)
    elif not options.report:
        chosen = [(rows, case) for rows in SETS for case in rows.cases]
        chosen = [(rows, case) for rows, case in chosen if rows.name in (options.set or [rows.name])]
        chosen = [(rows, case) for rows, case in chosen if fnmatch(case.name, options.only)]
        if not chosen:
            _say(f"--only: no case is named {options.only!r}")
            return 2
        code = _solve_all(chosen, book, options)
    if not (book.studies or book.executed):
        _say(f"{kept}: there are no results to report")
        return code or 2
    for path in report(book, kept.with_suffix(".md"), kept.with_suffix(".svg")):
        _say(f"wrote {path}")
    return code


def study(rows: CaseSet, case: Case, time_limit: float, workers: int, seed: int, tell: Console | None = None) -> Study:
    """Solve one case with every granularity of its set.

    Raises
    ------
    Interrupted
        When the user has pressed Ctrl-C.
    """
    answers = {}
    problem = case.problem()
    for kind in ("none", *rows.kinds):
        result = solve(problem, time_limit=time_limit, workers=workers, seed=seed, granularity=Granularity.parse(kind))
        if result.interrupted:
            raise Interrupted
        if result.timeline is None or result.value is None:
            continue
        schedule = result.schedule
        answers[kind] = Answer(
            value=result.value,
            bound=result.bound,
            status=str(result.status),
            proven_for=result.proven_for,
            found_by=result.found_by,
            time_s=round(result.time_s, 2),
            sizes=schedule.sizes,
            fused=round(schedule.fused_share, 4),
            cut=round(schedule.cut_share, 4),
        )
    return Study(
        case=case.name,
        set=rows.name,
        date=str(datetime.now(tz=UTC).date()),
        machine=machine(),
        time_limit_s=time_limit,
        workers=workers,
        seed=seed,
        answers=answers,
    )


def _execute_all(book: Book, kept: Path) -> int:
    from .executed import execute

    try:
        for name, run in execute(_say):
            book.executed[name] = run
            write(kept, book)
    except KeyboardInterrupt:
        _say(f"interrupted; what was executed is kept in {kept}")
        return 130
    return 0


def _solve_all(chosen: Sequence[tuple[CaseSet, Case]], book: Book, options: argparse.Namespace) -> int:
    try:
        _say("loading compiled code (a first time compiles it) …")
        warm_up()
        solve(chosen[0][1].problem(), time_limit=3, workers=options.workers)
        for index, (rows, case) in enumerate(chosen):
            title = f"[{index + 1}/{len(chosen)}] {rows.name}: {case.name}"
            with Console(stderr=True).status(escape(title), refresh_per_second=2):
                found = study(rows, case, rows.time_limit * options.time_limit, options.workers, options.seed)
            book.studies[f"{rows.name}: {case.name}"] = found
            write(options.results, book)
            base = found.answers.get("none")
            gains = [
                f"{kind} {1 - answer.value / base.value:.2%}"
                for kind, answer in found.answers.items()
                if base is not None and kind != "none"
            ]
            _say(f"{title}: {', '.join(gains) or 'no schedule without choices'}")
    except (KeyboardInterrupt, Interrupted):
        _say(f"interrupted; the cases that are done are kept in {options.results}")
        return 130
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.granularity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names, today = [rows.name for rows in SETS], datetime.now(tz=UTC).date()
    parser.add_argument("--set", action="append", choices=names, metavar="NAME", help=f"{', '.join(names)}; repeatable")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="cases whose name matches")
    parser.add_argument(
        "--time-limit", type=float, default=10.0, metavar="S", help="seconds a search (10; sets scale it)"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes of the search (2)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--executed", action="store_true", help="solve nothing of the sets; run schedules and measure")
    parser.add_argument(
        "--results", type=Path, default=RESULTS / f"{today}-granularity.json", help="file to merge into"
    )
    parser.add_argument("--report", action="store_true", help="solve nothing; write tables and chart from the results")
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
