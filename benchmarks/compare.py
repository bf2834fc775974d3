"""Every method beside the solver on one published row: bubble against memory, at equal work.

    python -m benchmarks.compare                                      # 6.2B, p = 8, m = 24; within a minute
    python -m benchmarks.compare --instance zb-table5-1.5b-p8-m24
    python -m benchmarks.compare --time-limit 300                     # more time for the solver

Tables (`table.md`, `table.csv`, `table.json`) and the chart (`pareto.png`, `pareto.svg`) go to
`benchmarks/results/DATE-compare-MODEL/`. `adaptpipe compare` is the same for any problem file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from adaptpipe.commands.comparing.files import write_tables
from adaptpipe.solver.comparing import compare
from adaptpipe.solver.warming import warm_up

from .instances import load
from .solve import RESULTS, machine

INSTANCE = "zb-table5-6.2b-p8-m24"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code."""
    options = _options(arguments)
    today = datetime.now(tz=UTC).date()
    folder: Path = options.output or RESULTS / f"{today}-compare-{_model(options.instance)}"
    problem = load(options.instance)
    _say("loading compiled code (a first time compiles it) …")
    warm_up()
    began = time.monotonic()
    found = compare(
        problem,
        time_limit=options.time_limit,
        workers=options.workers,
        seed=options.seed,
        on_progress=lambda where, progress: _say(f"{time.monotonic() - began:6.1f} s  {progress.value:,}  {where}"),
    )
    if found.interrupted:
        _say("interrupted; nothing is written")
        return 130
    folder.mkdir(parents=True, exist_ok=True)
    write_tables(folder, found, found.data())
    took = time.monotonic() - began
    table = folder / "table.md"
    head, _, rest = table.read_text(encoding="utf-8").partition("\n")
    instance = options.instance
    how = (
        f"Made by `python -m benchmarks.compare --instance {instance}` on {today} in {took:.0f} s, searches at "
        f"most {options.time_limit:g} s; {machine()}, {options.workers} workers, seed {options.seed}. Costs: "
        f"[{instance}.toml](../../instances/{instance}.toml). Columns: [comparing.md](../../../docs/comparing.md)."
    )
    table.write_text(f"{head}\n\n{how}\n{rest}", encoding="utf-8")
    _say(f"wrote {folder} in {took:.1f} s")
    return 0


def _model(instance: str) -> str:
    """The model in an instance's name.

    Examples
    --------
    >>> _model("zb-table5-6.2b-p8-m24"), _model("v-1.5b-p4-m8-1x")
    ('6.2b', '1.5b')
    """
    return next((part for part in instance.split("-") if part.endswith("b") and part[0].isdigit()), instance)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--instance", default=INSTANCE, help=f"file in benchmarks/instances ({INSTANCE})")
    parser.add_argument("--time-limit", type=float, default=30.0, metavar="S", help="seconds of all searches (30)")
    parser.add_argument("--workers", type=int, default=2, help="processes of a search (2)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, help="folder (benchmarks/results/DATE-compare-MODEL)")
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
