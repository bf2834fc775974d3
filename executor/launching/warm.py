"""Imported by the fork server: loads the compiled code that every rank needs, once instead of in each of them."""

from __future__ import annotations

from adaptpipe.solver import Problem
from adaptpipe.solver.floating import Floater, FloatingPlan
from adaptpipe.solver.heuristics import one_f_one_b_split


def _warm_up() -> None:
    costs = {"forward": 1, "backward_input": 1, "backward_weight": 1}
    problem = Problem.from_dict({"pipeline": {"ranks": 1}, "batch": {"samples": 1}, "costs": costs})
    floater = Floater(FloatingPlan.of(problem, one_f_one_b_split(problem)), 0)
    while not floater.done:
        op = floater.next(0.0, arrived=True)
        assert op is not None, "nothing is waited for"
        floater.finished(op)


_warm_up()
