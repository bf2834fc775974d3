"""The problem: what is pipelined, on which ranks, at what prices, within which memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .division import fewest, uniform_counts
from .errors import InputError
from .placement import Placement

if TYPE_CHECKING:
    from .instance import Instance
    from .slices import Slices

SECONDS = {"ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "ms": Fraction(1, 10**3), "s": Fraction(1)}
"""Length of one tick, by the problem's unit."""

BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
"""Bytes in one of each memory unit that a problem file may use."""

LARGEST = 2**53
"""Largest integer a file may hold: above it JSON readers begin to round."""


@dataclass(frozen=True, slots=True)
class Affine:
    """A cost that depends on the micro-batch size: `fixed + per_sample * size`."""

    fixed: int
    per_sample: int


Cost = int | Affine
"""Ticks or bytes of one micro-batch. A plain integer is legal only where one micro-batch size is allowed."""


def price(cost: Cost, size: int) -> int:
    """Value of a cost for a micro-batch of `size` samples.

    Examples
    --------
    >>> price(Affine(10, 3), 4), price(7, 4)
    (22, 7)
    """
    return cost.fixed + cost.per_sample * size if isinstance(cost, Affine) else cost


@dataclass(frozen=True)
class Links:
    """Time of a message between two different ranks: `latency + ceil(bytes / bandwidth)`.

    Parameters
    ----------
    latency
        Ticks, [from][to].
    bandwidth
        Bytes per second, [from][to]; None where messages cost their latency only.
    message
        Bytes of the message that leaves each stage, forward, and of its gradient that comes back; empty where they are
        not known.
    """

    latency: tuple[tuple[int, ...], ...]
    bandwidth: tuple[tuple[float, ...], ...] | None = None
    message: tuple[Cost, ...] = ()


@dataclass(frozen=True)
class Memory:
    """Bytes that ops hold, and each rank's limit.

    Parameters
    ----------
    activation
        For each stage, bytes that F of one micro-batch takes.
    retained
        For each stage, bytes held from the end of I until the weight gradient is done.
    retained_units
        For each stage, the part of `retained` that each weight unit frees; None: in proportion to the units' times.
    static
        For each stage, bytes of weights, gradients and optimizer state.
    reserve
        For each rank, bytes set aside: for messages (receive windows and sends in flight), and for what one op holds
        for itself while it runs.
    limit
        For each rank, bytes that it may hold, static and reserve included; None: no limit.
    unit
        Unit in which files and messages give bytes.
    weights
        For each stage, the part of `static` that is one version of its weights, of which an asynchronous schedule holds
        several; 0 where it is not known. Empty: of no stage.
    """

    activation: tuple[Cost, ...]
    retained: tuple[Cost, ...]
    static: tuple[int, ...]
    reserve: tuple[int, ...]
    limit: tuple[int | None, ...]
    retained_units: tuple[tuple[Cost, ...], ...] | None = None
    unit: str = "B"
    weights: tuple[int, ...] = ()


