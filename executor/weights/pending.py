"""The weight gradients of one stage and micro-batch that wait, and the units that they are cut into."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from torch import Tensor

from .cutting import Border, borders


@dataclass(frozen=True, slots=True)
class WeightEntry:
    """One weight gradient that waits.

    Parameters
    ----------
    run
        Computes the rows from a first one to before a last one, and adds them to the parameter's `.grad`.
    rows
        Rows of the parameter.
    flops
        Floating-point operations of all rows.
    nbytes
        Size of the two tensors that it keeps alive: the layer's input and the gradient of its output.
    parameter
        The weight's name within the stage.
    tensors
        These two tensors.
    """

    run: Callable[[int, int], None]
    rows: int
    flops: int
    nbytes: int
    parameter: str
    tensors: tuple[Tensor, Tensor]


class Pending:
    """Weight gradients that wait, in the order in which they became ready: the stage's last layer first.

    Parameters
    ----------
    ignored
        Addresses of storages that are there anyway, as the batch's, and do not count.

    Attributes
    ----------
    nbytes
        Bytes that they keep alive; a tensor shared by several counts once.
    """

    def __init__(self, ignored: Set[int] = frozenset()) -> None:
        self.nbytes = 0
        self._ignored = ignored
        self._entries: list[WeightEntry | None] = []  # None: all rows are done
        self._rows: list[int] = []
        self._left: list[int] = []  # rows that are not done
        self._work: list[int] = []
        self._storages: list[tuple[tuple[int, int], tuple[int, int]]] = []  # address and bytes of both tensors
        self._users: dict[int, int] = {}  # address -> entries that hold it
        self._borders: tuple[Border, ...] | None = None
        self._waiting: list[int] = []  # units that have not run

    def add(self, entry: WeightEntry) -> None:
        """Append a weight gradient; none may have run yet."""
        assert self._borders is None, "a weight gradient became ready after the first of its micro-batch had run"
        storages = tuple(tensor.untyped_storage() for tensor in entry.tensors)
        held = tuple(
            (address, 0 if address in self._ignored else storage.nbytes())
            for storage in storages
            for address in [storage.data_ptr()]
        )
        for address, size in held:
            users = self._users.get(address, 0)
            self._users[address] = users + 1
            if users == 0:
                self.nbytes += size
        self._entries.append(entry)
        self._rows.append(entry.rows)
        self._left.append(entry.rows)
        self._work.append(entry.flops)
        self._storages.append((held[0], held[1]))

    @property
    def entries(self) -> tuple[WeightEntry, ...]:
        """Those of which rows are still to do."""
        return tuple(entry for entry in self._entries if entry is not None)

    @property
    def waiting(self) -> tuple[int, ...]:
        """Units that have not run; empty before the first has."""
        return tuple(self._waiting)

    def run(self, units: tuple[int, int] | None, times: Sequence[int]) -> None:
        """Compute a range of units, or all.

        Each gradient lets go of its two tensors when its last row is done.

        Parameters
        ----------
        units
            Half-open; None: all.
        times
            What each unit takes; the same at every call.

        Raises
        ------
        RuntimeError
            If a weight, or a tensor that its gradient is made of, was changed in place since the forward.
        """
        if self._borders is None:
            self._borders = borders(self._work, self._rows, times)
            self._waiting = list(range(len(times)))
        first, last = units or (0, len(times))
        for unit in range(first, last):
            assert unit in self._waiting, f"unit {unit} runs twice, or is beyond the last"
            self._waiting.remove(unit)
        (entry, row), (end, rows) = self._borders[first], self._borders[last]
        while (entry, row) < (end, rows):
            stop = rows if entry == end else self._rows[entry]
            self._run(entry, row, stop)
            entry, row = entry + 1, 0

    def groups(self) -> tuple[int, ...]:
        """Work of each run of gradients that share no tensor with the others: where a cut frees all it can."""
        last = {address: at for at, held in enumerate(self._storages) for address, _ in held}
        found, reached, work = [], 0, 0
        for at, held in enumerate(self._storages):
            reached = max(reached, *(last[address] for address, _ in held))
            work += self._work[at]
            if reached == at:
                found.append(work)
                work = 0
        return tuple(found)

    def _run(self, at: int, start: int, stop: int) -> None:
        entry = self._entries[at]
        assert entry is not None, "a weight gradient is computed once"
        entry.run(start, stop)
        self._left[at] -= stop - start
        if self._left[at] == 0:
            self._entries[at] = None
            for address, size in self._storages[at]:
                self._users[address] -= 1
                if self._users[address] == 0:
                    self.nbytes -= size
