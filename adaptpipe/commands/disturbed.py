"""What `simulate` and `compare` share under noise: options, and a table of static beside adaptive execution."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from .common import table

if TYPE_CHECKING:
    from adaptpipe.solver.floating import Disturbed


class Execution(StrEnum):
    """How a schedule runs."""

    static = "static"
    adaptive = "adaptive"


execution_option = Annotated[
    Execution,
    typer.Option("--execution", help="Every op in its order; or weight gradients floating into the waits."),
]
noise_option = Annotated[
    str | None,
    typer.Option(
        "--noise",
        metavar="A=X,…",
        help="Random runs, static and adaptive: sigma, link, imbalance, pause, slow_rank, slow_link; see "
        "docs/runtime.md.",
        show_default=False,
    ),
]
runs_option = Annotated[int, typer.Option("--runs", metavar="N", min=1, help="Random runs of --noise.")]

COLUMNS = ("static mean", "static 95th percentile", "adaptive mean", "adaptive 95th percentile", "shorter by")


def print_disturbed(first: str, rows: Sequence[tuple[str, Disturbed]], unit: str) -> None:
    """Print means and 95th percentiles with their 95 % confidence intervals, one row for each schedule."""
    noise, runs = rows[0][1].noise, len(rows[0][1].static.values)
    cells, reasons = [], []
    for name, found in rows:
        texts = []
        for each in (found.static, found.adaptive):
            if each is None:
                texts += ["–", "–"]
                continue
            half = each.mean_interval[1] - each.mean
            low, high = each.p95_interval
            texts += [f"{each.mean:,.0f} ± {half:,.0f} {unit}", f"{each.p95:,.0f} ({low:,.0f} to {high:,.0f}) {unit}"]
        gain = found.gain
        texts.append("–" if gain is None else f"{gain[0]:.2%} ± {gain[1]:.2%}")
        if found.reason:
            reasons.append(f"{name}: no adaptive execution: {found.reason}")
        cells.append([name, *texts])
    table((first, *COLUMNS), cells, title=f"{runs} runs under noise {noise}, seed {noise.seed}; 95 % confidence")
    for line in reasons:
        print(line)
