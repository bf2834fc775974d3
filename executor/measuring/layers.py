"""Measure layers alone, one after the other, on the device that they are to run on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from adaptpipe.solver import InputError, Kind, Measurement, Part, Profile

from ..report import OpRecord
from ..stages.runner import Loss
from ..waiting import gather
from ..weights import coverage
from .bench import BenchLayer, Sample
from .profiling import device_name, static_bytes
from .samples import Samples
from .stopwatch import stopwatch_for

T = TypeVar("T")

_ROUNDS = 9
"""Rounds that count, after one that warms up. Layers, sizes and kinds of backward take turns in each, so that what
disturbs the machine meets all of them."""

_ALIKE = 3
"""Layers of one sort that are measured, at most."""


@dataclass(frozen=True, slots=True)
class LayerName:
    """What a layer is, before it is built.

    Parameters
    ----------
    name
        For people.
    sort
        Layers of one sort are equal but for their weights' values, and share their figures. Its first word, up to a
        comma, is the layer's kind.
    parameters
        Number of parameters.
    """

    name: str
    sort: str
    parameters: int


def measure_layers(
    layers: Sequence[LayerName],
    make: Callable[[int], nn.Module],
    loss_fn: Loss,
    batch_of: Callable[[int], tuple[Tensor, Tensor]],
    sizes: Sequence[int],
    *,
    units: int = 4,
    device: torch.device | None = None,
    rounds: int = _ROUNDS,
    timeout_s: float = 600.0,
) -> Profile:
    """Seconds and bytes of every layer, at several micro-batch sizes.

    Each layer is run as a stage of its own, on the output of the measured layer before it. Of the layers of one sort
    three at most are built and measured; all get the medians over them. Where there is a process group, all its
    processes measure at the same time, as they will run, and share what they saw.

    On the processor seconds are those for which an op had it; on a GPU, which is untested, those between two events.
    What every op costs beside its layer is told by a stage that does nothing, and taken off: ops of a stage take what
    its layers do in sum, and `op_s`. So with bytes, but where a layer saves its output and the next its input: these
    are one tensor within a stage, and two in the sum.

    Parameters
    ----------
    layers
        First to last.
    make
        Builds the layer of an index, on any device: a module from one tensor to one.
    loss_fn
        Mean loss of a micro-batch; F of the last layer has it in.
    batch_of
        Batch and target of that many samples.
    sizes
        Micro-batch sizes to measure, in samples.
    units
        Units that a layer's weight gradient is cut into, at most; see `measure`.
    device
        Where to run; None: on the processor.
    rounds
        How often each op is measured, at least.
    timeout_s
        Seconds that a process may wait for the others.

    Returns
    -------
    Profile
        One part for each layer, the same on every rank.

    Raises
    ------
    InputError
        When there is no layer or size, or a number is below 1.
    """
    for key, value in (("layers", len(layers)), ("units", units), ("rounds", rounds), ("sizes", min(sizes, default=0))):
        if value < 1:
            raise InputError(f"{key}: {value} is below 1")
    device = device or torch.device("cpu")
    sorts, ordered = [layer.sort for layer in layers], sorted(set(sizes))
    modules = {index: make(index).to(device) for index in chosen(sorts)}
    bench = _bench(modules, len(layers) - 1, loss_fn, batch_of, ordered, device)
    # All layers of a sort have the units of its first.
    cuts = {sorts[index]: bench[index].possible_work(units) for index in map(sorts.index, set(sorts))}
    work = _gathered(cuts, timeout_s)[0]
    for index, layer in bench.items():
        layer.cut(work[sorts[index]])
    nothing = Sample(torch.zeros(1, device=device), torch.zeros(1, device=device))
    empty = BenchLayer(0, _Nothing(), {1: nothing}, stopwatch_for(device))
    seen: list[tuple[int, int, tuple[OpRecord, ...]]] = []
    idle: list[OpRecord] = []
    for turn in range(rounds + 1):
        found = [(index, size, layer.turn(size, turn)) for index, layer in bench.items() for size in ordered]
        beside = empty.turn(1, turn)
        if turn:  # the first one warms up
            seen += found
            idle += beside
    transient = {(index, size): layer.transient(size, device) for index, layer in bench.items() for size in ordered}
    for layer in (*bench.values(), empty):
        layer.close()

    alone: dict[int, Samples] = {index: Samples(on_cpu=False) for index in bench}
    pooled: dict[str, Samples] = {sort: Samples(on_cpu=False) for sort in sorts}
    for index, size, records in (each for rank in _gathered(seen, timeout_s) for each in rank):
        alone[index].add(size, [records])
        pooled[sorts[index]].add(size, [records])
    overheads = Overheads.of([record for rank in _gathered(idle, timeout_s) for record in rank])
    transient = _gathered(transient, timeout_s)[0]
    parts: dict[str, Part] = {}
    for sort in pooled:
        members = [index for index in bench if sorts[index] == sort]
        parts[sort] = Part(
            name="",
            static=static_bytes(modules[members[0]]),
            measurements=tuple(
                replace(
                    overheads.off(pooled[sort].measurement(0, size, work[sort])),
                    transient=max(transient[index, size] for index in members),
                )
                for size in ordered
            ),
            deferred=coverage(modules[members[0]]),
            unit_work=work[sort] or (1,),
            kind=sort.partition(",")[0],
            scatter=_scatter([alone[index] for index in members], ordered, work[sort]),
        )
    return Profile(
        device_name(device),
        tuple(replace(parts[layer.sort], name=layer.name, parameters=layer.parameters) for layer in layers),
        0.0,
        op_s=overheads.op_s,
    )


def chosen(sorts: Sequence[str], most: int = _ALIKE) -> tuple[int, ...]:
    """Layers to measure, ascending: of each sort the first, the last, and others at equal distances.

    Examples
    --------
    >>> chosen(["embedding", *["block"] * 7, "head"])
    (0, 1, 4, 7, 8)
    """
    places: dict[str, list[int]] = defaultdict(list)
    for index, sort in enumerate(sorts):
        places[sort].append(index)
    found: set[int] = set()
    for there in places.values():
        count = min(most, len(there))
        found.update(there[step * (len(there) - 1) // max(1, count - 1)] for step in range(count))
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class Overheads:
    """Seconds that F and a backward of a stage take that does nothing."""

    forward_s: float
    backward_s: float

    @classmethod
    def of(cls, records: Sequence[OpRecord]) -> Overheads:
        """The medians of such a stage's ops."""
        forward, backward = ([r.busy_s for r in records if r.op.kind is kind] for kind in (Kind.F, Kind.I))
        return cls(median(forward), median(backward))

    @property
    def op_s(self) -> float:
        """The mean of both."""
        return (self.forward_s + self.backward_s) / 2

    def off(self, m: Measurement) -> Measurement:
        """A layer's figures without them; none below 0."""
        return replace(
            m,
            forward_s=max(0.0, m.forward_s - self.forward_s),
            backward_input_s=max(0.0, m.backward_input_s - self.backward_s),
            backward_s=max(0.0, m.backward_s - self.backward_s),
        )


