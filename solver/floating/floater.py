"""The policy at one rank's side, step by step: what an executor asks."""

from __future__ import annotations

from ..core.ops import Op
from . import kernel
from .arrays import beginning
from .plan import FloatingPlan


class Floater:
    """Says what one rank runs next in one step of adaptive execution.

    Ask `next` whenever the rank is free, run what it says, report it by `finished`, and so on until `done`. F, I and B
    come in the schedule's order, so messages do too; weight units come in between, each once and after its I, such that
    the rank never holds more than its limit by the plan's bytes.

    Parameters
    ----------
    plan
        The schedule.
    rank
        Whose ops.

    Examples
    --------
    >>> from adaptpipe.solver import Problem
    >>> from adaptpipe.solver.heuristics.one_f_one_b import one_f_one_b_split
    >>> problem = Problem.from_dict({"pipeline": {"ranks": 2}, "batch": {"samples": 2}, "costs":
    ...     {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    >>> floater = Floater(FloatingPlan.of(problem, one_f_one_b_split(problem)), 0)
    >>> ops = []
    >>> while not floater.done:
    ...     op = floater.next(now=len(ops), arrived=True)
    ...     floater.finished(op)
    ...     ops.append(str(op))
    >>> " ".join(ops)
    '0F0 0F1 0I0 0I1 0W0 0W1'
    """

    def __init__(self, plan: FloatingPlan, rank: int) -> None:
        self._x, self._y = plan.pieces, beginning(plan.pieces)
        self._rank, self._parts = rank, plan.parts
        self._fixed, self._units = plan.fixed[rank], plan.units[rank]
        self._first, self._first_unit = int(self._x.fixed_at[rank]), int(self._x.unit_at[rank])
        self._running: tuple[int, int] | None = None

    @property
    def awaited(self) -> Op | None:
        """The next F, I or B; None after the last."""
        position = int(self._y.fixed[self._rank]) - self._first
        return self._fixed[position] if position < len(self._fixed) else None

    @property
    def done(self) -> bool:
        """Whether everything has run."""
        return self.awaited is None and int(self._y.ran[self._rank]) == len(self._units)

    def next(self, now: float, arrived: bool, held: int | None = None) -> Op | None:
        """What to run now.

        Parameters
        ----------
        now
            Ticks since the step began.
        arrived
            Whether all that `awaited` needs is there; of no matter when that is None.
        held
            Bytes that the rank holds, static memory included, as measured; None: as planned.

        Returns
        -------
        Op | None
            None: wait until the message of `awaited` is there, then ask again. Never None when it is there, unless
            more is held than planned and no unit is left that would free any of it.
        """
        assert self._running is None, "an op is running"
        assert not self.done, "everything has run"
        if held is not None:
            self._y.held[self._rank] = held
        began = round(now * self._parts)
        piece = int(kernel.choose(self._x, self._y, self._rank, began, arrived))
        if piece == kernel.WAIT:
            return None
        self._running = piece, began
        count = len(self._x.latest)
        return self._fixed[piece - self._first] if piece < count else self._units[piece - count - self._first_unit]

    def finished(self, op: Op) -> None:
        """Report that what `next` said last has run."""
        assert self._running is not None, f"{op} was not asked for"
        kernel.finish(self._x, self._y, self._rank, *self._running)
        self._running = None
