"""Static and adaptive execution of one schedule in the same random runs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from ..core.errors import InputError, NoAnswerError
from ..core.problem import Problem
from ..core.result import Objective
from ..core.schedule import Schedule
from ..evaluate.noise import EVALUATION, Noise
from ..evaluate.noisy import NORMAL, Noisy, run_value
from ..evaluate.scenario import Planned
from ..evaluate.simulate import simulate
from .plan import FloatingPlan, Order
from .simulate import Runs


@dataclass(frozen=True, slots=True)
class Disturbed:
    """How a schedule does under noise, its order fixed and with floating weight gradients.

    Parameters
    ----------
    noise
        Model of the runs.
    static, adaptive
        Values of the same runs; `adaptive` is None where adaptive execution was refused.
    reason
        Why it was.
    """

    noise: Noise
    static: Noisy
    adaptive: Noisy | None
    reason: str = ""

    @property
    def gain(self) -> tuple[float, float] | None:
        """How much shorter the adaptive runs are in the mean, as a share of the static mean, with 95 % half width."""
        if self.adaptive is None:
            return None
        gain, error = self.adaptive.gain(self.static)
        return gain, NORMAL * error

    def row(self) -> dict[str, object]:
        """The figures as plain data, in ticks; the gain is a share."""
        gain = self.gain
        return {
            "noise": str(self.noise),
            "seed": self.noise.seed,
            "static": self.static.row(),
            "adaptive": None if self.adaptive is None else self.adaptive.row(),
            "gain": None if gain is None else round(gain[0], 6),
            "gain_interval": None if gain is None else [round(gain[0] - gain[1], 6), round(gain[0] + gain[1], 6)],
            "reason": self.reason,
        }


def disturbed(
    problem: Problem,
    schedule: Schedule,
    noise: Noise,
    objective: Objective = "makespan",
    *,
    count: int = 100,
    order: Order = "planned",
    stream: int = EVALUATION,
) -> Disturbed:
    """Run a schedule statically and adaptively in the same random runs.

    Parameters
    ----------
    problem, schedule
        A valid schedule of the problem.
    noise, stream
        The runs.
    objective
        What is counted of each.
    count
        How many.
    order
        Which weight units come first.

    Raises
    ------
    InputError
        When the schedule is for another shape, the noise does not fit the problem, or `count` is below 1.
    NoAnswerError
        When the schedule cannot run.

    Examples
    --------
    >>> from adaptpipe.solver.heuristics.one_f_one_b import one_f_one_b_split
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 8}, "costs":
    ...     {"forward": 100, "backward_input": 100, "weight_units": [25, 25, 25, 25]}})
    >>> found = disturbed(problem, one_f_one_b_split(problem), Noise.parse("sigma=0.3"), count=20)
    >>> found.gain[0] > found.gain[1] > 0
    True
    """
    if count < 1:
        raise InputError(f"noise: {count} runs are too few; run at least 1")
    simulate(problem, schedule)
    instance = problem.instance(schedule.sizes)
    planned, runs, reason = Planned.of(instance, schedule), None, ""
    try:
        runs = Runs(FloatingPlan.of(problem, schedule, order=order))
    except NoAnswerError as error:
        reason = str(error)
    static: list[float] = []
    adaptive: list[float] = []
    for scenario in islice(noise.scenarios(instance, stream), count):
        static.append(run_value(schedule, planned, scenario, objective))
        if runs is not None:
            adaptive.append(runs.value(scenario, objective))
    return Disturbed(noise, Noisy(tuple(static)), None if runs is None else Noisy(tuple(adaptive)), reason)