class _Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view_as(x)


def _bench(
    modules: Mapping[int, nn.Module],
    last: int,
    loss_fn: Loss,
    batch_of: Callable[[int], tuple[Tensor, Tensor]],
    sizes: Sequence[int],
    device: torch.device,
) -> dict[int, BenchLayer]:
    """Put the layers on the bench, each with the output of the one before it."""
    generator = torch.Generator(device).manual_seed(0)
    samples: dict[int, dict[int, Sample]] = {index: {} for index in modules}
    for size in sizes:
        x, target = (tensor.to(device) for tensor in batch_of(size))
        for index, module in modules.items():
            if index == last:
                samples[index][size] = Sample(x, None, target)
                continue
            with torch.no_grad():
                y = module(x)
            gradient = torch.randn(y.shape, generator=generator, dtype=y.dtype, device=device)
            samples[index][size] = Sample(x, gradient)
            x = y
    watch = stopwatch_for(device)
    return {
        index: BenchLayer(0, module, samples[index], watch, loss_fn if index == last else None, is_batch=index == 0)
        for index, module in modules.items()
    }


def _scatter(layers: Sequence[Samples], sizes: Sequence[int], work: Sequence[int]) -> float:
    """How far one layer's time lies from the median of all at most, relative to that."""
    times = []
    for samples in layers:
        found = [samples.measurement(0, size, work) for size in sizes]
        times.append(sum(m.forward_s + m.backward_input_s + m.backward_weight_s + m.backward_s for m in found))
    middle = median(times)
    return max(abs(time / middle - 1) for time in times) if middle else 0.0


def _gathered(mine: T, timeout_s: float) -> list[T]:
    return gather(mine, timeout_s, "the measurements") if dist.is_initialized() else [mine]
