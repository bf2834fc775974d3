"""One stage on one rank: its forward, its backward in one or two parts, and what lives in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from adaptpipe.solver import InputError

from ..channels.message import Message, as_message
from ..feeding.keywords import chosen, keywords_of
from ..feeding.rows import tensors_of
from ..weights import WeightQueue, install
from ..weights.activations import Storages, count_saved
from ..weights.recomputation import Recomputation, can_be_counted
from .carried import Carried
from .device import device_of
from .randomness import RandomState

Loss = Callable[..., Tensor]
"""Takes the last stage's output and the target; gives the mean loss over the samples, or over the tokens of a slice."""


class Runner(Protocol):
    """What runs the ops of one stage: see `StageRunner`, which does so for real."""

    @property
    def held_bytes(self) -> int: ...

    def held_by(self, microbatch: int) -> int: ...

    def forward(
        self, microbatch: int, inputs: Message, *, target: object, weight: float, split: bool, is_batch: bool
    ) -> Message: ...

    def outputs(self, microbatch: int, inputs: Message, target: object, weight: float) -> Message: ...

    def backward(self, microbatch: int, gradients: Message | None, split: bool) -> Message: ...

    def weights(self, microbatch: int, units: tuple[int, int] | None = None) -> None: ...

    def assert_done(self) -> None: ...

    def clear(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Held:
    """What F leaves for the backward: inputs that want a gradient, and where the backward begins.

    The graph is held by its edges, so that outputs which nothing else needs are freed as soon as they have been sent.
    """

    inputs: Message
    edges: tuple[GradientEdge | None, ...]


class StageRunner:
    """Runs the ops of one stage.

    Parameters
    ----------
    stage
        Its number.
    module
        Called with the tensors that the stage before returned, or with those of the batch.
    loss_fn
        For the last stage only.
    unit_times
        For each micro-batch, what each unit of its weight gradient takes, in any one measure. Left out: there is one.
    random
        Where forwards that train get their random states from. None: they are left alone.
    slices
        Of each sequence, in training; where there are several, they are numbered through, and stand for micro-batches.

    Raises
    ------
    InputError
        If there are slices, and the stage does not say how it takes them.

    Attributes
    ----------
    unit_times
        As given.
    watched
        Whether to see, slowly, what backwards recompute.
    recomputed_bytes
        The most bytes that one backward was seen to recompute at a time, of checkpointed layers. 0 where code is
        compiled.
    """

    def __init__(
        self,
        stage: int,
        module: nn.Module,
        loss_fn: Loss | None,
        unit_times: Sequence[tuple[int, ...]] = (),
        random: RandomState | None = None,
        slices: int = 1,
    ) -> None:
        self.stage = stage
        self.module = module
        self._slices = slices
        self._carried = Carried(stage, module, slices)
        self._loss_fn = loss_fn
        self.unit_times = unit_times
        self._random = random
        self.watched, self.recomputed_bytes = False, 0
        self.takes = keywords_of(module)
        device = device_of({stage: module})
        self._devices = {"cpu"} if device is None else {"cpu", device.type}
        self._queue: WeightQueue = install(module, stage)
        self._held: dict[int, _Held] = {}
        self._bytes: dict[int, int] = {}  # of each micro-batch
        self._known: dict[object, int] = {}  # bytes after F, by what they depend on
        self._keywords: Sequence[Mapping[str, object]] = ()
        self._trains = self._trainable()
        self._open: set[int] = set()  # micro-batches whose gradients are not complete
        self._complete: Callable[[int], None] | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes held between ops, of all micro-batches."""
        return sum(self._bytes.values())

    def held_by(self, microbatch: int) -> int:
        """Bytes held for one micro-batch."""
        return self._bytes.get(microbatch, 0)

    def expect(self, keywords: Sequence[Mapping[str, object]]) -> None:
        """Keep the keyword arguments of the micro-batches to come, those that the module takes."""
        self._keywords = [chosen(given, self.takes) for given in keywords]

    def begin(self, microbatches: Iterable[int], complete: Callable[[int], None]) -> None:
        """Start a step; `complete` hears the stage's number once the gradients of all its micro-batches are there."""
        self._open = set(microbatches)
        self._complete = complete
        self._trains = self._trainable()
        self._tell()

    def forward(
        self, microbatch: int, inputs: Message, *, target: object, weight: float, split: bool, is_batch: bool
    ) -> Message:
        """Run F.

        Parameters
        ----------
        microbatch
            Its number.
        inputs
            From the stage before, leaves that require grad where a gradient is wanted; or rows of the batch.
        target, weight
            For the last stage: what the loss compares with, and the micro-batch's share of the batch.
        split
            Whether the backward comes in two parts, I and W.
        is_batch
            Whether the inputs are rows of the batch, which gets its gradient from autograd and, as the target, is not
            counted.

        Returns
        -------
        Message
            The outputs; of the last stage its weighted loss.
        """
        beside = *tensors_of(self._given(microbatch)), *tensors_of(target)
        past = self._carried.given_to(microbatch)
        looks = tuple(None if x is None else (x.shape, x.dtype, x.requires_grad) for x in (*inputs, *beside, *past))
        given = [x for x in inputs if is_batch and x is not None] + [*beside]
        self._queue.ignore(given)
        casts = tuple(map(torch.get_autocast_dtype, self._autocasting()))
        key = (self.module.training, self._trains, split, looks, casts, microbatch % self._slices)
        storages = None
        if key not in self._known:
            # What slices before have handed on counts as theirs, whose backward comes later.
            storages = Storages([*self.module.parameters(), *self.module.buffers(), *given, *past])
        with self._bound(microbatch, split), self._drawing(microbatch), _counting(storages, bool(casts)):
            # Autocast keeps casts of leaves until its context ends, which here is the whole step; views are no leaves.
            seen = tuple(None if x is None else x.view_as(x) for x in inputs) if casts else inputs
            output = self._carried.call(microbatch, seen, self._given(microbatch))
            roots = self._roots(output, target, weight)
            del seen, output
        if storages is not None:
            for x in (*inputs, *self._carried.given_by(microbatch)):
                if x is not None:
                    storages.add(x)
            self._known[key] = storages.nbytes()
        self._bytes[microbatch] = self._known[key]
        edges = tuple(get_gradient_edge(x) if x is not None and x.requires_grad else None for x in roots)
        self._held[microbatch] = _Held(() if is_batch else inputs, edges)
        return roots

    def outputs(self, microbatch: int, inputs: Message, target: object, weight: float) -> Message:
        """Run the module and, on the last stage, the loss; keep nothing.

        Raises
        ------
        InputError
            If the output is not a tensor, or a tuple or list of tensors and None; or if the loss is not a scalar.
        """
        return self._roots(self.module(*inputs, **self._given(microbatch)), target, weight)

    def _roots(self, output: object, target: object, weight: float) -> Message:
        """What a stage sends on, or the loss, of what it returned."""
        if self._loss_fn is None:
            return as_message(self.stage, output)
        loss = self._loss_fn(output, target)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise InputError(f"loss_fn returned {what}; it must return the mean loss of its samples, a scalar tensor")
        return (loss.reshape(()) * weight,)

    def backward(self, microbatch: int, gradients: Message | None, split: bool) -> Message:
        """Run I (split) or B.

        Parameters
        ----------
        gradients
            One for each output, None where the stage after did not use it. None on the last stage: the loss's is 1.

        Returns
        -------
        Message
            One gradient for each input; None where an input wants none, or was not used.
        """
        held = self._held.pop(microbatch)
        pairs: list[tuple[GradientEdge, Tensor | None]]
        if gradients is None:
            pairs = [(edge, None) for edge in held.edges if edge is not None]
        else:
            ends = zip(held.edges, gradients, strict=True)
            pairs = [(edge, gradient) for edge, gradient in ends if edge is not None and gradient is not None]
        pairs += self._carried.gradients(microbatch)
        if pairs:
            with self._bound(microbatch, split), ExitStack() as stack:
                for device in self._autocasting():  # a forward in float32 within it would get a backward in bfloat16
                    stack.enter_context(torch.autocast(device, enabled=False))
                seen = stack.enter_context(Recomputation()) if self.watched and can_be_counted() else None
                torch.autograd.backward([edge for edge, _ in pairs], [gradient for _, gradient in pairs])
            if seen is not None:
                self.recomputed_bytes = max(self.recomputed_bytes, seen.peak)
        self._bytes.pop(microbatch)
        if split:
            self._bytes[microbatch] = self._queue.held_by(microbatch)
        if waiting := self._carried.gradient_bytes(microbatch - 1):
            self._bytes[microbatch - 1] += waiting
        self._settle(microbatch)
        return tuple(None if x is None else x.grad for x in held.inputs)

    def weights(self, microbatch: int, units: tuple[int, int] | None = None) -> None:
        """Run W: a range of units of the weight gradients that wait for a micro-batch, or all; if there are any."""
        self._queue.run(microbatch, units, self.unit_times[microbatch] if self.unit_times else (1,))
        held = self._queue.held_by(microbatch)
        if held:
            self._bytes[microbatch] = held
        else:
            self._bytes.pop(microbatch, None)
        self._settle(microbatch)

    def weight_groups(self) -> tuple[int, ...]:
        """Floating-point operations of each piece of the last W that frees all that it needed; see `WeightQueue`."""
        return self._queue.groups()

    def assert_done(self) -> None:
        """Check at the end of a step that no weight gradient waits."""
        self._keywords = ()
        self._queue.assert_empty()
        self._queue.clear()
        self._carried.assert_empty()
        assert not self._held, f"stage {self.stage} holds micro-batches {list(self._held)} after its last op"

    def clear(self) -> None:
        """Let go of everything, after a step that failed."""
        self._queue.clear()
        self._keywords = ()
        self._held.clear()
        self._carried.clear()
        self._bytes.clear()

    def close(self) -> None:
        """Give the module its own forward back."""
        self.clear()
        self._queue.close()

    def _trainable(self) -> tuple[bool, ...]:
        return tuple(parameter.requires_grad for parameter in self.module.parameters())

    def _autocasting(self) -> list[str]:
        return [device for device in self._devices if torch.is_autocast_enabled(device)]

    def _settle(self, microbatch: int) -> None:
        """See after a backward op whether it has completed the micro-batch's gradients, and the step's."""
        if not self._queue.waits(microbatch):
            self._open.discard(microbatch)
        self._tell()

    def _tell(self) -> None:
        if not self._open and self._complete is not None:
            complete, self._complete = self._complete, None
            complete(self.stage)

    def _given(self, microbatch: int) -> Mapping[str, object]:
        return self._keywords[microbatch] if self._keywords else {}

    def _drawing(self, microbatch: int) -> AbstractContextManager[None]:
        return nullcontext() if self._random is None else self._random.of(self.stage, microbatch)

    def _bound(self, microbatch: int, split: bool) -> AbstractContextManager[None]:
        return self._queue.bind(microbatch) if split else nullcontext()


def _counting(storages: Storages | None, autocasting: bool) -> AbstractContextManager[None]:
    return nullcontext() if storages is None else count_saved(storages, autocasting)


def detached(message: Message) -> Message:
    """Cut the history off tensors that keep on requiring grad, so that another stage's graph can begin there."""
    return tuple(None if x is None else x.detach().requires_grad_(x.requires_grad) for x in message)
