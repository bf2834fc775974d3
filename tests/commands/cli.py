"""Calling the command line in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from typer.testing import CliRunner, Result

from adaptpipe.commands.app import app

PROBLEM: dict[str, Any] = {
    "name": "tiny",
    "pipeline": {"ranks": 2},
    "batch": {"samples": 2},
    "costs": {"forward": 3, "backward_input": 4, "backward_weight": 2},
    "memory": {"unit": "MB", "activation": 3, "retained": 1, "limit": 6},
    "links": {"latency": 1},
}
ROWS = [["0F0", "0F1", "0B0", "0I1", "0W1"], ["1F0", "1B0", "1F1", "1B1"]]


def call(*words: object) -> Result:
    """Run a command; what it raises is raised here, apart from exits."""
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False, prog_name="adaptpipe")


def answer(result: Result) -> dict[str, Any]:
    """The one JSON object on stdout."""
    assert result.stdout.count("\n") == 1
    data: dict[str, Any] = msgspec.json.decode(result.stdout)
    return data


def write_problem(folder: Path, **other: Any) -> Path:
    """The tiny problem, with tables replaced."""
    path = folder / "problem.json"
    path.write_bytes(msgspec.json.encode(PROBLEM | other))
    return path


def write_schedule(folder: Path, rows: list[list[str]] | None = None) -> Path:
    """A schedule of the tiny problem."""
    from adaptpipe.solver import Schedule, place

    path = folder / "schedule.json"
    Schedule.parse(place("linear", 2), [1, 1], ROWS if rows is None else rows).save(path, "tiny")
    return path
