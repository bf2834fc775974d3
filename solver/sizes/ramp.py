"""Divisions of a batch whose micro-batches grow, stay and shrink."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from ..core.division import Sizes, fewest


@dataclass(frozen=True, slots=True)
class Ramp:
    """Small micro-batches fill and drain a pipeline sooner; large ones between them pay fixed costs less often.

    Parameters
    ----------
    size
        The largest size, one of the allowed ones.
    up, down
        Micro-batches on the way up to it, and on the way down.
    first, last
        Sizes at which the ways begin and end.
    early
        Whether what the constant part leaves over goes to the way up, else to the way down.

    Examples
    --------
    >>> Ramp(4, up=5, down=4).divide(40, (1, 2, 3, 4))
    (1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 3, 2, 2, 1, 1)
    """

    size: int
    up: int
    down: int
    first: int = 1
    last: int = 1
    early: bool = False

    def divide(self, samples: int, sizes: Sizes) -> Sizes | None:
        """The division of a batch into allowed sizes (ascending) in this shape; None where there is none.

        Examples
        --------
        >>> Ramp(4, up=2, down=1).divide(20, (1, 2, 4, 8)), Ramp(4, up=1, down=0).divide(9, (2, 4))
        ((1, 2, 4, 4, 4, 4, 1), None)
        """
        rise, fall = _way(self.size, self.up, self.first, sizes), _way(self.size, self.down, self.last, sizes)
        number, rest = divmod(samples - sum(rise) - sum(fall), self.size)
        if number < 0:
            return None
        smaller = tuple(each for each in sizes if each < self.size)
        # Where the rest is no sum of the sizes below, some of the largest are given up for it.
        for given in range(min(number, sizes[0]) + 1):
            filled = _fewest(rest + given * self.size, smaller)
            if filled is not None:
                middle = (self.size,) * (number - given)
                if self.early:
                    return (*sorted((*rise, *filled)), *middle, *reversed(fall))
                return (*rise, *middle, *sorted((*fall, *filled), reverse=True))
        return None


@lru_cache(maxsize=4096)
def _way(size: int, length: int, end: int, sizes: Sizes) -> Sizes:
    """Allowed sizes nearest to a straight way of some micro-batches from `end` to just below `size`."""
    low, steps = max(end, sizes[0]), sizes[: bisect_right(sizes, size)]
    way = []
    for k in range(length):
        wanted = low + (size - low) * k / length
        way.append(min(steps, key=lambda each: (abs(each - wanted), each)))
    return tuple(way)


@lru_cache(maxsize=4096)
def _fewest(rest: int, sizes: Sizes) -> Sizes | None:
    return () if rest == 0 else fewest(rest, sizes) if sizes else None


def ramps(samples: int, sizes: Sizes, length: int, likely: int) -> Iterator[Ramp]:
    """A coarse grid of shapes that divide a batch, likely winners first; no two give the same division.

    Parameters
    ----------
    samples, sizes
        The batch, and the allowed sizes, ascending.
    length
        Ranks that a micro-batch passes one after another: ways are some parts and multiples of it.
    likely
        The largest size of a good near-uniform division; others near it are tried too.

    Examples
    --------
    >>> [shape.divide(12, (1, 2, 3)) for shape, _ in zip(ramps(12, (1, 2, 3), 2, 3), range(3))]
    [(1, 2, 3, 3, 2, 1), (1, 2, 2, 3, 3, 1), (1, 3, 3, 3, 1, 1)]
    """
    middle = bisect_right(sizes, likely) - 1
    near = sorted(range(len(sizes)), key=lambda z: (abs(z - middle), -z))[:_LARGEST]
    parts = {share: max(1, round(length * share)) for share in _UP + _DOWN if share}
    seen: set[Sizes] = set()
    for z, first, down, up, early in product(near, (0, 1), _DOWN, _UP, (False, True)):
        size, end = sizes[z], sizes[min(first * (z // 2), z)]
        if (first and (end == sizes[0] or not (up or down))) or size > samples:
            continue
        shape = Ramp(size, parts.get(up, 0), parts.get(down, 0), end, end, early)
        division = shape.divide(samples, sizes)
        if division is not None and division not in seen:
            seen.add(division)
            yield shape


_UP, _DOWN = (1, 0.5, 1.5, 0.75, 0.25, 2, 0), (0.25, 0.5, 0, 1)
"""Lengths of the ways, in multiples of the ranks, likely winners first."""

_LARGEST = 5
"""Largest sizes that are tried."""


def neighbours(shape: Ramp, sizes: Sizes) -> Iterator[Ramp]:
    """Shapes that differ from one in a step of one parameter, or of both lengths.

    Examples
    --------
    >>> len(set(neighbours(Ramp(4, 5, 4), (1, 2, 3, 4, 5))))
    11
    """

    def near(size: int) -> Iterator[int]:
        z = bisect_right(sizes, size) - 1
        yield from (sizes[other] for other in (z - 1, z + 1) if 0 <= other < len(sizes))

    yield from (replace(shape, size=size) for size in near(shape.size))
    yield from (replace(shape, first=size) for size in near(shape.first) if size <= shape.size)
    yield from (replace(shape, last=size) for size in near(shape.last) if size <= shape.size)
    for up, down in ((-1, 0), (1, 0), (0, -1), (0, 1), (-1, 1), (1, -1)):
        if shape.up + up >= 0 and shape.down + down >= 0:
            yield replace(shape, up=shape.up + up, down=shape.down + down)
    yield replace(shape, early=not shape.early)
