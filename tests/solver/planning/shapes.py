"""Workloads for tests of planning: by their numbers, and random ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from hypothesis import strategies as st

from adaptpipe.solver.core.cluster import Cluster
from adaptpipe.solver.core.placement import Placement
from adaptpipe.solver.core.profile import Measurement, Part, Profile
from adaptpipe.solver.planning.workload import Split, Tie, Workload, split_of

Layer = tuple[float, float, float, int, int, int]
"""F, I and W in microseconds, activation, retained and static bytes; the first five for each sample."""


def workload(
    layers: Sequence[Layer],
    ranks: int = 2,
    samples: int = 4,
    sizes: tuple[int, ...] = (1,),
    *,
    fused: float = 1.0,
    op: float = 0.0,
    speed: Sequence[float] | None = None,
    memory: Sequence[int | None] | None = None,
    latency: Sequence[Sequence[float]] | float = 0.0,
    message: int = 0,
    ties: tuple[Tie, ...] = (),
    measured: Sequence[int] = (1, 2, 3),
    transient: int = 0,
) -> Workload:
    """A workload; B takes `fused` times I + W, messages take `latency` microseconds and a nanosecond a byte.

    Ops of the last layer hold `transient` bytes a sample for themselves.
    """

    def part(number: int, layer: Layer) -> Part:
        f, i, w, activation, retained, static = layer
        return Part(
            f"layer {number}",
            static,
            tuple(
                Measurement(
                    z, f * z / 1e6, i * z / 1e6, w * z / 1e6, fused * (i + w) * z / 1e6, activation * z, retained * z,
                    message * z, transient=transient * z if number == len(layers) - 1 else 0,
                )
                for z in measured
            ),
        )  # fmt: skip

    rows = ((latency,) * ranks,) * ranks if isinstance(latency, float | int) else latency
    cluster = Cluster(
        "some ranks",
        tuple(speed or (1.0,) * ranks),
        tuple(memory or (None,) * ranks),
        tuple(tuple(value / 1e6 for value in row) for row in rows),
        ((1e9,) * ranks,) * ranks,
    )
    parts = tuple(part(number, layer) for number, layer in enumerate(layers))
    return Workload("some layers", Profile("", parts, 0.0, op_s=op / 1e6), cluster, samples, sizes, ties)


@st.composite
def workloads(
    draw: st.DrawFn,
    max_layers: int = 6,
    max_ranks: int = 3,
    max_samples: int = 4,
    limited: bool | None = None,
) -> Workload:
    """Random ones: unequal ranks, links, limits (`limited`; None: either; they may be too small), ties, zeros."""
    ranks = draw(st.integers(1, max_ranks))
    count = draw(st.integers(ranks, max_layers))
    times = st.sampled_from([0.0, 1.0, 2.0, 2.5, 3.0, 5.0, 8.0])
    some = st.integers(0, 6)
    kind = st.tuples(times, times, times, some, some, some)
    kinds = draw(st.lists(kind, min_size=1, max_size=3))
    layers = draw(st.lists(st.sampled_from(kinds), min_size=count, max_size=count))
    samples = draw(st.integers(1, max_samples))
    memory = st.integers(4, 60) if limited else st.none() | st.integers(4, 60)
    ends = layers[0][5], layers[-1][5]
    tied = draw(st.booleans()) and count > 1
    alike = draw(st.booleans())
    return workload(
        layers,
        ranks,
        samples,
        draw(st.sampled_from([(1,), (1,), (1, 2), (2, 3)])) if samples > 1 else (1,),
        fused=draw(st.sampled_from([1.0, 0.75, 1.25])),
        op=draw(st.sampled_from([0.0, 0.0, 0.5, 1.0])),
        speed=[1.0] * ranks if alike else [draw(st.sampled_from([1.0, 0.5, 0.6])) for _ in range(ranks)],
        memory=[None if limited is False else draw(memory)] * ranks
        if alike
        else [None if limited is False else draw(memory) for _ in range(ranks)],
        latency=draw(st.sampled_from([0.0, 1.0]))
        if alike
        else [[float(draw(st.integers(0, 4))) for _ in range(ranks)] for _ in range(ranks)],
        message=draw(st.sampled_from([0, 0, 500])),
        ties=(Tie((0, count - 1), min(ends)),) if tied else (),
        transient=draw(st.sampled_from([0, 0, 3])),
    )


def splits(layers: int, stages: int) -> Iterator[Split]:
    """Every way to cut layers into stages."""
    for cuts in combinations(range(1, layers), stages - 1):
        yield split_of([0, *cuts, layers])


def placements(ranks: int, stages: int) -> Iterator[Placement]:
    """Every map of stages onto ranks."""
    for row in product(range(ranks), repeat=stages):
        if len(set(row)) == ranks:
            yield Placement(ranks, (row,))
