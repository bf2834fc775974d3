"""Which layers belong to which stage. Every layer belongs to exactly one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise

from adaptpipe.solver import InputError

from .config import ModelConfig


def split_layers(count: int, stages: int, weights: Sequence[float] | None = None) -> tuple[range, ...]:
    """Cut a list of layers into contiguous stages that cover every layer exactly once.

    Without weights the stages' lengths differ by at most one, longer ones first. With weights the heaviest stage is
    as light as it can be; among such splits it takes the one with the least sum of squares of the stages' weights,
    then the one whose first stages are longest.

    Parameters
    ----------
    count
        Number of layers.
    stages
        Number of stages, each of which gets at least one layer.
    weights
        For each layer, its cost in any unit, such as seconds or parameters; finite and not negative.

    Returns
    -------
    tuple of range
        For each stage, the indices of its layers.

    Raises
    ------
    InputError
        If there are more stages than layers, or none, or the weights do not fit.

    Notes
    -----
    Exact dynamic programmes over the last boundary, as for the linear partition problem (Skiena, "The Algorithm
    Design Manual", section 10.7); O(stages × count²).

    Examples
    --------
    >>> [len(part) for part in split_layers(30, 4)]
    [8, 8, 7, 7]
    >>> split_layers(5, 2, weights=[1, 1, 1, 1, 4])
    (range(0, 4), range(4, 5))
    """
    if count < 1:
        raise InputError(f"layers = {count}: a model has at least one")
    if stages < 1:
        raise InputError(f"stages = {stages}: must be at least 1")
    if stages > count:
        raise InputError(
            f"stages = {stages} and layers = {count}: each stage needs a layer of its own; "
            f"use at most {count} stages, or a model of at least {stages} layers"
        )
    if weights is None:
        each, longer = divmod(count, stages)
        bounds = [stage * each + min(stage, longer) for stage in range(stages + 1)]
    else:
        _check_weights(count, weights)
        bounds = _balanced(weights, stages)
    return tuple(range(start, stop) for start, stop in pairwise(bounds))


def describe_split(config: ModelConfig, parts: Sequence[range]) -> tuple[str, ...]:
    """One line for each stage: its layers and its number of parameters; and one for all of them.

    Raises
    ------
    InputError
        When a layer is in no stage, or in several.

    Examples
    --------
    >>> from adaptpipe.models import GPTConfig
    >>> config = GPTConfig(layers=3, width=8, heads=2, sequence=16)
    >>> for line in describe_split(config, split_layers(5, 2)):
    ...     print(line)
    stage 0: 3 layers, embedding to block 1, 3,920 parameters
    stage 1: 2 layers, block 2 to head, 3,192 parameters
    all stages: 5 layers, each in one stage, 7,112 parameters, those of the model
    """
    names, parameters = config.layer_names, config.layer_parameters
    found = [layer for part in parts for layer in part]
    if found != list(range(len(names))):
        raise InputError(
            f"stages have the layers {found}: each of the {len(names)} layers must be in one stage, in order; "
            "split_layers makes such stages"
        )
    total = sum(sum(parameters[part.start : part.stop]) for part in parts)
    shared = f"; {len(config.ties)} of the model's matrices in several layers, and counted in each" * bool(config.ties)
    lines = tuple(
        f"stage {stage}: {len(part)} layer{'s' * (len(part) > 1)}, "
        f"{names[part[0]]}{f' to {names[part[-1]]}' * (len(part) > 1)}, "
        f"{sum(parameters[part.start : part.stop]):,} parameters"
        for stage, part in enumerate(parts)
    )
    return (
        *lines,
        f"all stages: {len(found)} layers, each in one stage, {total:,} parameters, those of the model{shared}",
    )


def _check_weights(count: int, weights: Sequence[float]) -> None:
    if len(weights) != count:
        raise InputError(f"weights: {len(weights)} for {count} layers; give one weight for each layer")
    for layer, weight in enumerate(weights):
        if not math.isfinite(weight) or weight < 0:
            raise InputError(f"weights[{layer}] = {weight}: must be finite and not negative")


def _balanced(weights: Sequence[float], stages: int) -> list[int]:
    """Boundaries of the best split: two programmes, the second among the optima of the first."""
    count = len(weights)
    total = [0, *accumulate(_as_integers(weights))]  # of the layers before each boundary

    # least[i]: the least possible heaviest stage when layers i… form the last k stages.
    least = [total[count] - before for before in total]
    for k in range(2, stages + 1):
        for i in range(count - k + 1):
            least[i] = min(max(total[j] - total[i], least[j]) for j in range(i + 1, count - k + 2))
    heaviest = least[0]
    too_much = stages * heaviest**2 + 1

    # cost[i]: the least sum of squares of the last k stages when none is too heavy; ends[k - 1][i]: where their
    # first stage ends.
    def square(i: int, j: int) -> int:
        weight = total[j] - total[i]
        return weight**2 if weight <= heaviest else too_much

    cost = [square(i, count) for i in range(count)]
    ends = [[count] * count]
    for k in range(2, stages + 1):
        end = [count] * count
        for i in range(count - k + 1):
            cost[i], minus_end = min((square(i, j) + cost[j], -j) for j in range(i + 1, count - k + 2))
            end[i] = -minus_end
        ends.append(end)
    bounds = [0]
    for end in reversed(ends):
        bounds.append(end[bounds[-1]])
    return bounds


def _as_integers(weights: Sequence[float]) -> list[int]:
    """The weights times a common factor, without rounding, so that equal loads compare as equal."""
    exact = [Fraction(weight) if isinstance(weight, int) else Fraction(float(weight)) for weight in weights]
    factor = math.lcm(*(weight.denominator for weight in exact))
    return [int(weight * factor) for weight in exact]
