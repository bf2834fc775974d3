"""Answering one question: what it is about, whether it can fit at all, the search, and what is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from adaptpipe.solver.planning.answer import Answer, answer
from adaptpipe.solver.planning.files.plan_file import PlanFile
from adaptpipe.solver.planning.plan import Plan
from adaptpipe.solver.portfolio.request import Progress

from .figures import row
from .fitting import require_room
from .question import Question
from .subject import Subject, subject


@dataclass(frozen=True, slots=True)
class Effort:
    """What an answer may take.

    Attributes
    ----------
    time_limit
        Seconds for everything.
    workers
        Threads.
    seed
        Of everything.
    """

    time_limit: float
    workers: int
    seed: int


def ask(question: Question, effort: Effort, tell: Callable[[Progress], None] | None = None) -> tuple[Subject, Answer]:
    """Answer a question.

    Raises
    ------
    InputError
        When it is not to be asked.
    NoRoomError
        When nothing fits, with what would make it fit.
    NoAnswerError
        When nothing was found in the time.
    """
    about = subject(question)
    require_room(about)
    found = answer(
        about.workload, time_limit=effort.time_limit, workers=effort.workers, seed=effort.seed, on_progress=tell
    )
    return about, found


def require_place(output: Path | None) -> None:
    """Refuse a place that cannot be written to, and make the folder, before the work is done.

    Raises
    ------
    InputError
        When it is neither a .json file nor a folder that can be made.
    """
    from ..common import make_folder, require_writable

    if output is None:
        return
    if output.suffix == ".json":
        require_writable(output)
    else:
        make_folder(output, "--output", "a file's name ends in .json")
        require_writable(output / "plan.json")


def write(output: Path, about: Subject, found: Answer) -> tuple[Path, ...]:
    """Write the plan's file; into a folder also its problem and schedule, and the best of today's schedules.

    Returns
    -------
    tuple of Path
        What was written.
    """
    figures = row(about, found)
    if output.suffix == ".json":
        return (_save(found.plan, output, about, figures),)
    plan, timeline = found.plan, found.plan.timeline
    written = [_save(plan, output / "plan.json", about, figures)]
    timeline.problem.save(output / "problem.json")
    timeline.schedule.save(output / "schedule.json", timeline.problem.name)
    written += [output / "problem.json", output / "schedule.json"]
    if found.base is not None:
        today = found.base.plan(found.workload)
        written.append(_save(today, output / "today.json", about, {"makespan": today.makespan}))
    return tuple(written)


def _save(plan: Plan, path: Path, about: Subject, figures: dict[str, object]) -> Path:
    PlanFile.of(plan, about.model, about.cluster, figures).save(path)
    return path
