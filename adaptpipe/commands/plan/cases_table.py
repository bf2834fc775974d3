"""The table of `--what-if`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..common import table
from .cases import Line

HEAD = (
    "step ms", "tokens/s", "MFU", "most GB", "bound gap", "today's best", "gain", "at equal memory", "recommended",
)  # fmt: skip


def print_cases(lines: Sequence[Line]) -> None:
    """Print the cases, each with its figures, and why some have none: each reason once, there may be thousands."""
    names = list(dict.fromkeys(key for line in lines for key in line.case))
    rows = [[*(line.case.get(name, "") for name in names), *_cells(line)] for line in lines]
    table([*names, *HEAD], rows, f"{len(lines)} cases")
    alike: dict[str, list[Line]] = {}
    for line in lines:
        if line.row is None:
            alike.setdefault(line.reason, []).append(line)
    for reason, (first, *others) in alike.items():
        more = f" and {len(others)} more" * bool(others)
        print(f"{' '.join(f'{key}={value}' for key, value in first.case.items())}{more}: {reason}")


def _cells(line: Line) -> list[str]:
    row = line.row
    if row is None:
        return ["none", *["–"] * (len(HEAD) - 1)]
    base = row["baseline"]
    return [
        f"{row['step_s'] * 1e3:,.1f}",
        _text(row["tokens_per_s"], lambda value: f"{value:,.0f}"),
        _text(row["mfu"], lambda value: f"{value:.1%}"),
        f"{max(row['memory']) / 1e9:,.1f}",
        f"{row['gap']:.2%}",
        "none fits" if base is None else f"{base['method']}, {base['rule']}",
        _text(row["gain"], lambda value: f"{value:.1%}"),
        _text(row["gain_equal_memory"], lambda value: f"{value:.1%}"),
        "yes" if row["recommended"] else "no",
    ]


def _text(value: Any, form: Callable[[Any], str]) -> str:
    return "–" if value is None else form(value)