@dataclass(frozen=True)
class Problem:
    """Shape and prices of a pipeline: placement, batch, costs of each stage, links, memory limits.

    Parameters
    ----------
    name
        Free text.
    unit
        Unit of every duration: ns, us, ms or s. One tick is one unit.
    placement
        Stage to rank.
    samples
        Samples in a batch, N.
    sizes
        Micro-batch sizes the schedule may use, in samples, ascending.
    forward, backward_input
        For each stage, ticks of F and of I.
    weight_units
        For each stage, ticks of each unit of W, in the order in which the units' gradients become ready.
    backward
        For each stage, ticks of B; None: I and W in sum.
    overhead
        For each stage, ticks that each range of W beyond the first costs.
    layers
        For each stage, how many alike layers it has, which `regroup` may spread over other stages; empty: one each.
    memory, links
        Bytes and limits; message times.
    slices
        How micro-batches are cut along their sequence; None: not at all. A schedule then numbers the slices of all
        micro-batches through, micro-batch by micro-batch, and they take the place of micro-batches in it: slice i of
        micro-batch j has number j k + i.
    """

    name: str
    unit: str
    placement: Placement
    samples: int
    sizes: tuple[int, ...]
    forward: tuple[Cost, ...]
    backward_input: tuple[Cost, ...]
    weight_units: tuple[tuple[Cost, ...], ...]
    memory: Memory
    links: Links
    backward: tuple[Cost, ...] | None = None
    overhead: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()
    slices: Slices | None = None

    def __post_init__(self) -> None:
        from .legal import require_legal

        require_legal(self)

    @property
    def ranks(self) -> int:
        """Number of ranks, p."""
        return self.placement.ranks

    @property
    def stages(self) -> int:
        """Number of stages, S."""
        return self.placement.stage_count

    @property
    def limited(self) -> bool:
        """Whether any rank has a memory limit."""
        return any(limit is not None for limit in self.memory.limit)

    @property
    def slice_count(self) -> int:
        """Slices of each micro-batch, k; 1 where they are whole."""
        return 1 if self.slices is None else self.slices.count

    @property
    def tokens(self) -> tuple[int, ...]:
        """Part of the bytes of a micro-batch that each of its slices has."""
        return (1,) if self.slices is None else self.slices.tokens

    @property
    def work(self) -> tuple[int, ...]:
        """Part of the durations of a micro-batch that each of its slices has."""
        return (1,) if self.slices is None else self.slices.work

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the shape (placement, stages, samples, slices), not of the prices: what a schedule must match."""
        return self.placement.fingerprint(self.samples, self.slice_count)

    def static_bytes(self, rank: int, copies: tuple[int, ...] = ()) -> int:
        """Bytes that a rank holds before its first op: static bytes of its stages, and the reserve.

        A stage that both directions have on this rank is one copy.

        Parameters
        ----------
        rank
            The rank.
        copies
            For each stage, how many versions of its weights are held, as `weight_copies` gives them; empty: one.
        """
        held = {stage for _, stage in self.placement.held[rank]}
        more = sum((copies[stage] - 1) * self.memory.weights[stage] for stage in held if copies and self.memory.weights)
        return sum(self.memory.static[stage] for stage in held) + more + self.memory.reserve[rank]

    def instance(self, sizes: tuple[int, ...]) -> Instance:
        """This problem with its micro-batch sizes fixed, as arrays; one size for each slice where there are some."""
        return _instance(self, sizes)

    def uniform_counts(self) -> tuple[int, ...]:
        """Counts m for which the near-uniform division (sizes that differ by one at most) uses allowed sizes only;
        times the slices."""
        return tuple(sorted(self.slice_count * count for count in uniform_counts(self.samples, self.sizes)))

    def uniform_sizes(self, count: int) -> tuple[int, ...]:
        """Near-uniform division of the batch into `count` micro-batches, or their slices, the smaller ones first."""
        base, larger = divmod(self.samples * self.slice_count, count)
        return (base,) * (count - larger) + (base + 1,) * larger

    def default_sizes(self) -> tuple[int, ...]:
        """The division into most micro-batches: near-uniform where one exists, else into as few as will do.

        Raises
        ------
        InputError
            When no sum of allowed sizes gives the batch.
        """
        most = next(uniform_counts(self.samples, self.sizes), None)
        return self.fewest_sizes() if most is None else self.uniform_sizes(self.slice_count * most)

    def fewest_sizes(self) -> tuple[int, ...]:
        """The division into fewest micro-batches, ascending.

        Raises
        ------
        InputError
            When no sum of allowed sizes gives the batch.
        """
        sizes = fewest(self.samples, self.sizes)
        if sizes is None:
            raise InputError(
                f"batch.samples: {self.samples} is no sum of the sizes {list(self.sizes)}; "
                "change batch.samples or allow another size in batch.microbatch_sizes"
            )
        return sizes * self.slice_count

    @classmethod
    def load(cls, path: str | Path) -> Problem:
        """Read a problem file, TOML or JSON.

        Raises
        ------
        InputError
            With file, key (or line) and remedy.
        """
        from ..files.problem_file import load_problem

        return load_problem(path)

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Problem:
        """Problem from a mapping with the keys of a problem file.

        Raises
        ------
        InputError
            With key and remedy.

        Examples
        --------
        >>> problem = Problem.from_dict({
        ...     "pipeline": {"ranks": 4},
        ...     "batch": {"samples": 8},
        ...     "costs": {"forward": 10, "backward_input": 10, "backward_weight": 8},
        ... })
        >>> problem.stages, problem.default_sizes()
        (4, (1, 1, 1, 1, 1, 1, 1, 1))
        """
        from ..files.problem_file import problem_from_dict

        return problem_from_dict(data)

    def save(self, path: str | Path) -> None:
        """Write the problem as JSON."""
        from ..files.problem_file import save_problem

        save_problem(self, path)


@lru_cache(maxsize=64)
def _instance(problem: Problem, sizes: tuple[int, ...]) -> Instance:
    from .instance import Instance

    return Instance(problem, sizes)
