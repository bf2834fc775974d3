"""The problems of the granularity study: the zero-bubble paper's models, read as those of micro-batches of four.

An op that takes c ticks for a micro-batch of four samples takes `share * c + (1 - share) * c / 4 * size` for any size;
what it holds is in proportion to the size. Memory is counted in multiples of 1F1B's with micro-batches of four: at 1x
every rank may hold p times what F of four samples holds on a stage, or 2p times what it holds on half of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from adaptpipe.solver import Problem

from ..instances.make import DIMENSIONS, HALF_1_5B, MEMORY_1_5B, STAGE_1_5B, TABLE_5, TABLE_8

SIZE = 4
"""Samples of the micro-batches whose times were published."""

UNEVEN = (1.1, 1.0, 1.0, 1.3)
"""Times of four uneven stages, of which the first has the embedding and the last the head."""


@dataclass(frozen=True, slots=True)
class Case:
    """One problem.

    Parameters
    ----------
    placement, ranks, microbatches
        Shape; the batch has `SIZE` samples for each micro-batch, or one where sizes are not free.
    model
        A model of the zero-bubble paper.
    memory
        Limit of every rank, in multiples of 1F1B's.
    share
        Part of an op that does not depend on the size; None: every micro-batch is one sample and costs what was
        published.
    saving
        What a fused backward saves of I + W.
    units, start
        Units of a weight gradient, and what a further range of them costs, as a share of W.
    uneven
        Whether the stages (four, linear) take `UNEVEN` times as long.
    """

    placement: Literal["linear", "v"] = "linear"
    ranks: int = 8
    microbatches: int = 24
    model: str = "1.5b"
    memory: float = 1.0
    share: float | None = 0.1
    saving: float = 0.04
    units: int = 4
    start: float = 0.02
    uneven: bool = False

    @property
    def name(self) -> str:
        """In results; unique."""
        parts = [self.placement, self.model, f"p{self.ranks}", f"m{self.microbatches}", f"{self.memory:g}x"]
        parts += ["one size"] if self.share is None else [f"fixed {self.share:.0%}"]
        parts += [f"fused -{self.saving:.0%}", *(["uneven"] if self.uneven else [])]
        return " ".join(parts)

    def problem(self) -> Problem:
        """The problem, in microseconds."""
        forward, short, weight, latency = _times(self)
        held, kept = _memory(self)
        stages = self.ranks * (2 if self.placement == "v" else 1)
        scale = UNEVEN if self.uneven else (1.0,) * stages
        size, sizes = (1, [1]) if self.share is None else (SIZE, list(range(1, 2 * SIZE + 1)))

        def time(ticks: float) -> list[Any]:
            return [self._cost(ticks * by) for by in scale]

        return Problem.from_dict(
            {
                "name": self.name,
                "unit": "us",
                "pipeline": {"ranks": self.ranks, "placement": self.placement},
                "batch": {"samples": size * self.microbatches, "microbatch_sizes": sizes},
                "costs": {
                    "forward": time(forward),
                    "backward_input": time(short),
                    "weight_units": [[cost] * self.units for cost in time(weight / self.units)],
                    "backward": time((1 - self.saving) * (short + weight)),
                    "overhead": [round(self.start * weight * by) for by in scale],
                },
                "memory": {
                    "unit": "KB",
                    "activation": _bytes(held, size),
                    "retained": _bytes(kept, size),
                    "limit": round(self.memory * held * stages),
                },
                "links": {"latency": latency},
            }
        )

    def _cost(self, ticks: float) -> int | dict[str, int]:
        if self.share is None:
            return round(ticks)
        return {"fixed": round(self.share * ticks), "per_sample": round((1 - self.share) * ticks / SIZE)}


def _bytes(whole: int, size: int) -> int | dict[str, int]:
    return whole if size == 1 else {"fixed": 0, "per_sample": whole // size}


def _times(case: Case) -> tuple[int, int, int, int]:
    """F, I, W and message, in microseconds."""
    if case.model == "1.5b":
        return HALF_1_5B if case.placement == "v" else STAGE_1_5B
    for table in (TABLE_8, TABLE_5) if case.placement == "v" else (TABLE_5,):
        for model, ranks, _, *times in table:
            if model == case.model and ranks == case.ranks:
                forward, short, weight, latency = times
                return forward, short, weight, latency
    raise KeyError(f"no times of {case.model} on {case.ranks} ranks, {case.placement}")


def _memory(case: Case) -> tuple[int, int]:
    """Thousands of bytes that F of `SIZE` samples holds on a stage, and what I leaves of it; only ratios matter.

    34h + 5as and 32h for each token of a layer, from the zero-bubble paper, section 2.3, with s = 1024.
    """
    if case.model == "1.5b":
        held, kept = (1000 * value for value in MEMORY_1_5B)
    else:
        width, heads = DIMENSIONS[case.model]
        held, kept = 34 * width + 5 * heads * 1024, 32 * width
    half = 2 if case.placement == "v" else 1
    return held // (half * SIZE) * SIZE, kept // (half * SIZE) * SIZE


@dataclass(frozen=True, slots=True)
class CaseSet:
    """Cases that make one table.

    Parameters
    ----------
    name, title, about
        As the command line takes it; heading and sentence of the table.
    varies
        Heads of the columns that tell the cases apart, and what they show.
    cases
        In the order of the table.
    time_limit
        Seconds of each search, as a multiple of the command line's.
    kinds
        Granularities that are tried, beside "none".
    """

    name: str
    title: str
    about: str
    cases: tuple[Case, ...]
    time_limit: float = 1.0
    kinds: tuple[str, ...] = ("fused", "units", "sizes", "all")


_PLACEMENTS: tuple[Literal["linear", "v"], ...] = ("linear", "v")

SETS: tuple[CaseSet, ...] = (
    CaseSet(
        "models",
        "Models",
        "Four sizes of model at 1F1B's memory; a tenth of an op is fixed, fusing saves 4 %.",
        (
            *(Case(placement, 8, 24, "1.5b") for placement in _PLACEMENTS),
            Case("linear", 8, 24, "6.2b"),
            Case("v", 16, 48, "6.2b"),
            Case("linear", 16, 48, "14.6b"),
            Case("v", 24, 72, "14.6b"),
            *(Case(placement, 32, 96, "28.3b") for placement in _PLACEMENTS),
        ),
    ),
    CaseSet(
        "memory",
        "Memory",
        "1.5B with less and more than 1F1B's memory.",
        tuple(Case(placement, memory=memory) for placement in _PLACEMENTS for memory in (0.5, 0.75, 1.5, 2.0)),
    ),
    CaseSet(
        "saving",
        "What fusing saves",
        "1.5B at 1F1B's memory; a fused backward takes so much less than I + W.",
        tuple(Case(placement, saving=saving) for placement in _PLACEMENTS for saving in (0.0, 0.02, 0.08, 0.12)),
    ),
    CaseSet(
        "fixed",
        "Fixed cost of an op",
        "1.5B at 1F1B's memory; the part of an op of four samples that does not depend on the size.",
        (
            *(Case(placement, 4, 8, share=0.3) for placement in _PLACEMENTS),
            *(Case(placement, share=share) for placement in _PLACEMENTS for share in (0.02, 0.1, 0.3)),
        ),
        time_limit=6.0,
        kinds=("all",),
    ),
    CaseSet(
        "one-size",
        "One micro-batch size",
        "Sizes are given, so that fused backwards and ranges are all there is to choose; 1.5B.",
        (
            *(Case("linear", 4, 8, memory=memory, share=None) for memory in (0.75, 1.0, 1.5)),
            Case("linear", 4, 8, share=None, uneven=True),
            Case("linear", 4, 16, share=None),
            *(Case(placement, 8, count, share=None) for placement in _PLACEMENTS for count in (24, 64)),
        ),
        time_limit=3.0,
        kinds=("fused", "units", "all"),
    ),
)
"""Every set, in the order of the report."""
