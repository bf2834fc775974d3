"""How a run's schedule is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adaptpipe.commands import planning
from adaptpipe.commands.run_file import RunSpec
from adaptpipe.solver import Problem, Result, solve
from adaptpipe.solver.core.profile import Profile
from tests.commands.cli import PROBLEM


@pytest.mark.parametrize(("method", "given"), [("auto", True), ("gpipe", False)])
def test_searches_start_from_the_baseline(monkeypatch: pytest.MonkeyPatch, method: str, given: bool) -> None:
    """A run whose search had no time left ended with a schedule slower than the baseline it had just made."""
    problem = Problem.from_dict(PROBLEM)
    baseline = solve(problem, "1F1B")
    starts = []

    def search(*_: object, start: Any = None, **__: object) -> Result:
        starts.append(start)
        return replace(baseline, method=method, found_by="start" if start else method)

    monkeypatch.setattr(planning, "priced", lambda *_: (problem, baseline))
    monkeypatch.setattr(planning, "solve", search)
    spec = RunSpec(method=method, granularity="none")
    _, _, ours, _ = planning.plan(spec, Profile("", (), 0.0))
    assert starts == [baseline.schedule if given else None]
    assert ours.found_by == ("1F1B" if given else "gpipe")
