"""Divisions of a batch into micro-batches of allowed sizes."""

from __future__ import annotations

from collections.abc import Iterator

Sizes = tuple[int, ...]


def uniform_counts(samples: int, sizes: Sizes) -> Iterator[int]:
    """Numbers of micro-batches whose near-uniform division uses allowed sizes only, descending.

    Examples
    --------
    >>> list(uniform_counts(12, (3, 4, 6)))
    [4, 3, 2]
    """
    legal = set(sizes)
    for base in sizes:
        if base + 1 in legal:
            yield from range(samples // base, samples // (base + 1), -1)
        elif samples >= base and samples % base == 0:
            yield samples // base


def fewest(samples: int, sizes: Sizes) -> Sizes | None:
    """The division into fewest micro-batches, ascending; None where no sum of the sizes gives the batch.

    The table of least numbers has one entry for each number of samples, and is filled size by size: along steps of a
    size, the least of `table - steps` so far, plus the steps, says what adding that size repeatedly leads to.

    Examples
    --------
    >>> fewest(11, (3, 5)), fewest(7, (3, 5))
    ((3, 3, 5), None)
    """
    import numpy as np

    table = np.full(samples + 1, never := 1 << 40, dtype=np.int64)
    table[0] = 0
    for size in sizes:
        rows = -(-(samples + 1) // size)
        grid = np.full(rows * size, never, dtype=np.int64)
        grid[: samples + 1] = table
        steps = np.arange(rows)[:, None]
        grid = (np.minimum.accumulate(grid.reshape(rows, size) - steps, axis=0) + steps).reshape(-1)
        table = grid[: samples + 1]
    if table[samples] >= never:
        return None
    found, total = [], samples
    # A size that no best division of the total has is in none of what is left after other sizes are taken away.
    for size in reversed(sizes):
        while total >= size and table[total - size] == table[total] - 1:
            found.append(size)
            total -= size
    return tuple(reversed(found))


def divisions(samples: int, sizes: Sizes) -> Iterator[Sizes]:
    """Every multiset of sizes that adds up to the batch, ascending; of each number of micro-batches one in turn.

    Of those with equally many, the most even ones come first.

    Examples
    --------
    >>> list(divisions(6, (1, 2, 3)))
    [(3, 3), (2, 2, 2), (1, 1, 2, 2), (1, 1, 1, 1, 2), (1, 1, 1, 1, 1, 1), (1, 2, 3), (1, 1, 1, 3)]
    """

    # Bits of the sums of some sizes from number `first` on, [count][first]: without that size, or with it once more.
    within = (2 << samples) - 1
    sums = [[1] * (len(sizes) + 1)]
    for _ in range(samples // sizes[0]):
        more = [0]
        for first in reversed(range(len(sizes))):
            more.append(more[-1] | (sums[-1][first] << sizes[first]) & within)
        sums.append(more[::-1])

    def parts(first: int, count: int, rest: int) -> Iterator[Sizes]:
        if count == 0:
            yield ()
            return
        for index in reversed(range(first, len(sizes))):
            size = sizes[index]
            if size * count <= rest and sums[count - 1][index] >> (rest - size) & 1:
                for others in parts(index, count - 1, rest - size):
                    yield (size, *others)

    rounds = [parts(0, k, samples) for k in range(-(-samples // sizes[-1]), samples // sizes[0] + 1)]
    while rounds:
        left = []
        for row in rounds:
            found = next(row, None)
            if found is not None:
                left.append(row)
                yield found
        rounds = left
