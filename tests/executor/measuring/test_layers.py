"""Measuring layers: their bytes add up to a stage's, equal ones share figures, and GPUs are asked as they should be."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from adaptpipe.executor.launching.launcher import launch
from adaptpipe.executor.measuring import bench
from adaptpipe.executor.measuring.layers import LayerName, Overheads, measure_layers
from adaptpipe.executor.measuring.peaks import peak_bytes
from adaptpipe.executor.measuring.samples import Samples
from adaptpipe.executor.measuring.stopwatch import stopwatch_for
from adaptpipe.executor.report import OpRecord
from adaptpipe.models import GPTConfig, MLPConfig, build_stage, load_text, next_byte_loss, training_batches
from adaptpipe.solver import InputError, Kind, Measurement, Op, Profile

from . import layers_jobs as jobs

GPT = GPTConfig(layers=5, width=16, heads=2, sequence=8)
SIZES = (1, 3)


@pytest.fixture(autouse=True)
def any_unit(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    """Units of any length, however fast this machine is."""
    monkeypatch.setattr(bench, "LEAST_UNIT_S", 1e-9)


def measured(config: GPTConfig | MLPConfig, parts: list[range]) -> Profile:
    """Stages of some layers, each as if it were one layer of its own sort."""
    return measure_layers(
        [LayerName(f"{part}", f"{part}", sum(config.layer_parameters[part.start : part.stop])) for part in parts],
        lambda index: build_stage(config, 0, parts[index]),
        next_byte_loss,
        lambda samples: next(training_batches(config, load_text(), samples, 0)),
        SIZES,
        rounds=1,
    )


Bytes = list[tuple[int, int, int]]


def summed(profile: Profile, part: range) -> Bytes:
    """For each size, bytes after F, after I, and static, of some parts together."""
    own = profile.parts[part.start : part.stop]
    return [
        (
            sum(p.measurements[at].activation for p in own),
            sum(p.measurements[at].retained for p in own),
            sum(p.static for p in own),
        )
        for at in range(len(SIZES))
    ]


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (GPT, [range(0, 7)]),
        (GPT, [range(0, 2), range(2, 5), range(5, 7)]),
        (MLPConfig(layers=3, width=8, inputs=4), [range(0, 2), range(2, 4), range(4, 5)]),
    ],
)
def test_layers_add_up_to_their_stage(config: GPTConfig | MLPConfig, parts: list[range]) -> None:
    layers = measured(config, [range(i, i + 1) for i in range(len(config.layer_names))])
    stages = measured(config, parts)
    for stage, part in enumerate(parts):
        assert summed(layers, part) == summed(stages, range(stage, stage + 1))
    assert [p.parameters for p in layers.parts] == list(config.layer_parameters)
    for p in layers.parts:
        if len(p.unit_work) > 1:
            assert all(sum(m.unit_bytes) == m.retained for m in p.measurements)
    assert max(len(p.unit_work) for p in layers.parts) == (4 if config is GPT else 1)


def test_a_tensor_that_two_layers_save_counts_twice() -> None:
    """An output that its own backward needs, as ReLU's does, is the next layer's input as well: one in a stage."""
    config = MLPConfig(layers=2, width=8, inputs=4, activation="relu", norm=False)
    layers = measured(config, [range(i, i + 1) for i in range(4)])
    (whole,) = measured(config, [range(0, 4)]).parts
    for at, size in enumerate(SIZES):
        more = sum(p.measurements[at].activation for p in layers.parts) - whole.measurements[at].activation
        assert more == size * 8 * 4  # the entry's; the others add their input to it


def test_equal_layers_are_measured_three_times_at_most() -> None:
    built: list[int] = []

    def make(index: int) -> nn.Module:
        built.append(index)
        return build_stage(GPT, 0, range(index, index + 1))

    names = [LayerName(n, n.split()[0], p) for n, p in zip(GPT.layer_names, GPT.layer_parameters, strict=True)]
    found = measure_layers(
        names, make, next_byte_loss, lambda n: next(training_batches(GPT, load_text(), n, 0)), SIZES, rounds=2
    )
    assert built == [0, 1, 3, 5, 6]
    assert [p.name for p in found.parts] == list(GPT.layer_names)
    assert [p.kind for p in found.parts] == ["embedding", *["block"] * 5, "head"]
    first, *others = found.parts[1:-1]
    for other in others:
        assert (other.measurements, other.static, other.scatter) == (first.measurements, first.static, first.scatter)
    assert first.scatter > 0
    assert found.parts[0].scatter == 0
    assert all(len(m.spread) == 4 and min(m.spread) >= 0 for p in found.parts for m in p.measurements)
    assert found.op_s > 0


def test_what_an_op_holds_while_it_runs() -> None:
    """A matrix [4, 16]: B holds both gradients that it makes, and the one that it was given."""
    layers = [LayerName(name, name, 64) for name in ("first", "middle", "last")]
    widths = [(16, 16), (16, 4), (4, 4)]
    found = measure_layers(
        layers,
        lambda index: nn.Linear(*widths[index], bias=False),
        F.mse_loss,
        lambda n: (torch.ones(n, 16), torch.ones(n, 4)),
        (2, 5),
        rounds=1,
    )
    for m in found.parts[1].measurements:
        assert m.activation == 4 * 16 * m.size
        assert m.retained == 4 * (16 + 4) * m.size
        assert m.transient == 4 * (16 + 4) * m.size + 4 * 16 * 4


def test_processes_measure_together() -> None:
    first, second = launch(jobs.profile_of, 2, None, threads=1)
    assert first == second


def test_what_ops_cost_beside_layers_is_taken_off() -> None:
    """Once for each op of a stage, and not for each of its layers."""
    idle = [OpRecord(Op(0, kind, 0), 0.0, s, 0, 0, s) for kind, s in ((Kind.F, 2e-3), (Kind.I, 4e-3), (Kind.W, 9.0))]
    overheads = Overheads.of(idle)
    assert overheads.op_s == pytest.approx(3e-3)
    found = overheads.off(Measurement(1, 5e-3, 5e-3, 5e-3, 3e-3, 0, 0, 0))
    times = (found.forward_s, found.backward_input_s, found.backward_weight_s, found.backward_s)
    assert times == pytest.approx((3e-3, 1e-3, 5e-3, 0.0))


def test_overheads_are_taken_off_every_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Overheads, "of", lambda records: Overheads(1e6, 3e6))
    found = measured(GPT, [range(0, 7)])
    assert found.op_s == 2e6
    for m in found.parts[0].measurements:
        assert (m.forward_s, m.backward_input_s, m.backward_s) == (0.0, 0.0, 0.0)
        assert m.backward_weight_s > 0


def test_spread_is_that_of_the_middle_half() -> None:
    samples = Samples(on_cpu=True)
    for time in (1.0, 2.0, 4.0, 6.0, 100.0):
        for kind in Kind:
            samples.add(1, [[OpRecord(Op(0, kind, 0), 0.0, 1.0, 0, 0, time if kind is Kind.I else 3.0)]])
    assert samples.measurement(0, 1, (1,)).spread == (0.0, 1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"layers": []}, "layers: 0 is below 1"),
        ({"sizes": []}, "sizes: 0 is below 1"),
        ({"sizes": [2, 0]}, "sizes: 0 is below 1"),
        ({"units": 0}, "units: 0 is below 1"),
        ({"rounds": 0}, "rounds: 0 is below 1"),
    ],
)
def test_refusals(keys: dict[str, object], message: str) -> None:
    call = {"layers": [LayerName("a", "a", 1)], "sizes": [1], "units": 1, "rounds": 1} | keys
    with pytest.raises(InputError, match=message):
        measure_layers(
            call["layers"],  # type: ignore[arg-type]  # as a caller would who is wrong
            lambda _: nn.Identity(),
            F.mse_loss,
            lambda n: (torch.ones(n), torch.ones(n)),
            call["sizes"],  # type: ignore[arg-type]
            units=call["units"],  # type: ignore[arg-type]
            rounds=call["rounds"],  # type: ignore[arg-type]
        )


@dataclass
class FakeGpu:
    """A stream on which every recorded event lies a millisecond after the one before, and an allocator."""

    now_ms: float = 0.0
    synchronised: int = 0
    held: list[int] = field(default_factory=lambda: [100, 100])  # now, and at most

    def event(self, enable_timing: bool) -> FakeEvent:
        assert enable_timing
        return FakeEvent(self)

    def synchronize(self, device: torch.device) -> None:
        self.synchronised += 1

    def allocate(self, count: int) -> None:
        self.held[0] += count
        self.held[1] = max(self.held)

    def reset(self, device: torch.device) -> None:
        self.held[1] = self.held[0]


@dataclass
class FakeEvent:
    gpu: FakeGpu
    at_ms: float = 0.0

    def record(self, stream: object) -> None:
        self.gpu.now_ms += 1 + self.gpu.now_ms
        self.at_ms = self.gpu.now_ms

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.gpu.synchronised, "the events may not have happened yet"
        return end.at_ms - self.at_ms


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    for name, value in (
        ("Event", fake.event),
        ("synchronize", fake.synchronize),
        ("current_stream", lambda device: None),
        ("reset_peak_memory_stats", fake.reset),
        ("memory_allocated", lambda device: fake.held[0]),
        ("max_memory_allocated", lambda device: fake.held[1]),
    ):
        monkeypatch.setattr(torch.cuda, name, value)
    return fake


def test_a_gpu_is_timed_by_events_that_are_read_at_the_end(gpu: FakeGpu) -> None:
    watch = stopwatch_for(torch.device("cuda"))
    for _ in range(2):
        watch.start()
        watch.stop()
    assert gpu.synchronised == 0  # the host queues ahead
    assert watch.take_s() == pytest.approx((0.002, 0.008))  # events at 1, 3, 7 and 15 ms
    assert watch.take_s() == ()


def test_a_gpu_is_asked_for_its_peak(gpu: FakeGpu) -> None:
    def piece() -> None:
        gpu.allocate(50)
        gpu.allocate(-30)

    assert peak_bytes([piece, piece, lambda: gpu.allocate(-5)], torch.device("cuda")) == (50, 50, 0)
