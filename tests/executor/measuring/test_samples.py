"""Figures from ops that a busy machine has stretched by chance."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from adaptpipe.executor.measuring.samples import Samples, link
from adaptpipe.executor.report import OpRecord
from adaptpipe.solver import Kind, Measurement, Op, Part

SECONDS = {Kind.F: 0.010, Kind.I: 0.012, Kind.W: 0.008, Kind.B: 0.019}
UNITS = (0.003, 0.0056)


def records(stretch: Iterator[float]) -> Iterator[OpRecord]:
    """A step of one stage: every op has the processor for its time, and takes longer on the clock."""
    for j in range(6):
        pieces: list[tuple[Op, float, int]] = [(Op(0, Kind.F, j), SECONDS[Kind.F], 90)]
        if j % 3 == 0:
            pieces += [(Op(0, Kind.B, j), SECONDS[Kind.B], 0)]
        if j % 3 == 1:
            pieces += [(Op(0, Kind.I, j), SECONDS[Kind.I], 60), (Op(0, Kind.W, j), SECONDS[Kind.W], 0)]
        if j % 3 == 2:
            units = [(Op(0, Kind.W, j, (u, u + 1)), UNITS[u], (40, 0)[u]) for u in (0, 1)]
            pieces += [(Op(0, Kind.I, j), SECONDS[Kind.I], 60), *units]
        for op, busy, held in pieces:
            yield OpRecord(op, 5.0, 5.0 + busy * next(stretch), held, 7, busy)


def test_a_busy_machine_stretches_all_ops_alike() -> None:
    draw = random.Random(0)
    samples = Samples(on_cpu=True)
    for _ in range(30):
        samples.add(2, [list(records(draw.choice([1.0, 3.0, 20.0]) for _ in range(99)))])
    found = samples.measurement(0, 2, work=(1, 2))
    scale = samples.scale()
    assert 2.5 < scale < 3.5
    assert found.forward_s == pytest.approx(scale * 0.010)
    assert found.fused_saving == pytest.approx(0.05)
    assert found.unit_s == pytest.approx(tuple(scale * unit for unit in UNITS))
    assert found.range_s == pytest.approx(scale * 0.0006)
    assert (found.activation, found.retained, found.unit_bytes, found.message) == (90, 60, (20, 40), 7)


def test_on_an_accelerator_the_clock_counts() -> None:
    samples = Samples(on_cpu=False)
    samples.add(1, [list(records(iter([2.0] * 99)))])
    assert samples.scale() == 1.0
    assert samples.measurement(0, 1, work=(1, 2)).forward_s == pytest.approx(0.020)


def test_a_stage_without_weight_gradients() -> None:
    samples = Samples(on_cpu=True)
    samples.add(1, [list(records(iter([1.0] * 99)))])
    found = samples.measurement(0, 1, work=())
    assert (found.backward_weight_s, found.unit_s, found.unit_bytes) == (0.0, (), ())


def part(*messages: int) -> Part:
    return Part("", 0, tuple(Measurement(size, 0, 0, 0, 0, 0, 0, message) for size, message in enumerate(messages, 1)))


@pytest.mark.parametrize(
    ("delays", "found"),
    [
        ({1: [0.002, 0.001, 0.009], 2: [0.003]}, (0.001, 100_000.0)),
        ({1: [0.003], 2: [0.002]}, (0.0025, None)),  # the larger one is not slower
        ({1: [], 2: [0.002]}, (0.002, None)),
        ({}, (0.0, None)),
    ],
)
def test_latency_and_bandwidth(delays: dict[int, list[float]], found: tuple[float, float | None]) -> None:
    latency, bandwidth = link([part(50, 30), part(100, 200)], delays)
    assert latency == pytest.approx(found[0])
    assert bandwidth == (found[1] if found[1] is None else pytest.approx(found[1]))
