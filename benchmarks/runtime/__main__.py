"""The executor's benchmark: the CPU, time and memory of a step, beside PyTorch's own pipeline runtime.

    python -m benchmarks.runtime                              # every case, some minutes
    python -m benchmarks.runtime --only '*, 2 ranks' --pairs 30
    python -m benchmarks.runtime --json                       # the ratios, ours over theirs, on stdout

Figures go to `benchmarks/results/DATE-runtime.json`, with the report beside them as `.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

import torch

from ..solve import RESULTS, machine
from .measure import measure
from .raw import Book, Measured, summary, write
from .report import line, text
from .sides import CASES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns its exit code."""
    options = _options(arguments)
    chosen = [case for case in CASES if fnmatch(case.name, options.only)]
    if not chosen:
        _say(f"--only: no case is named {options.only!r}; there are {'; '.join(case.name for case in CASES)}")
        return 2
    if options.pairs < 1:
        _say(f"--pairs: {options.pairs} is below 1")
        return 2
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # for the ranks: the profiler warns of what it cannot see
    done: list[Measured] = []
    for case in chosen:
        done.append(measure(case, options.pairs))
        _say(line(done[-1]))
    date = str(datetime.now(tz=UTC).date())
    book = Book(date, machine(), str(torch.__version__), options.pairs, tuple(done))
    kept: Path = options.results or RESULTS / f"{date}-runtime.json"
    write(kept, book)
    kept.with_suffix(".md").write_text(text(book), encoding="utf-8")
    _say(f"wrote {kept} and {kept.with_suffix('.md').name}")
    if options.json:
        print(json.dumps(summary(book), indent=1))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.runtime", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="*", metavar="PATTERN", help="cases whose name matches, as '1F1B, 2 ranks'")
    parser.add_argument("--pairs", type=int, default=15, help="steps of each side that count (15)")
    parser.add_argument("--json", action="store_true", help="print the ratios")
    parser.add_argument("--results", type=Path, help="where to (benchmarks/results/DATE-runtime.json)")
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
