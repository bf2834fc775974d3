"""`adaptpipe check`: valid or not, and where."""

from __future__ import annotations

import typer

from adaptpipe.solver import Problem, Schedule

from .common import NO, compilation_notice, emit, json_option, patience, problem_argument, schedule_argument

SHOWN = 5
"""Violations that are drawn; the others are counted."""


def check(problem: problem_argument, schedule: schedule_argument, json: json_option = False) -> None:
    """Say whether a schedule is valid for a problem, and mark the place where it is not. Exits with 1 then."""
    loaded, given = Problem.load(problem), Schedule.load(schedule)
    with patience(compilation_notice()):
        from adaptpipe.solver.evaluate.check import check as find
        from adaptpipe.solver.evaluate.grid import mark

        found = find(loaded, given)
    if json:
        places = [{"rank": v.rank, "position": v.position, "message": v.message} for v in found]
        emit({"problem": loaded.name, "valid": not found, "violations": places})
    elif not found:
        print(f"valid: {sum(map(len, given.ops)):,} ops on {loaded.ranks} ranks")
    else:
        for violation in found[:SHOWN]:
            print(violation.message)
            print(mark(given, violation) + "\n")
        rest = f"; the first {SHOWN} are shown" if len(found) > SHOWN else ""
        print(f"not valid: {len(found)} violation{'s' * (len(found) > 1)}{rest}")
    if found:
        raise typer.Exit(NO)
