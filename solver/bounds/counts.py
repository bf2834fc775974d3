"""How much n micro-batches take at least, in ticks and bytes, whichever they are: what bounds by order count with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..core.instance import UNLIMITED
from ..core.schedule import Array
from .paths import PASS, REST, F, Paths

FAR = 2**61
"""Longer than any schedule."""


@dataclass(frozen=True)
class Counts:
    """Sums over the n cheapest micro-batches of a direction, shape (S, M + 1) for M micro-batches.

    Parameters
    ----------
    paths
        Of the instance.
    direction
        Which direction: the others' ops on the same ranks are left out, in time and memory.
    """

    paths: Paths
    direction: int

    @cached_property
    def batches(self) -> Array:
        """The direction's micro-batches, shape (M,)."""
        return np.flatnonzero(self.paths.direction[self.paths.kind] == self.direction)

    @cached_property
    def forward(self) -> Array:
        """Ticks of F."""
        return _sums(self.paths.ticks[F][:, self.batches])

    @cached_property
    def passed(self) -> Array:
        """Ticks until the gradient is passed on."""
        return _sums(self.paths.ticks[PASS][:, self.batches])

    @cached_property
    def whole(self) -> Array:
        """Ticks of whole backwards."""
        return _sums(self.paths.whole[:, self.batches])

    @cached_property
    def owner(self) -> Array:
        """Rank of each stage, shape (S,)."""
        owner: Array = self.paths.instance.rank[:, self.batches[0]]
        return owner

    @cached_property
    def below(self) -> Array:
        """Which stages lie on the same rank and come before, shape (S, S): [s, t] for t before s."""
        stages = np.arange(len(self.owner))
        below: Array = ((self.owner[:, None] == self.owner[None, :]) & (stages[None, :] < stages[:, None])).astype(int)
        return below

    @cached_property
    def lower(self) -> Array:
        """Ticks of F at the rank's stages before."""
        return self.below @ self.forward

    @cached_property
    def upper(self) -> Array:
        """Ticks of F, and until the gradient is passed on, at the rank's stages after."""
        return self.below.T @ (self.forward + self.passed)

    @cached_property
    def room(self) -> Array:
        """Bytes beyond static memory that a stage's rank has, shape (S,)."""
        instance = self.paths.instance
        limit = instance.limit[self.owner]
        # Beyond what all activations take, a limit is none; and so no sum can overflow.
        most = int(instance.activation.sum() + instance.retained.sum()) + 1
        room: Array = np.where(limit >= UNLIMITED, most, np.minimum(limit - instance.static[self.owner], most))
        return room

    @cached_property
    def _held(self) -> tuple[Array, Array]:
        """Bytes of each stage and micro-batch, shape (S, M): what its rank holds for it between F and I of that stage,
        and, without any weight gradient, once I has ended."""
        instance = self.paths.instance
        taken, kept = (table[:, self.batches] for table in (instance.activation, self.paths.retained))
        ahead = taken + self.below @ taken
        return ahead, self.below @ taken + kept + self.below.T @ kept

    @cached_property
    def ahead(self) -> Array:
        """Bytes of micro-batches that are between F and I of a stage: what that stage and the rank's stages before took
        for them."""
        return _sums(self._held[0])

    @cached_property
    def behind(self) -> Array:
        """Bytes of micro-batches whose I of a stage has ended, if nothing more was done for them: what the stages
        before took, and what I of this stage and of those after retains."""
        return _sums(self._held[1])

    @cached_property
    def most_behind(self) -> Array:
        """The same of the n that hold the most."""
        return _sums(-self._held[1]) * -1

    @cached_property
    def freed_before(self) -> Array:
        """Most bytes of `behind` that can have been freed when backward number n of a stage starts, shape (S, M): of n
        micro-batches here and at stages before, of as many as may have begun here at stages after."""
        instance = self.paths.instance
        taken, kept = (table[:, self.batches] for table in (instance.activation, self.paths.retained))
        here, after = (-1 * _sums(-part) for part in (self.below @ taken + kept, self.below.T @ kept))
        count = len(self.batches)
        begun = np.minimum(np.arange(count)[None, :] + np.maximum(self.window, 0)[:, None], count)
        freed: Array = here[:, :count] + np.take_along_axis(after, begun, axis=1)
        return freed

    @cached_property
    def window(self) -> Array:
        """How many micro-batches may be between F and I of a stage at once, shape (S,)."""
        fits = self.ahead <= self.room[:, None]
        window: Array = fits.sum(axis=1) - 1
        return window

    @cached_property
    def turns(self) -> tuple[Array, Array, Array]:
        """For each stage: the later stages t on its rank, and for each t two numbers, of shape (S, L), -1 where there
        is none.

        *After n F's ahead.* If F number j of stage s comes before F number i < j of t, then at the latter at most i
        backwards of t, so of s, are done: j + 1 - i micro-batches are between F and I of s, and one of them takes for t
        and the stages between. Memory lets that be for j - i <= n only. So F number j of s comes after F number
        j - n - 1 of t.

        Whatever is done of t at F number j of t, the micro-batches beyond the backwards of s hold what F took up to s,
        and one of them takes up to t: so F number j of t comes after backward number j - n - 1 of s, too.

        *After u unfinished.* Then j - n F's of t are done at F number j of s. With b backwards of t, the rank holds for
        j + 1 - b micro-batches what F took at s and before, and for j - n - b of these what it took beyond, up to t. It
        follows that j + 1 - b <= u: F number j of s comes after backward number j - u of t.
        """
        rows = [np.flatnonzero(self.below[:, s]) for s in range(len(self.owner))]
        later = np.full((len(rows), max(map(len, rows))), -1, dtype=np.int64)
        ahead, unfinished = np.zeros_like(later), np.zeros_like(later)
        taken = self._held[0]
        for s, row in enumerate(rows):
            later[s, : len(row)] = row
            for index, t in enumerate(row):
                room = int(self.room[s])
                n = int((self.ahead[s] + self.ahead[t, 1] <= room).sum()) - 1
                beyond = _sums((taken[t] - taken[s])[None])[0]
                numbers = np.arange(len(beyond))
                held = self.ahead[s] + beyond[np.maximum(numbers - n - 1, 0)]
                ahead[s, index], unfinished[s, index] = n, max(1, int((held <= room).sum()) - 1)
        return later, ahead, unfinished

    @cached_property
    def freeing(self) -> tuple[npt.NDArray[np.float64], Array, Array]:
        """What it takes to free bytes that `behind` counts: least ticks per byte (infinite: nothing can), most bytes
        that one op frees and least ticks of one, each of shape (S,)."""
        instance, batches = self.paths.instance, self.batches
        ticks = self.paths.ticks[:, :, batches]
        kept = self.paths.retained[:, batches]
        units = np.diff(instance.unit_ticks[:, batches], axis=2), np.diff(instance.unit_bytes[:, batches], axis=2)
        units = units[0], units[1] * (kept > 0)[:, :, None]
        back = instance.activation[:, batches] - kept
        # Ops that free: a W unit; the rest of a fused backward; and, for the stages before, I, or a backward whole.
        after = [_pieces(ticks[REST], kept), _pieces(*units)]
        before = [*after, _pieces(ticks[PASS], back)]
        from_here = (self.below.T + np.eye(len(self.owner), dtype=int)) > 0
        rate, most, least = np.full(len(kept), np.inf), np.zeros(len(kept), np.int64), np.full(len(kept), FAR)
        for parts, over in ((after, from_here), (before, self.below > 0)):
            for per_byte, largest, shortest in parts:
                rate = np.minimum(rate, np.where(over, per_byte[None, :], np.inf).min(axis=1))
                most = np.maximum(most, np.where(over, largest[None, :], 0).max(axis=1))
                least = np.minimum(least, np.where(over, shortest[None, :], FAR).min(axis=1))
        return rate, most, least


def _pieces(ticks: Array, held: Array) -> tuple[npt.NDArray[np.float64], Array, Array]:
    """Of ops of shape (S, ...): for each stage least ticks per byte, most bytes, least ticks, each of shape (S,)."""
    ticks, held = ticks.reshape(len(ticks), -1), held.reshape(len(held), -1)
    frees = held > 0
    rate = np.where(frees, ticks / np.maximum(held, 1), np.inf).min(axis=1)
    return rate, np.where(frees, held, 0).max(axis=1), np.where(frees, ticks, FAR).min(axis=1)


def _sums(table: Array) -> Array:
    """Sums of the n smallest of each row, for every n from 0; shape (S, M + 1)."""
    sums = np.zeros((table.shape[0], table.shape[1] + 1), dtype=np.int64)
    np.cumsum(np.sort(table, axis=1), axis=1, out=sums[:, 1:])
    return sums
