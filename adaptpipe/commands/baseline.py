"""What a run is compared with: the schedule of a method, or one from a file."""

from __future__ import annotations

from pathlib import Path

from adaptpipe.solver import InputError, Problem, Result, Schedule, simulate
from adaptpipe.solver.core.updates import MEANING, Updates
from adaptpipe.solver.evaluate.simulate import require_fit
from adaptpipe.solver.methods import find_method
from adaptpipe.solver.pytorch import import_csv
from adaptpipe.solver.solving import solve

from .run_file import RunSpec

ENDINGS = (".json", ".csv")
"""Of a schedule file, and of PyTorch's."""


def check_methods(spec: RunSpec, bare: Problem) -> None:
    """See that a run's method and baseline exist, before anything is measured.

    Raises
    ------
    InputError
        When a method is unknown or does not exist for the shape, or the baseline's file is none, or of another shape.
    NoAnswerError
        When the baseline's file is a CSV that does not run.
    """
    names = {"baseline": spec.baseline_name} | ({} if spec.as_planned else {"method": spec.method})
    if _is_file(spec.baseline_name):
        _load(names.pop("baseline"), bare)
    for key, name in names.items():
        method = find_method(name)
        _require_flush(key, name, method.updates)
        try:
            method.require(bare)
            if method.build is not None:
                method.schedule(bare)
        except InputError as error:  # says which shapes there are, in the keys of a problem file
            reason = str(error).replace("pipeline.", "").replace("batch.", "")
            if key == "baseline" and not spec.baseline:
                reason += '; or set another baseline than this usual one, as baseline = "greedy"'
            raise InputError(f"{key} = {name!r}: {reason}") from None


def _require_flush(key: str, name: str, updates: Updates) -> None:
    """Refuse what trains with stale weights: a run ends every step, and holds gradients against the unsplit model's."""
    if updates != "step":
        raise InputError(
            f"{key} = {name!r}: {MEANING[updates]}, and a run trains with one update a batch, after a flush; "
            f"choose another {key}, as 1F1B, or, for PipeDream, train from Python with adaptpipe.executor.AsyncPipeline"
        )


def find_baseline(spec: RunSpec, problem: Problem) -> Result:
    """The baseline, at the prices of a problem."""
    name = spec.baseline_name
    if not _is_file(name):
        return solve(problem, name, objective=spec.objective, time_limit=spec.time_limit)
    return Result("given", spec.objective, simulate(problem, _load(name, problem)), 0, 0.0, found_by=Path(name).name)


def _is_file(name: str) -> bool:
    return Path(name).suffix in ENDINGS


def _load(name: str, problem: Problem) -> Schedule:
    schedule = import_csv(name, problem).schedule if name.endswith(".csv") else Schedule.load(name)
    try:
        require_fit(problem, schedule)
    except InputError as error:
        raise InputError(f"baseline = {name!r}: {error}") from None
    _require_flush("baseline", name, schedule.updates)
    return schedule
