"""The random runs that a robust search works with: as many as there is time for."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..core.errors import InputError
from ..core.instance import LONGEST, Instance
from ..core.schedule import Array, Schedule
from ..evaluate.noise import TRAINING, VALIDATION, Noise
from ..evaluate.scenario import Planned, fine_parts

FEWEST = 15
"""Runs that a search needs at least; with fewer, most of what is gained in them is lost in others."""

DRAW_SHARE = 0.3
"""Share of the time that is left in which runs are drawn."""

_ROW = 8
"""Numbers that processors add at once: the plan and the runs of a search are a multiple of it where time is short."""


@dataclass(frozen=True, slots=True)
class Times:
    """What the ops of a schedule take in one run, in parts of a tick.

    Parameters
    ----------
    ticks
        Duration of each op, shape (n,).
    lags
        Message times to each op, shape (n, 2).
    horizon
        Sum of all: above any makespan.
    """

    ticks: Array
    lags: Array
    horizon: float


@dataclass(frozen=True, slots=True)
class Draw:
    """The plan, the runs that moves are judged by, and as many others that decide which order is taken.

    Parameters
    ----------
    parts
        Times are integers in this part of a tick.
    plan, training, validation
        Times without noise, and in each run.
    """

    parts: int
    plan: Times
    training: tuple[Times, ...]
    validation: tuple[Times, ...]


def draw(
    instance: Instance, schedule: Schedule, noise: Noise, count: int, deadline: float | None = None
) -> Draw | None:
    """Draw the runs, with an eye on the clock.

    Parameters
    ----------
    instance, schedule
        The problem with its sizes, and the order that the search starts from.
    count
        Random runs of each kind.
    deadline
        Value of `time.monotonic()` at which the search ends. The runs get `DRAW_SHARE` of the time until then, and are
        fewer than `count` where that is too short.

    Returns
    -------
    Draw | None
        None where there is no time for `FEWEST` runs.

    Raises
    ------
    InputError
        When times leave the range of integers.
    """
    now = time.monotonic()
    until = None if deadline is None else now + DRAW_SHARE * (deadline - now)
    planned, parts = Planned.of(instance, schedule), fine_parts(instance)
    training: list[Times] = []
    validation: list[Times] = []
    pairs = zip(noise.scenarios(instance, TRAINING), noise.scenarios(instance, VALIDATION), strict=False)
    while len(training) < count and (until is None or time.monotonic() < until):
        for scenario, runs in zip(next(pairs), (training, validation), strict=True):
            runs.append(Times(*scenario.times(planned), scenario.horizon))
    drawn = len(training)
    if drawn < count:
        drawn = (drawn + 1) // _ROW * _ROW - 1
        if drawn < FEWEST:
            return None
    silent = Noise(sigma=0, link=0).scenario(instance, 0, parts=parts)
    plan = Times(*silent.times(planned), silent.horizon)
    return Draw(parts, plan, tuple(training[:drawn]), tuple(validation[:drawn]))


def require_sums(runs: tuple[Times, ...], weights: int) -> None:
    """Refuse runs whose weighted sum of values may leave the range of integers.

    Raises
    ------
    InputError
        When it may.
    """
    horizon = max(run.horizon for run in runs) * float(weights)
    if horizon > LONGEST:
        raise InputError(
            f"robust: the durations of all scenarios sum to {horizon:.3g}, above 2^60; choose a coarser unit"
        )
