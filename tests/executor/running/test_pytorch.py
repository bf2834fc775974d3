"""PyTorch runs our schedules, and we run PyTorch's."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptpipe.executor.launching.launcher import launch
from adaptpipe.solver import Schedule, explicit, place
from adaptpipe.solver.heuristics import one_f_one_b, zb_h1, zb_v
from adaptpipe.solver.pytorch import export_csv, import_csv
from tests.theirs import LINEAR, LOOP, V, dump, theirs

from ..orders import problem_for, schedule_for
from . import pipeline_jobs as jobs
from . import pytorch_jobs

pytestmark = pytest.mark.timeout(120)


def test_pytorch_runs_our_schedules(tmp_path: Path) -> None:
    """The same gradients from the ops alone and with messages: fused, split and mixed backwards, in any order."""
    tables: list[pytorch_jobs.Table] = []

    def add(name: str, schedule: Schedule) -> None:
        problem = problem_for(schedule.placement, schedule.sizes)
        for messages in (False, True):
            path = tmp_path / f"{name}-{messages}.csv"
            export_csv(problem, schedule, path, messages=messages)
            row = schedule.placement.stages[0]
            kind = "compute_comms" if messages else "compute_only"
            tables.append(pytorch_jobs.Table(name, str(path), kind, row, schedule.microbatches))

    linear, v, loop = place("linear", 2), place("v", 2, 2), place("loop", 2, 2)
    four = (2,) * 4
    add("1F1B", one_f_one_b(problem_for(linear, four), four))
    add("ZB-H1", zb_h1(problem_for(linear, four), four))
    add("ZB-V", zb_v(problem_for(v, four), four))
    for seed, placement in enumerate((linear, v, loop, explicit(2, (0, 0, 1, 1)))):
        # Micro-batches out of order get the numbers by which PyTorch finds their losses.
        add(f"random {placement.stages}", schedule_for(placement, (2,) * 3, "random", seed))
    texts = [Path(table.path).read_text() for table in tables if "random" in table.name]
    assert all("I" in text and "B" in text for text in texts)
    for rank in launch(pytorch_jobs.run_theirs, 2, tables, threads=1):
        assert len(rank) == len(tables) == 14
        for name, gradient in rank:
            assert gradient < 1e-5, name


@pytest.mark.parametrize("ranks", [2, 4])
def test_we_run_pytorchs_schedules(ranks: int, tmp_path: Path) -> None:
    """Each from its own CSV; the number of micro-batches need not be divisible by that of the ranks.

    Interleaved schedules refused 3 micro-batches on 4 ranks, and 10: pytorch PR#129597, PiPPy PR#1048.
    """
    cases = []
    for name in (*LINEAR, *LOOP, *V):
        counts = {"1F1B": (ranks, ranks + 1), "DualPipeV": (2 * ranks, 2 * ranks + 1)}
        pair = counts.get(name, (1, 3) if ranks == 2 else (3, 10))
        for count, model in zip(pair, ("gpt", "mixed"), strict=True):
            schedule = import_csv(dump(theirs(name, ranks, count), tmp_path / "s.csv")).schedule
            problem = problem_for(schedule.placement, schedule.sizes)
            cases.append(jobs.Case(f"{name} m={count} {model}", model, problem, schedule))
    for rank in launch(jobs.compare_all, ranks, cases, threads=1):
        for case, gradient, loss in rank:
            assert gradient < 1e-5, case
            assert loss < 1e-5, case


def test_stages_in_the_wrong_place_are_refused_before_the_first_message(tmp_path: Path) -> None:
    """A V schedule with looped stages died in a KeyError deep inside the step: pytorch/torchtitan#774.

    Torch 2.13 tries to allocate 644,016,129,693,450,240 bytes on one rank; the other loses its connection.
    """
    schedule = import_csv(dump(theirs("ZBVZeroBubble", 2, 4), tmp_path / "s.csv")).schedule
    case = jobs.Case("", "gpt", problem_for(schedule.placement, schedule.sizes), schedule)
    looped = {0: [0, 2], 1: [1, 3]}
    for message in launch(jobs.wrong_start, 2, (case, looped)):
        assert message == (
            "InputError: rank 0 was given the stages [0, 2], and the schedule's placement has [0, 3] there: "
            "stage to rank is [0, 1, 1, 0]"
        )
