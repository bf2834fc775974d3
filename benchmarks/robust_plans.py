"""Plans under wrong costs: what is left of their gain over the best of today's schedules.

    nice python -m benchmarks.robust_plans                      # every workload; a quarter of an hour
    nice python -m benchmarks.robust_plans --only 'gemma2*'     # some of them, merged into the day's results

Each workload is planned, for 60 s, or 180 s where it has more than 8 ranks. The best plan and the best of three of
today's methods then run under the same wrong costs, in their own orders and with floating weight gradients; in each
cell the plan is compared with whichever of the three does best there. Where another
plan of the search has the least mean under 10 % error, it is shown as well, as the steadiest. Results go to
`benchmarks/results/DATE-robust-plans.json`, with tables beside them as `.md`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from adaptpipe.solver.evaluate.noisy import NORMAL
from adaptpipe.solver.planning.files.instance_file import InstanceFile, load_workload
from adaptpipe.solver.planning.judging.robust import ERRORS, ranked, robustness
from adaptpipe.solver.planning.judging.wrong_costs import SOURCES
from adaptpipe.solver.planning.plan import Plan
from adaptpipe.solver.planning.rivals.today import Today, rivals, todays
from adaptpipe.solver.planning.search import search
from adaptpipe.solver.planning.workload import Workload

from .instances import WORKLOADS
from .solve import machine

RESULTS = Path(__file__).parent / "results"

MANY_RANKS = 8
"""Workloads with more ranks get three times the time."""


class Cell(msgspec.Struct, frozen=True):
    """A gain over the base: shares.

    Attributes
    ----------
    source, error, execution
        What the errors belong to, their relative size, and how plan and base run.
    mean, half
        Mean of the draws, and half its 95 % confidence interval.
    low, high
        5th and 95th percentile of the draws.
    """

    source: str
    error: float
    execution: str
    mean: float
    half: float
    low: float
    high: float


class Row(msgspec.Struct, frozen=True):
    """One plan.

    Attributes
    ----------
    workload
        Its name.
    steadiest
        Whether it is here for its mean under errors, not for its step.
    makespan, base
        Milliseconds of its step, and of today's best as planned.
    base_name
        Method and rule of that.
    survives
        Whether the gain outlives 10 % error.
    cpu_s
        CPU seconds of the runs.
    cells
        The gains.
    """

    workload: str
    steadiest: bool
    makespan: float
    base: float
    base_name: str
    survives: bool
    cpu_s: float
    cells: tuple[Cell, ...]

    def cell(self, source: str, error: float, execution: str) -> Cell | None:
        """One of the gains; None where adaptive execution was refused."""
        key = source, error, execution
        return next((cell for cell in self.cells if (cell.source, cell.error, cell.execution) == key), None)


class Results(msgspec.Struct, frozen=True):
    """Everything that was found: where and when, after a search of how many seconds (three times as many beyond
    `MANY_RANKS` ranks), in how many draws; the rows of a workload by its name."""

    date: str
    machine: str
    search_s: float
    draws: int
    rows: dict[str, tuple[Row, ...]]


def measure(workload: Workload, plans: Sequence[Plan], bases: Sequence[Today], draws: int) -> Iterator[Row]:
    """The best of some plans under errors, and the steadiest where that is another.

    Parameters
    ----------
    plans
        Best first.
    bases
        What they are compared with, best first.
    """
    best, steadiest = plans[0], ranked(plans, draws=draws)[0][0]
    for plan in (best,) if steadiest is best else (best, steadiest):
        began = time.process_time()
        found = robustness(plan, bases, draws=draws)
        yield Row(
            workload.name,
            plan is not best,
            plan.makespan / 1e3,
            bases[0].makespan / 1e3,
            bases[0].name,
            found.survives(),
            time.process_time() - began,
            tuple(
                Cell(g.source, g.error, g.execution, g.mean, NORMAL * g.standard_error, *g.spread) for g in found.gains
            ),
        )


def report(results: Results) -> str:
    """The tables, as Markdown."""
    rows = [row for several in results.rows.values() for row in several]
    lines = [
        "# What is left of a plan's gain where costs are wrong",
        "",
        f"{results.date}, {results.machine}. Made by `python -m benchmarks.robust_plans`, simulated. Plans "
        f"are of a search of {results.search_s:g} s, three times that beyond {MANY_RANKS} ranks.",
        "",
        "Gain in step time over the best of today's schedules under the same wrong costs (of the best of each of three "
        f"methods, the one with the least mean there), in %: mean of {results.draws} draws ± half its 95 % confidence "
        "interval. Partition, placement and order stay as planned; memory limits hold. The error is relative, "
        "lognormal with mean 1: of each layer, each rank, each kind of op (F, I, W) and each micro-batch, with half "
        "the error each, so that an op's time has it once in all. *Fixed*: "
        "both in their own orders. *Adaptive*: both with floating weight gradients, as this project's executor runs "
        "either. *Both ways*: the plan adaptively, today's schedule in its order. A gain *survives* when the adaptive "
        "one under 10 % error is above 0 by more than its interval.",
        "",
        "| workload | step, ms | today, ms | " + " | ".join(f"{how} {_percent(error)}" for how, error in _columns()),
    ]
    lines[-1] += " | survives |"
    lines.append("|---" * (lines[-1].count("|") - 1) + "|")
    for row in rows:
        cells = [_cell(row.cell("all", error, HOW[how])) for how, error in _columns()]
        base = f"{row.base:.1f} ({row.base_name})"
        verdict = "yes" if row.survives else "no"
        lines.append(f"| {_name(row)} | {row.makespan:.1f} | {base} | {' | '.join(cells)} | {verdict} |")
    for how in ("fixed", "adaptive"):
        lines += ["", f"## By source of error, {how}", "", "Each source alone, with the whole error.", ""]
        lines.append(
            "| workload | "
            + " | ".join(f"{source} {_percent(error)}" for source, error in _sources())
            + " | worst 5 % |"
        )
        lines.append("|---" * (lines[-1].count("|") - 1) + "|")
        for row in rows:
            found = [row.cell(source, error, how) for source, error in _sources()]
            worst = min((cell.low for cell in found if cell is not None), default=None)
            low = "–" if worst is None else f"{100 * worst:.1f}"
            lines.append(f"| {_name(row)} | {' | '.join(map(_cell, found))} | {low} |")
    return "\n".join(lines) + "\n"


HOW = {"fixed": "fixed", "adaptive": "adaptive", "both ways": "adaptive over fixed"}
"""Names of executions in the table."""


def _columns() -> list[tuple[str, float]]:
    return [(how, error) for error in ERRORS for how in HOW]


def _sources() -> list[tuple[str, float]]:
    return [(source, error) for source in SOURCES if source != "all" for error in ERRORS if error]


def _percent(error: float) -> str:
    return f"{error:.0%}" if error else "as planned"


def _name(row: Row) -> str:
    return f"{row.workload}, steadiest" if row.steadiest else row.workload


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    return f"{100 * cell.mean:.1f}" + (f" ± {100 * cell.half:.1f}" if cell.half else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Plan, run under errors, write and print."""
    specs = msgspec.json.decode(WORKLOADS.read_bytes(), type=InstanceFile).instances
    today = datetime.now(tz=UTC).date()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.robust_plans", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="workloads whose name matches")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="S", help="seconds a workload (60)")
    parser.add_argument("--workers", type=int, default=2, help="threads of the search (2)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=40, help="for each error (40)")
    parser.add_argument(
        "--results", type=Path, default=RESULTS / f"{today}-robust-plans.json", help="file to merge into"
    )
    options = parser.parse_args(arguments)
    path: Path = options.results
    known = msgspec.json.decode(path.read_bytes(), type=Results).rows if path.exists() else {}
    results = Results(str(today), machine(), options.time_limit, options.draws, known)
    for name, spec in specs.items():
        if fnmatch(name, options.only):
            workload = load_workload(WORKLOADS, name)
            bases = rivals(todays(workload))
            assert bases, "one of today's schedules fits every workload of the file"
            limit = options.time_limit * (3 if spec.p > MANY_RANKS else 1)
            plans = search(workload, time_limit=limit, workers=options.workers, seed=options.seed)
            found = tuple(measure(workload, plans, bases, options.draws))
            print(f"{name}: {[f'{row.makespan:.1f} ms' for row in found]}", file=sys.stderr, flush=True)
            known = {**results.rows, name: found}
            results = msgspec.structs.replace(results, rows={each: known[each] for each in specs if each in known})
            path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
            path.with_suffix(".md").write_text(report(results), encoding="utf-8")
    print(report(results), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
