"""Schedule files: JSON with a format version and the fingerprint of the problem's shape."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import msgspec

from ..core.errors import InputError
from ..core.placement import Placement, explicit, place
from ..core.schedule import Schedule
from ..core.updates import Updates, require_updates
from .reading import read_struct, write_text

FORMAT = "adaptpipe-schedule"
VERSION = 1


class ScheduleSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule file."""

    format: str
    version: int
    fingerprint: str
    ranks: int
    placement: list[list[int]]
    sizes: list[int]
    ops: list[list[str]]
    problem: str = ""
    slices: Annotated[int, msgspec.Meta(ge=1)] = 1
    updates: str = "step"


def load_schedule(path: str | Path) -> Schedule:
    """Read a schedule file.

    Raises
    ------
    InputError
        With file, key (or rank and position) and remedy.
    """
    spec = read_struct(path, ScheduleSpec)
    try:
        return from_spec(spec)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def from_spec(spec: ScheduleSpec) -> Schedule:
    """Schedule of a file's content.

    Raises
    ------
    InputError
        With key (or rank and position) and remedy.
    """
    if spec.format != FORMAT:
        raise InputError(f"format: {spec.format!r} is not {FORMAT!r}; this is another kind of file")
    if spec.version != VERSION:
        raise InputError(f"version: {spec.version} is not {VERSION}, the one this release reads")
    if len(spec.placement) not in (1, 2):
        raise InputError(f"placement: {len(spec.placement)} directions; there are one or two")
    require_updates(spec.updates)
    updates = cast(Updates, spec.updates)
    schedule = Schedule.parse(_placement(spec), spec.sizes, spec.ops, spec.slices, updates)
    if schedule.fingerprint != spec.fingerprint:
        raise InputError(
            f"fingerprint: {spec.fingerprint!r} does not belong to this placement and these sizes "
            f"({schedule.fingerprint!r}); the file was edited by hand: solve again, or correct it"
        )
    return schedule


def _placement(spec: ScheduleSpec) -> Placement:
    directions = tuple(tuple(row) for row in spec.placement)
    if len(directions) == 1:
        return explicit(spec.ranks, directions[0])
    placement = Placement(spec.ranks, directions)
    mirror = place("bidirectional", spec.ranks)
    return mirror if mirror.stages == directions else placement


def as_spec(schedule: Schedule, problem: str = "") -> ScheduleSpec:
    """Content of a schedule's file."""
    return ScheduleSpec(
        format=FORMAT,
        version=VERSION,
        problem=problem,
        fingerprint=schedule.fingerprint,
        ranks=schedule.placement.ranks,
        placement=[list(row) for row in schedule.placement.stages],
        sizes=list(schedule.sizes),
        updates=schedule.updates,
        ops=[[str(op) for op in row] for row in schedule.ops],
        slices=schedule.slices,
    )


def save_schedule(schedule: Schedule, path: str | Path, problem: str = "") -> None:
    """Write a schedule as JSON, one line for each rank.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    spec = as_spec(schedule, problem)
    fields: dict[str, object] = msgspec.to_builtins(spec)
    ops = ",\n  ".join(msgspec.json.encode(row).decode() for row in spec.ops)
    lines = [
        f" {msgspec.json.encode(key).decode()}: {msgspec.json.encode(value).decode()}"
        for key, value in fields.items()
        if key != "ops" and not (key == "slices" and schedule.slices == 1)
    ]
    write_text(path, "{\n" + ",\n".join([*lines, f' "ops": [\n  {ops}\n ]']) + "\n}\n")
