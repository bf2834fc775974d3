"""What a CSV file cannot hold, in a file beside it: `FILE.csv.json` beside `FILE.csv`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..core.errors import InputError
from ..core.placement import Placement
from ..evaluate.timeline import Timeline
from ..files.reading import read_struct, write_text

FORMAT = "adaptpipe-csv"
VERSION = 1


class Beside(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file beside a CSV.

    Attributes
    ----------
    format, version
        What the file is.
    problem
        Name of the problem, for people.
    placement
        Rank of each stage. The rows of the CSV say it too; the two must agree.
    sizes
        Samples of each micro-batch.
    unit
        Unit of the times: ns, us, ms or s.
    starts
        For each rank, the planned start of each of its ops. For people: a schedule is an order without a clock.
    """

    format: str
    version: int
    problem: str
    placement: list[int]
    sizes: list[int]
    unit: str
    starts: list[list[int]]


def beside(path: str | Path) -> Path:
    """Name of the file beside a CSV.

    Examples
    --------
    >>> beside("best.csv").name
    'best.csv.json'
    """
    return Path(f"{path}.json")


def write_beside(path: str | Path, timeline: Timeline) -> None:
    """Write the file beside a CSV.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    schedule = timeline.schedule
    content = Beside(
        format=FORMAT,
        version=VERSION,
        problem=timeline.problem.name,
        placement=list(schedule.placement.stages[0]),
        sizes=list(schedule.sizes),
        unit=timeline.problem.unit,
        starts=[[start for _, start, _ in timeline.of(rank)] for rank in range(timeline.problem.ranks)],
    )
    write_text(beside(path), msgspec.json.encode(content).decode() + "\n")


def read_beside(path: str | Path, placement: Placement, microbatches: int) -> Beside | None:
    """Read the file beside a CSV, if there is one.

    Raises
    ------
    InputError
        When it is broken, or says something else than the CSV.
    """
    place = beside(path)
    if not place.exists():
        return None
    found = read_struct(place, Beside)
    remedy = f"correct one of the two, or remove {place}"
    if found.format != FORMAT:
        raise InputError(f"{place}: format: {found.format!r} is not {FORMAT!r}; this is another kind of file")
    if found.version != VERSION:
        raise InputError(f"{place}: version: {found.version} is not {VERSION}, the one this release reads")
    ours = placement.stages[0]
    if len(found.placement) != len(ours):
        raise InputError(f"{place}: placement: {len(found.placement)} stages, and {path} has {len(ours)}; {remedy}")
    for stage, (said, rank) in enumerate(zip(found.placement, ours, strict=True)):
        if said != rank:
            raise InputError(
                f"{place}: placement[{stage}]: stage {stage} on rank {said}, and on rank {rank} in {path}; {remedy}"
            )
    if len(found.sizes) != microbatches:
        raise InputError(f"{place}: sizes: {len(found.sizes)} micro-batches, and {path} has {microbatches}; {remedy}")
    return found
