"""What the plan says of single ops, weight units among them."""

from __future__ import annotations

from adaptpipe.solver import Kind, Op
from adaptpipe.solver.core.instance import Instance


class Prices:
    """Planned ticks and bytes of ops, whatever order they run in.

    Parameters
    ----------
    instance
        The problem with its sizes.

    Examples
    --------
    >>> from adaptpipe.solver import Problem
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 1}, "batch": {"samples": 1}, "costs":
    ...     {"forward": 5, "backward_input": 4, "weight_units": [2, 3], "overhead": 1}})
    >>> prices = Prices(problem.instance((1,)))
    >>> first, second = Op(0, Kind.W, 0, (0, 1)), Op(0, Kind.W, 0, (1, 2))
    >>> prices.ticks(first), prices.ticks(second), prices.ticks(second, after=first)
    (2, 4, 3)
    """

    def __init__(self, instance: Instance) -> None:
        self._x = instance

    def ticks(self, op: Op, after: Op | None = None) -> int:
        """Ticks of an op; `after` is the op before, where a range that goes on with its units costs no overhead."""
        x, s, j = self._x, op.stage, op.microbatch
        match op.kind:
            case Kind.F:
                return int(x.forward[s, j])
            case Kind.I:
                return int(x.backward_input[s, j])
            case Kind.B:
                return int(x.backward[s, j])
            case Kind.W:
                start, stop = self._range(op)
                units = int(x.unit_ticks[s, j, stop] - x.unit_ticks[s, j, start])
                goes_on = after is not None and after.kind is Kind.W and (after.stage, after.microbatch) == (s, j)
                free = start == 0 or (goes_on and after is not None and self._range(after)[1] == start)
                return units + (0 if free else int(x.overhead[s]))

    def kept(self, op: Op) -> int:
        """Bytes that an op leaves held, less those before: negative where it frees."""
        x, s, j = self._x, op.stage, op.microbatch
        match op.kind:
            case Kind.F:
                return int(x.activation[s, j])
            case Kind.I:
                return int(x.retained[s, j] - x.activation[s, j])
            case Kind.B:
                return -int(x.activation[s, j])
            case Kind.W:
                start, stop = self._range(op)
                return int(x.unit_bytes[s, j, start] - x.unit_bytes[s, j, stop])

    def _range(self, op: Op) -> tuple[int, int]:
        last = self._x.unit_ticks.shape[2] - 1
        start, stop = op.units or (0, last)
        return min(start, last), min(stop, last)
