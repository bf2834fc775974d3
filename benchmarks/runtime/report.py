"""The benchmark's figures as a page."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from .raw import ADAPTIVE, OURS, THEIRS, Book, Measured

NOTES = """\
Both follow the same op lists, which PyTorch generates, on the same processes with one thread each, and their steps take
turns. Each has its own copy of a GPT of 8 blocks, width 256; 8 micro-batches of one sample of 128 tokens.

- **CPU**: seconds of processor of one step, all ranks and all their threads together; medians. The ratio is the median
  over pairs of steps that ran back to back, and so is that of **wall** time.
- **peak**: the most bytes that a step holds, by the memory events of torch's profiler, on the rank that holds most.
  What was held before the first step does not count (weights, gradients), receive buffers do. The ratio is that of the
  rank where it is largest.
- PyTorch's last stage has its output copied where the backward is split, which refuses a view; its outputs are not kept
  and its gradients not scaled, so that it does no more than is needed.
- **adaptive**: weight gradients float. No memory limit is set, so that they may float to the end of the step.
- Where there are more ranks than cores, wall time is the work and not the schedule.
"""


def text(book: Book) -> str:
    """The report."""
    lines = [
        "# AdaptPipe's executor beside PyTorch's",
        "",
        f"Made by `python -m benchmarks.runtime` on {book.date}: {book.machine}, torch {book.torch}; "
        f"{book.pairs} steps of each side.",
        "",
        NOTES,
        "| schedule | ranks | CPU theirs | CPU ours | ratio | wall ratio | peak theirs | peak ours | ratio |"
        " adaptive: CPU | wall |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_row(case) for case in book.cases),
        "",
        *_gradients(book),
    ]
    return "\n".join(lines).rstrip() + "\n"


def line(case: Measured) -> str:
    """A case in one line, to follow a run by."""
    ratios = case.ratios()
    return (
        f"{case.schedule}, {case.ranks} ranks: CPU {ratios.cpu_ratio:.3f}, wall {ratios.wall_ratio:.3f}, "
        f"peak {ratios.peak_ratio:.3f}"
    )


def _row(case: Measured) -> str:
    theirs, ours, ratios = case.sides[THEIRS], case.sides[OURS], case.ratios()
    cells = [
        case.schedule,
        str(case.ranks),
        f"{median(theirs.cpu_s):.3f} s",
        f"{median(ours.cpu_s):.3f} s",
        f"**{ratios.cpu_ratio:.3f}**",
        f"{ratios.wall_ratio:.3f}",
        f"{max(theirs.peak_bytes) / 2**20:.2f} MiB",
        f"{max(ours.peak_bytes) / 2**20:.2f} MiB",
        f"**{ratios.peak_ratio:.3f}**",
    ]
    if ADAPTIVE in case.sides:
        floating = case.ratios(ADAPTIVE)
        cells += [f"{floating.cpu_ratio:.3f}", f"{floating.wall_ratio:.3f}"]
    else:
        cells += ["–", "–"]
    return f"| {' | '.join(cells)} |"


def _gradients(book: Book) -> Iterator[str]:
    worst = max(case.difference for case in book.cases)
    yield (
        "The gradients of both are equal to the bit."
        if worst == 0
        else f"The gradients of both differ by at most {worst:.1e} of the largest of a parameter."
    )
