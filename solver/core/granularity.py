"""Which sizes of work a search may choose: fused backwards, ranges of weight units, micro-batch sizes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from .errors import InputError
from .problem import Affine, Cost, Problem


@dataclass(frozen=True, slots=True)
class Granularity:
    """What a search decides beside the order; what it does not is as coarse, or as split, as can be.

    Parameters
    ----------
    fused
        Each backward is I and W, or one B. Else it is always I and W.
    units
        A weight gradient may be cut into ranges of its units, which run apart. Else it is whole.
    sizes
        Micro-batches may differ in size in any way the problem allows. Else the batch is divided near-uniformly: sizes
        differ by one sample at most, where such a division fits in memory.

    Examples
    --------
    >>> str(Granularity()), str(Granularity.parse("units, fused")), str(Granularity.parse("none"))
    ('fused,units,sizes', 'fused,units', 'none')
    """

    fused: bool = True
    units: bool = True
    sizes: bool = True

    @classmethod
    def parse(cls, text: str) -> Granularity:
        """Granularity from a list of its names, separated by commas; or "all", or "none".

        Raises
        ------
        InputError
            With the names that there are.
        """
        names = [each.name for each in fields(cls)]
        parts = [part.strip().casefold() for part in text.split(",")]
        chosen = {"all": names, "none": []}.get(",".join(parts), parts)
        for name in chosen:
            if name in ("all", "none"):
                raise InputError(f"granularity: {name!r} stands alone; write it, or some of {', '.join(names)}")
            if name not in names:
                raise InputError(f"granularity: {name!r} is none of {', '.join(names)}, all, none")
        return cls(**{name: name in chosen for name in names})

    def __str__(self) -> str:
        return ",".join(each.name for each in fields(self) if getattr(self, each.name)) or "none"

    def restricted(self, problem: Problem) -> Problem:
        """The problem without the prices of what is not to be chosen: whole W's, and a B that is I and W in a row.

        Every schedule without B's, and with whole W's, takes as long and holds as much here as in the problem itself.

        Examples
        --------
        >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 4}, "costs":
        ...     {"forward": 4, "backward_input": 4, "backward": 7, "weight_units": [2, 2]}})
        >>> coarse = Granularity.parse("none").restricted(problem)
        >>> coarse.backward, coarse.weight_units
        (None, ((4,), (4,)))
        """
        if not self.fused and problem.backward is not None:
            problem = replace(problem, backward=None)
        if not self.units and any(len(units) > 1 for units in problem.weight_units):
            memory, shares = problem.memory, problem.memory.retained_units
            if shares is not None:
                whole = tuple(total(units) for units in shares)
                memory = replace(memory, retained=whole, retained_units=None)
            weight = tuple((total(units),) for units in problem.weight_units)
            problem = replace(problem, weight_units=weight, memory=memory, overhead=(0,) * problem.stages)
        return problem


def total(costs: tuple[Cost, ...]) -> Cost:
    """The sum of some costs: a plain number where all are.

    Examples
    --------
    >>> total((1, 2)), total((Affine(1, 2), 3))
    (3, Affine(fixed=4, per_sample=2))
    """
    if all(isinstance(cost, int) for cost in costs):
        return sum(cost for cost in costs if isinstance(cost, int))
    parts = [cost if isinstance(cost, Affine) else Affine(cost, 0) for cost in costs]
    return Affine(sum(part.fixed for part in parts), sum(part.per_sample for part in parts))


ALL, NONE = Granularity(), Granularity(fused=False, units=False, sizes=False)
"""Everything is chosen; nothing but the order is."""
