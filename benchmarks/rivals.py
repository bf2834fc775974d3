"""Values of public schedulers on the same problems, and how they were obtained.

`rivals.json` names repository, commit, function and parameters. Each of their orders was read as a schedule of ours and
simulated on the problem; only these values are kept.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec


class Candidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One scheduler on one instance: ticks, and whether its schedule keeps the memory limit; or why there is none."""

    instance: str
    function: str
    makespan: int | None = None
    span: int | None = None
    fits: bool = False
    note: str = ""


class Rivals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the code is from, how it was called, and what came out."""

    repository: str
    commit: str
    date: str
    how: tuple[str, ...]
    functions: dict[str, str]
    candidates: tuple[Candidate, ...]

    def best(self, instance: str, objective: Literal["makespan", "span"]) -> tuple[str, int] | None:
        """Function and value of the best schedule within the limits; None where no schedule is."""
        values = [
            (value, candidate.function)
            for candidate in self.candidates
            if candidate.instance == instance
            and candidate.fits
            and (value := candidate.makespan if objective == "makespan" else candidate.span) is not None
        ]
        if not values:
            return None
        value, function = min(values)
        return function, value


@cache
def rivals() -> Rivals:
    """The values kept beside this file."""
    return msgspec.json.decode((Path(__file__).parent / "rivals.json").read_bytes(), type=Rivals)
