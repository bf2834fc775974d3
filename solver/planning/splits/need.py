"""Whether any plan fits into memory; if none does, how much is lacking, where, and what would do."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.placement import place
from ..workload import Workload
from .least_lack import Packing, least_lack
from .partition import balanced

SECONDS = 3.0
"""Time for one question of what can be packed. Where it is not enough, nothing is claimed."""

GIGABYTE = 10**9


@dataclass(frozen=True, slots=True)
class Lack:
    """Why no plan of a workload fits: proven, for every split, placement, division and order.

    What is told is of the assignment of layers to ranks whose largest lack is least.

    Parameters
    ----------
    size
        Samples of the micro-batch.
    rank
        The rank that lacks most.
    layers
        How many layers it holds.
    static, activation
        Bytes of their weights, gradients and optimizer state, and of their activations for one micro-batch, with what
        one op holds for itself.
    limit
        Bytes that it may hold.
    limit_needed
        Bytes that it would have to hold so that a plan exists, if all ranks had so much more.
    ranks_needed
        The least number of ranks like the largest one that would do; None where no number does.
    microbatch
        The largest micro-batch, smaller than all that were allowed, that would do; None where none does.
    static_fits
        Whether the layers would fit without any activations: then recomputing them, or shorter sequences, may do.
    proven
        Bytes that some rank lacks for certain: `lacks`, unless the time was too short to prove that.
    layer
        A layer that alone is too large for every rank; None where none is.
    """

    size: int
    rank: int
    layers: int
    static: int
    activation: int
    limit: int
    limit_needed: int
    ranks_needed: int | None
    microbatch: int | None
    static_fits: bool
    proven: int
    layer: int | None

    @property
    def lacks(self) -> int:
        """Bytes that are lacking on the rank."""
        return self.limit_needed - self.limit

    def __str__(self) -> str:
        holds = "1 layer" if self.layers == 1 else f"{self.layers} layers"
        batch = "1 sample" if self.size == 1 else f"{self.size} samples"
        first = (
            f"rank {self.rank} needs {_text(self.limit_needed)} at least, for {holds} (static {_text(self.static)}, "
            f"activations of one micro-batch of {batch} {_text(self.activation)}), which is {_text(self.lacks)} above "
            f"its limit of {_text(self.limit)}; "
        )
        if self.proven == self.lacks:
            first += "no split and no placement lacks less"
        else:
            first += f"some rank lacks {_text(self.proven)} at least, whatever the split and the placement"
        remedies = [f"{_text(self.lacks)} more on each rank"]
        if self.ranks_needed is not None:
            remedies.append(f"{self.ranks_needed} ranks")
        if self.microbatch is not None:
            remedies.append(f"micro-batches of {self.microbatch}")
        if self.static_fits:
            remedies.append("less activation memory: recompute, or shorter sequences")
        else:
            remedies.append("less static memory: optimizer state sharded over data-parallel ranks (ZeRO)")
        if self.layer is not None:
            remedies.append(f"layer {self.layer} cut or sharded (tensor parallelism), as it alone is too large")
        return f"{first}; what would fit: {', or '.join(remedies)}"


def why_not(workload: Workload) -> Lack | None:
    """Why no plan fits into every rank's memory; None where one does, or where it could not be told.

    A rank needs its layers' static bytes, what one op holds for itself, and the activations of one micro-batch: when
    the F of its last stage runs, it holds those of all its stages. That suffices: every layer may be a stage of its
    own, on any rank, and one micro-batch after the other, with fused backwards, holds no more. So a plan fits exactly
    where layers can be packed into ranks, at least one in each, for the largest micro-batch of some division.

    Examples
    --------
    >>> from adaptpipe.solver.core.cluster import uniform_cluster
    >>> from adaptpipe.solver.core.profile import Measurement, Part, Profile
    >>> layers = [Part("", 2 * GIGABYTE, (Measurement(1, 1e-3, 1e-3, 1e-3, 2e-3, GIGABYTE, 0, 0),)) for _ in range(5)]
    >>> cluster = uniform_cluster("", 2, 8 * GIGABYTE, 0.0, 1e9)
    >>> lack = why_not(Workload("", Profile("", tuple(layers), 0.0), cluster, 8, (1,)))
    >>> lack.rank, lack.lacks // GIGABYTE, lack.ranks_needed, lack.static_fits
    (0, 1, 3, True)
    """
    line = place("linear", workload.ranks)
    if any(balanced(workload, line, division) is not None for division in workload.divisions):
        return None
    found: list[tuple[int, Packing]] = []
    for size in sorted({max(division) for division in workload.divisions}):
        packing = _packed(workload, size)
        if packing is None or packing.proven == 0:
            return None
        found.append((size, packing))
    size, packing = min(found, key=lambda each: each[1].lack)
    return _lack(workload, size, packing, min(each.proven for _, each in found))


def _lack(workload: Workload, size: int, packing: Packing, proven: int) -> Lack:
    held, static = _held(workload, size), _held(workload, 0)
    holds = [[layer for layer, at in enumerate(packing.ranks) if at == rank] for rank in range(workload.ranks)]
    limits, transient = _limits(workload, size), workload.transient(size)

    def counted(rank: int, amount: list[int]) -> int:
        saved = sum(tie.static for tie in workload.ties if set(tie.layers) <= set(holds[rank]))
        return sum(amount[layer] for layer in holds[rank]) - saved

    rank = max(range(workload.ranks), key=lambda rank: counted(rank, held) - limits[rank])
    need, without = counted(rank, held), counted(rank, static)
    largest = max(range(workload.layers), key=lambda layer: held[layer])
    smaller = (z for z in range(min(workload.sizes) - 1, 0, -1) if _fits(workload, z))
    return Lack(
        size=size,
        rank=rank,
        layers=len(holds[rank]),
        static=without,
        activation=need - without + transient,
        limit=limits[rank] + transient,
        limit_needed=need + transient,
        ranks_needed=_ranks_needed(workload, size),
        microbatch=next(smaller, None),
        static_fits=_fits(workload, 0),
        proven=proven,
        layer=largest if held[largest] > max(limits) else None,
    )


def _held(workload: Workload, size: int) -> list[int]:
    """Bytes of each layer with one micro-batch; with none for size 0."""
    held = workload.static + (workload.prices(size).activation if size else 0)
    return [int(value) for value in held]


def _limits(workload: Workload, size: int) -> list[int]:
    """Bytes that each rank may hold for longer than one op runs, everything where there is no limit."""
    most, transient = sum(_held(workload, max(workload.sizes))), workload.transient(size) if size else 0
    return [most if limit is None else limit - transient for limit in workload.cluster.memory]


def _packed(workload: Workload, size: int) -> Packing | None:
    return least_lack(_held(workload, size), workload.ties, _limits(workload, size), SECONDS)


def _fits(workload: Workload, size: int) -> bool:
    packing = _packed(workload, size)
    return packing is not None and packing.lack == 0


def _ranks_needed(workload: Workload, size: int) -> int | None:
    """The least number of ranks with the largest limit that have room; None where no number has."""
    held, limit = _held(workload, size), max(_limits(workload, size))
    if max(held) > limit:
        return None
    saved = sum(tie.static for tie in workload.ties)
    for ranks in range(max(workload.ranks + 1, -(-(sum(held) - saved) // max(1, limit))), workload.layers + 1):
        packing = least_lack(held, workload.ties, [limit] * ranks, SECONDS)
        if packing is not None and packing.lack == 0:
            return ranks
    return None


def _text(count: int) -> str:
    """Bytes for people, rounded up.

    Examples
    --------
    >>> _text(71_400_000_000), _text(1_234_567), _text(12)
    ('71.40 GB', '1.24 MB', '12 B')
    """
    for unit, size in (("GB", GIGABYTE), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{-(-count * 100 // size) / 100:.2f} {unit}"
    return f"{count} B"
