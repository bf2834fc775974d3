"""Table 5 of the zero-bubble paper under 1F1B's memory: hand-made schedules against ours, as Markdown.

Run from a checkout: `python -m benchmarks.table5`. Memory is 1x: p times what F of one micro-batch holds, 34h + 5as
bytes for each token of it, of which W frees 32h (h hidden size, a heads, s sequence length; the paper's code).
"""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from adaptpipe.solver import Memory, Problem, Result, solve

from .instances import load

HIDDEN_HEADS = {"1.5b": (2304, 24), "6.2b": (4096, 32), "14.6b": (5120, 40), "28.3b": (6144, 48)}
ROWS = {
    "1.5b": (8, (24, 32, 64)),
    "6.2b": (8, (24, 32, 64)),
    "14.6b": (16, (48, 64, 128)),
    "28.3b": (32, (96, 128, 256)),
}
SEQUENCE = 1024


def at_one_times(problem: Problem, model: str) -> Problem:
    """The problem with the model's memory, limited to p activations on every rank."""
    hidden, heads = HIDDEN_HEADS[model]
    activation, retained = 34 * hidden + 5 * heads * SEQUENCE, 32 * hidden
    stages, ranks = problem.stages, problem.ranks
    memory = Memory(
        activation=(activation,) * stages,
        retained=(retained,) * stages,
        static=(0,) * stages,
        reserve=(0,) * ranks,
        limit=(ranks * activation,) * ranks,
    )
    return replace(problem, memory=memory)


def line(model: str, ranks: int, microbatches: int) -> str:
    """One row: makespan bubbles, who found ours, and in what time."""
    name = f"zb-table5-{model}-p{ranks}-m{microbatches}"
    problem = at_one_times(load(name), model)
    one, handmade, ours = (solve(problem, method, time_limit=30) for method in ("1F1B", "ZB-H1", "auto"))
    cells = [model.upper(), str(ranks), str(microbatches), _bubble(one), _bubble(handmade), _bubble(ours)]
    gap = "none" if ours.gap is None else f"{ours.gap:.2%}"
    cells += [f"{ours.status}, gap {gap}", ours.found_by, f"{ours.time_s:.1f} s"]
    return "| " + " | ".join(cells) + " |"


def _bubble(result: Result) -> str:
    return "–" if result.timeline is None else f"{result.timeline.bubble:.4f}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    """Print the table."""
    today = datetime.now(tz=UTC).date()
    machine = f"{_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"Makespan bubbles at 1x memory, {today}, {machine}.\n")
    print("| model | p | m | 1F1B | ZB-H1 | ours | status | found by | time |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model, (ranks, counts) in ROWS.items():
        for microbatches in counts:
            print(line(model, ranks, microbatches), flush=True)


if __name__ == "__main__":
    main()
