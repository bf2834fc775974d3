"""The solver beside every schedule of the literature, at equal memory: `python -m benchmarks.literature`.

Each schedule that exists for an instance's placement sets a memory: that of its fullest rank. There, and at the
instance's own limit, the solver is asked; what it finds must be no longer than any schedule that keeps that limit.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adaptpipe.solver import InputError, Problem, Timeline, simulate, solve
from adaptpipe.solver.heuristics import LITERATURE

from .instances import HERE, load
from .solve import RESULTS, machine


@dataclass(frozen=True, slots=True)
class Level:
    """One instance at one memory.

    Parameters
    ----------
    limit
        Bytes that every rank may hold.
    best, name
        Makespan in ticks of the best hand-made schedule within the limit, and which; None where none fits.
    value, bound
        Makespan of the solver's schedule, and what is proven; None where it found none.
    """

    limit: int
    best: int | None
    name: str
    value: int | None
    bound: int

    @property
    def worse(self) -> bool:
        """Whether a hand-made schedule is better than the solver's."""
        return self.best is not None and (self.value is None or self.value > self.best)


def handmade(problem: Problem) -> dict[str, Timeline]:
    """Every synchronous schedule of the literature that exists for a problem's placement, without regard to memory."""
    found = {}
    for method in LITERATURE:
        if method.updates != "step":
            continue
        try:
            found[method.name] = simulate(problem, method.schedule(problem))
        except InputError:
            continue  # not on this placement, or not for whole micro-batches
    return found


def levels(problem: Problem, time_limit: float) -> list[Level]:
    """The solver at the instance's limit, and at the memory of each schedule of the literature."""
    schedules = handmade(problem)
    own = min((limit for limit in problem.memory.limit if limit is not None), default=None)
    peaks = {max(timeline.peak_memory) for timeline in schedules.values()}
    found = []
    for limit in sorted({own or max(peaks), *peaks}):
        memory = replace(problem.memory, limit=(limit,) * problem.ranks)
        fits = [(t.makespan, name) for name, t in schedules.items() if max(t.peak_memory) <= limit]
        best, name = min(fits, default=(None, ""))
        result = solve(replace(problem, memory=memory), time_limit=time_limit)
        found.append(Level(limit, best, name, result.value, result.bound))
    return found


def text(rows: Sequence[tuple[str, Sequence[Level]]], time_limit: float) -> str:
    """The report in Markdown."""
    lines = [
        "# The solver beside every schedule of the literature, at equal memory",
        "",
        f"Made by `python -m benchmarks.literature --time-limit {time_limit:g}` on {time.strftime('%Y-%m-%d')}; "
        f"{machine()}. Each level of memory is one search of {time_limit:g} s with two workers. *Levels*: the "
        "instance's limit and the fullest rank of each hand-made schedule. *Gain*: what the solver's makespan saves "
        "over the best hand-made schedule that keeps the level's limit; none of them is ever better where *worse* is "
        "0. *Alone*: levels at which no hand-made schedule fits, and the solver has one.",
        "",
        "| instance | levels | worse | alone | gain, least | gain, most | over | proven optimal |",
        "|---|---:|---:|---:|---:|---:|---|---:|",
    ]
    for name, each in rows:
        gains = [(1 - level.value / level.best, level.name) for level in each if level.best and level.value is not None]
        least, most = (min(gains), max(gains)) if gains else ((0.0, ""), (0.0, ""))
        alone = sum(level.best is None and level.value is not None for level in each)
        proven = sum(level.value == level.bound for level in each)
        lines.append(
            f"| {name} | {len(each)} | {sum(level.worse for level in each)} | {alone} | {least[0]:.2%} | {most[0]:.2%} "
            f"| {most[1]} | {proven} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run it on every instance, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=2.0, help="seconds of each search")
    parser.add_argument("--only", default="", help="instances whose name contains this")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / f"{time.strftime('%Y-%m-%d')}-literature.md")
    options = parser.parse_args()
    rows = []
    for path in sorted(HERE.glob("*.toml")):
        if options.only in path.stem:
            rows.append((path.stem, levels(load(path.stem), options.time_limit)))
            print(f"{path.stem}: {rows[-1][1]}", file=sys.stderr)
            options.output.write_text(text(rows, options.time_limit), encoding="utf-8")
    if any(level.worse for _, each in rows for level in each):
        sys.exit("a hand-made schedule is better than the solver's")


if __name__ == "__main__":
    main()
