"""One layer on the bench: its ops, run as a stage of its own, timed and weighed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from adaptpipe.solver import Kind, Op

from ..channels.message import nbytes
from ..report import OpRecord
from ..stages.runner import Loss, StageRunner
from ..weights.cutting import even_parts
from .peaks import peak_bytes
from .stopwatch import Stopwatch

LEAST_UNIT_S = 2e-4
"""A short weight gradient has fewer units: none of them should take less than this on average."""

_MICROBATCHES = 3
"""Of a turn: one has its backward fused, one split, one split and cut into units."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a layer gets, of one size.

    Parameters
    ----------
    x
        Its input.
    gradient
        Of its output; None for the last layer, which has the loss.
    target
        What the loss compares with; None but for the last layer.
    """

    x: Tensor
    gradient: Tensor | None
    target: Tensor | None = None


class BenchLayer:
    """A layer that runs F, I, W, units of W, and B.

    Parameters
    ----------
    stage
        Number in the ops that it tells of.
    module
        From one tensor to one. Gets gradients, as after an earlier micro-batch.
    samples
        By size.
    stopwatch
        Of the device.
    loss_fn
        For the last layer only.
    is_batch
        Whether the input is the batch, which does not count and gets no gradient.

    Attributes
    ----------
    work
        Of the units of its weight gradient; empty where W has nothing to do.
    """

    def __init__(
        self,
        stage: int,
        module: nn.Module,
        samples: Mapping[int, Sample],
        stopwatch: Stopwatch,
        loss_fn: Loss | None = None,
        is_batch: bool = False,
    ) -> None:
        self.work: tuple[int, ...] = ()
        self._stage, self._module, self._samples = stage, module, samples
        self._loss_fn, self._is_batch, self._stopwatch = loss_fn, is_batch, stopwatch
        for parameter in module.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self._runner = StageRunner(stage, module, loss_fn)

    def possible_work(self, units: int) -> tuple[int, ...]:
        """Work of as many units as W can well be cut into, at most; warms up."""
        largest = max(self._samples)
        for _ in range(2):
            records = self.turn(largest, 0)
        whole = max(r.busy_s for r in records if r.op.kind is Kind.W)
        return even_parts(self._runner.weight_groups(), max(1, min(units, int(whole / LEAST_UNIT_S))))

    def cut(self, work: tuple[int, ...]) -> None:
        """Cut W into units of this work from now on."""
        self.work = work
        self._runner.close()
        self._runner = StageRunner(self._stage, self._module, self._loss_fn, (work or (1,),) * _MICROBATCHES)

    def turn(self, size: int, turn: int) -> tuple[OpRecord, ...]:
        """Run all kinds of ops at a size; `turn` says which micro-batch has which backward."""
        ways = [(j + turn) % _MICROBATCHES for j in range(_MICROBATCHES)]
        fused, whole, cut = (ways.index(way) for way in range(_MICROBATCHES))
        ops = [self._op(Kind.F, j) for j in range(_MICROBATCHES)]
        ops += [self._op(Kind.B if j == fused else Kind.I, j) for j in range(_MICROBATCHES)]
        ops += [self._op(Kind.W, whole)]
        units = range(len(self.work)) if len(self.work) > 1 else range(0)
        ops += [self._op(Kind.W, cut, (u, u + 1)) for u in units] or [self._op(Kind.W, cut)]
        given = [self._given(size) for _ in range(_MICROBATCHES)]
        seen = []
        for op in ops:
            self._stopwatch.start()
            message = self._run(op, given[op.microbatch], op.microbatch != fused)
            self._stopwatch.stop()
            seen.append((op, self._runner.held_by(op.microbatch), message))
        self._runner.assert_done()
        return tuple(
            OpRecord(op, 0.0, span, held, message, span)
            for (op, held, message), span in zip(seen, self._stopwatch.take_s(), strict=True)
        )

    def transient(self, size: int, device: torch.device) -> int:
        """The most bytes that an op holds beyond the larger of what the layer holds before and after it.

        With them what it passes on, and of what it was given (its input, the gradient of its output) all that the layer
        does not hold.
        """
        ops = [self._op(kind, 0) for kind in (Kind.F, Kind.I, Kind.W)]
        ops += [self._op(kind, 1) for kind in (Kind.F, Kind.B)]
        given = [self._given(size), self._given(size)]
        planned: list[int] = []

        def piece(op: Op) -> None:
            tensor = {Kind.F: None if self._is_batch else given[op.microbatch].x, Kind.W: None}.get(
                op.kind, given[op.microbatch].gradient
            )
            before = self._runner.held_bytes
            self._run(op, given[op.microbatch], op.microbatch == 0)
            grown = max(0, self._runner.held_bytes - before)
            planned.append(grown - (0 if tensor is None else tensor.nbytes))

        peaks = peak_bytes([partial(piece, op) for op in ops], device)
        self._runner.assert_done()
        return max(0, *(peak - planned for peak, planned in zip(peaks, planned, strict=True)))

    def close(self) -> None:
        """Give the module its own forward back."""
        self._runner.close()

    def _op(self, kind: Kind, microbatch: int, units: tuple[int, int] | None = None) -> Op:
        return Op(self._stage, kind, microbatch, units)

    def _given(self, size: int) -> Sample:
        """What one micro-batch gets: tensors of its own, as those that arrive from another rank."""
        sample = self._samples[size]
        if not self._is_batch:
            sample = replace(sample, x=sample.x.detach().clone().requires_grad_())
        return replace(sample, gradient=None if sample.gradient is None else sample.gradient.clone())

    def _run(self, op: Op, given: Sample, split: bool) -> int:
        """Run an op; returns the bytes of the message that it passes on."""
        runner, last = self._runner, self._loss_fn is not None
        match op.kind:
            case Kind.F:
                made = runner.forward(
                    op.microbatch, (given.x,), target=given.target, weight=1.0, split=split, is_batch=self._is_batch
                )
                return 0 if last else nbytes(made)
            case Kind.W:
                runner.weights(op.microbatch, op.units)
                return 0
            case _:
                return nbytes(runner.backward(op.microbatch, None if last else (given.gradient,), split))
