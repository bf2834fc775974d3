"""Tables in Markdown, one for each set, from kept results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from adaptpipe.commands.common import sizes_text

from .cases import SETS, CaseSet
from .raw import Answer, Book, Study

NOTES = """\
- **order alone**: the best schedule found whose order alone was chosen: near-uniform micro-batches of the best count,
  every backward split, every W whole. **gain** is `1 - T/T0` over it, of the makespan, found in the same time under the
  same memory limits; **all** chooses order, fused backwards, ranges and sizes together.
- **gap**: `value / bound - 1` of the schedule with all choices; "opt" where it is proven. The bound holds for every
  schedule of the problem, or, marked *, for the sizes chosen.
- **chosen**: with all choices, the sizes in the order of the micro-batches, the share of backwards that are fused, and
  the share of weight gradients that run in more than one range.
- Each figure is one search with one seed. A kind that is worth nothing, or less than its search loses in the larger
  space, shows as 0 or below.
"""

NAMES = {"fused": "fused", "units": "ranges", "sizes": "sizes", "all": "all"}
"""Heads of the columns of gains."""


def report(book: Book, markdown: Path, chart: Path) -> tuple[Path, Path]:
    """Write tables and chart; returns their paths."""
    from .chart import draw

    markdown.write_text(text(book, chart.name), encoding="utf-8")
    draw([(rows, found) for rows in SETS if (found := of(rows, book))], chart)
    return markdown, chart


def of(rows: CaseSet, book: Book) -> list[Study]:
    """The studies of a set that are there, in its order."""
    keys = [f"{rows.name}: {case.name}" for case in rows.cases]
    return [book.studies[key] for key in keys if key in book.studies]


def gain(study: Study, kind: str) -> float | None:
    """1 - T/T0 of a kind over the order alone; None where either is missing."""
    base, answer = study.answers.get("none"), study.answers.get(kind)
    return None if base is None or answer is None else 1 - answer.value / base.value


def text(book: Book, chart: str) -> str:
    """The report, with a link to the chart."""
    present = [(rows, found) for rows in SETS if (found := of(rows, book))]
    lines = ["# What granularity is worth", "", "Made by `python -m benchmarks.granularity`.", ""]
    lines += [*_machines([study for _, found in present for study in found]), ""]
    if present:
        lines += [f"![gain by kind]({chart})", "", NOTES]
    for rows, found in present:
        lines += [f"## {rows.title}", "", rows.about, "", *_table(rows, found), ""]
    lines += _executed(book)
    return "\n".join(lines).rstrip() + "\n"


def _machines(found: Sequence[Study]) -> Iterator[str]:
    keys: dict[str, set[tuple[object, ...]]] = {}
    groups: dict[tuple[object, ...], list[str]] = {}
    for study in found:
        keys.setdefault(study.set, set()).add(_circumstances(study))
    for study in found:
        # A set that was run in parts names the placement of each.
        name = study.set if len(keys[study.set]) == 1 else f"{study.set}: {study.case.split()[0]}"
        names = groups.setdefault(_circumstances(study), [])
        if name not in names:
            names.append(name)
    for (date, machine, limit, workers, seed), names in groups.items():
        yield f"- {date}, {machine}; {limit:g} s a search, {workers} workers, seed {seed} ({', '.join(names)})."


def _circumstances(study: Study) -> tuple[object, ...]:
    return study.date, study.machine, study.time_limit_s, study.workers, study.seed


def _table(rows: CaseSet, found: Sequence[Study]) -> Iterator[str]:
    head = ["problem", "order alone", *(NAMES[kind] for kind in rows.kinds), "gap", "chosen"]
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for study in found:
        base, best = study.answers.get("none"), study.answers.get(rows.kinds[-1])
        cells = [study.case, "none fits" if base is None else f"{base.value:,}{' opt' * (base.status == 'OPTIMAL')}"]
        cells += [_percent(gain(study, kind)) for kind in rows.kinds]
        cells += ["–", "–"] if best is None else [_gap(best), chosen(best.sizes, best.fused, best.cut)]
        yield "| " + " | ".join(cells) + " |"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.2%}"


def _gap(answer: Answer) -> str:
    scope = "*" if answer.proven_for == "sizes" else ""
    return f"opt{scope}" if answer.status == "OPTIMAL" else f"{answer.value / answer.bound - 1:.2%}{scope}"


def chosen(sizes: tuple[int, ...], fused: float, cut: float) -> str:
    """The pieces of a schedule: sizes as runs, shares of fused backwards and of cut weight gradients."""
    return f"{len(sizes)}: {sizes_text(sizes)}; {fused:.0%} fused, {cut:.0%} cut"


def _executed(book: Book) -> list[str]:
    if not book.executed:
        return []
    where = "; ".join(sorted({f"{run.date}, {run.machine}" for run in book.executed.values()}))
    lines = [
        "## Executed",
        "",
        f"{where}. The best schedule by order alone and the best with all choices, step by step in turns.",
        "Emulated ops sleep until their planned end, and messages are real: what is measured is the plan with delays",
        "of messages and processes. Makespans are medians; the gain is the median of pairs.",
        "",
    ]
    head = ["what", "pairs", "predicted", "measured", "predicted gain", "measured gain (quartiles)", "chosen"]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for run in book.executed.values():
        low, high = run.quartiles
        cells = [run.what, str(run.pairs)]
        cells += [f"{a * 1e3:.1f} to {b * 1e3:.1f} ms" for a, b in (run.predicted_s, run.measured_s)]
        cells += [f"{run.predicted_gain:.2%}", f"{run.gain:.2%} ({low:.2%} to {high:.2%})", run.chosen]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
