"""Problem files with published values, and where the values come from.

`zb-table5-*` and `zb-table8-*` are the rows of Tables 5 and 8 of "Zero Bubble Pipeline Parallelism" (Qi et al., arXiv
2401.10241). `published.json` lists the papers' bubble rates: of the span, the longest time any one rank is between its
first start and its last end. The other names say placement, model, ranks, micro-batches, and the memory as a multiple
of 1F1B's. `make.py` writes the files, and holds the numbers' sources.

`workloads.json` holds models and clusters to plan for, layer by layer, on an assumed H100; only the 6.2B model's times
(the zero-bubble papers') and the kernels of the DeepSeek-V3-like one (its public trace) are measured.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from adaptpipe.solver.core.problem import Problem

HERE = Path(__file__).parent
"""Where the files are."""

WORKLOADS = HERE / "workloads.json"
"""The file of workloads, for `load_workload`."""


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published bubble rate: instance, the paper's name of the method, the rate, and where it is printed."""

    instance: str
    method: str
    span_bubble: float
    source: str


def names() -> tuple[str, ...]:
    """Names of all instances, in alphabetical order."""
    return tuple(sorted(path.stem for path in HERE.glob("*.toml")))


def load(name: str) -> Problem:
    """Instance of a name.

    Raises
    ------
    InputError
        When there is none.
    """
    return Problem.load(HERE / f"{name}.toml")


def published() -> tuple[Published, ...]:
    """Every published value, in the papers' order."""
    return msgspec.json.decode((HERE / "published.json").read_bytes(), type=tuple[Published, ...])
