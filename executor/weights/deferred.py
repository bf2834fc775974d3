"""A linear layer whose backward hands its weight gradient to somebody who computes it later.

Also one that stores its weight as (in, out), the `Conv1D` of transformers' GPT-2. Its gradient is xᵀ·gy where the
other's is gyᵀ·x, so that x and gy change places, and all else stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_AUTOCAST = frozenset({torch.float32, torch.bfloat16, torch.float16})
_DTYPES = _AUTOCAST | {torch.float64}

_unsafe_view = torch.ops.aten._unsafe_view.default

_CONV1D = "transformers.pytorch_utils.Conv1D"  # by its name, for transformers is not ours to import

Sink = Callable[[Tensor, Tensor, nn.Parameter, int], None]
"""Takes the layer's input, the gradient of its output (in turn for a Conv1D), the weight, and its version at the
forward."""


class Sinks:
    """The sink that patched modules see.

    One per process and not one per thread: on accelerators the backward, and with it the recomputation of
    checkpointed layers, runs in a thread of autograd's own.
    """

    current: ClassVar[Sink | None] = None


def stand_in(layer: nn.Module) -> Callable[[Any, Tensor], Tensor] | None:
    """What stands in for the forward of a layer whose weight gradient can wait; None for all other layers.

    Exactly these classes: subclasses do other things, and a parametrised layer has a class of its own.
    """
    if type(layer) is nn.Linear:
        return linear_forward
    return conv1d_forward if f"{type(layer).__module__}.{type(layer).__qualname__}" == _CONV1D else None


def linear_forward(self: nn.Linear, input: Tensor) -> Tensor:
    """Stand in for `nn.Linear.forward`."""
    return _forward(self, input, transposed=False)


def conv1d_forward(self: nn.Module, x: Tensor) -> Tensor:
    """Stand in for transformers' `Conv1D.forward`."""
    return _forward(self, x, transposed=True)


# Pickle finds a bound method by its name, and so takes the class's own forward.
linear_forward.__name__ = conv1d_forward.__name__ = "forward"


def _forward(layer: nn.Module, x: Tensor, transposed: bool) -> Tensor:
    """The same as the class's own forward where no sink is set or the gradient cannot wait."""
    own = type(layer).forward
    if torch.compiler.is_compiling():  # before all else, so that the user's graph stays whole, and one for all sinks
        return cast(Tensor, own(layer, x))
    sink = Sinks.current
    weight = layer._parameters.get("weight")
    if sink is None or weight is None or not _can_wait(x, weight, transposed):
        return cast(Tensor, own(layer, x))
    device = x.device.type
    if torch.is_autocast_enabled(device) and {x.dtype, weight.dtype} <= _AUTOCAST:
        # Cast here: within the function below, autocast would cache a weight that has lost its history.
        x = x.to(torch.get_autocast_dtype(device))
    elif x.dtype != weight.dtype:
        return cast(Tensor, own(layer, x))  # which names the mistake
    y = _DeferredLinear.apply(x, weight, layer.bias, sink, transposed)  # type: ignore[no-untyped-call]  # torch's
    return cast(Tensor, y)


def _can_wait(x: Tensor, weight: nn.Parameter, transposed: bool) -> bool:
    return (
        torch.is_grad_enabled()
        and not torch._C._are_functorch_transforms_active()
        and type(weight) is nn.Parameter  # a DTensor of FSDP or tensor parallelism has hooks of its own
        and type(x) in (Tensor, nn.Parameter)
        and weight.requires_grad
        and weight.dtype in _DTYPES
        and weight.grad_dtype in (None, weight.dtype)
        and not weight._backward_hooks  # hooks must see the gradient when the backward makes it
        and not weight._post_accumulate_grad_hooks
        and x.layout is torch.strided
        and not x.is_nested
        and x.device == weight.device
        and x.dim() > 0
        and x.shape[-1] == weight.shape[0 if transposed else 1]
    )


class _DeferredLinear(torch.autograd.Function):
    """`F.linear`, with the weight's transpose if asked, whose backward leaves the weight gradient to the queue."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: nn.Parameter, bias: nn.Parameter | None, sink: Sink, transposed: bool
    ) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight)
        ctx.rest = weight, weight._version, sink, transposed
        matrix = weight.t() if transposed else weight
        y = F.linear(_matrix(x), _like(x, matrix), None if bias is None else _like(x, bias))
        # An ordinary view made in here could not be changed in place, as ReLU(inplace=True) does.
        return cast(Tensor, _unsafe_view(y, (*x.shape[:-1], y.shape[-1])))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        (gy,) = gradients
        if gy is None:
            return None, None, None, None, None
        x, weight = ctx.saved_tensors
        parameter, version, sink, transposed = ctx.rest
        needs_x, _, needs_bias = ctx.needs_input_grad[:3]
        gx = gy.matmul(_like(x, weight.t() if transposed else weight)) if needs_x else None
        gbias = _matrix(gy).sum(0) if needs_bias else None
        gweight = None
        right, left = (gy, x) if transposed else (x, gy)
        match _destination(ctx.next_functions[1][0]):
            case "grad":
                sink(right, left, parameter, version)
            case "caller":
                gweight = _matrix(left).t().mm(_matrix(right))
        return gx, gweight, gbias, None, None


def _destination(accumulate: Any) -> Literal["grad", "caller", "nobody"]:
    """Tell who wants the weight gradient of the backward that runs now.

    A `torch.autograd.grad` inside the stage's own forward, as models of forces or gradient penalties do, must not add
    to `.grad`; and a backward that is itself differentiated cannot wait.
    """
    if torch.is_grad_enabled():
        return "caller"
    try:
        return "grad" if torch._C._will_engine_execute_node(accumulate) else "nobody"
    except RuntimeError:  # raised for a leaf whose gradient torch.autograd.grad returns
        return "caller"


class WeightGradient:
    """One weight gradient that waits: computes it, rows at a time, and adds it to the weight's `.grad`.

    Parameters
    ----------
    x, gy
        Input of the layer and gradient of its output, of shapes (..., in) and (..., out); in turn for a Conv1D.
    weight
        The parameter, of shape (out, in); of a Conv1D (in, out).
    version
        The weight's version at the forward.
    stage, microbatch, name
        Whose and which it is, for messages.
    """

    __slots__ = ("_versions", "_where", "gy", "weight", "x")

    def __init__(
        self, x: Tensor, gy: Tensor, weight: nn.Parameter, version: int, stage: int, microbatch: int, name: str
    ) -> None:
        self.x, self.gy, self.weight = x, gy, weight
        self._versions = (version, x._version, gy._version)
        self._where = stage, microbatch, name

    @property
    def rows(self) -> int:
        """Rows of the weight."""
        return self.weight.shape[0]

    def run(self, start: int, stop: int) -> None:
        """Compute the rows from `start` to before `stop`, at most once each, in any order.

        To be called without gradients: with them, the new one would carry a graph, for x requires grad, and keep every
        gy alive.

        Raises
        ------
        RuntimeError
            If the weight, or a tensor that its gradient is made of, was changed in place since the forward.
        """
        assert not torch.is_grad_enabled(), "a weight gradient has no graph"
        if (self.weight._version, self.x._version, self.gy._version) != self._versions:
            stage, microbatch, name = self._where
            raise RuntimeError(
                f"stage {stage}, micro-batch {microbatch}, {name}: one of the tensors needed for its gradient has been "
                "modified by an inplace operation since the forward (the weight itself, the layer's input, or the "
                "gradient of its output); run W before the optimizer step"
            )
        if torch.is_autocast_enabled(self.x.device.type):
            with torch.autocast(self.x.device.type, enabled=False):
                self._add(start, stop)
        else:
            self._add(start, stop)

    def _add(self, start: int, stop: int) -> None:
        x, weight = self.x, self.weight
        grad, whole = weight.grad, start == 0 and stop == self.rows
        gy = _matrix(self.gy)
        left, right = (gy if whole else gy[:, start:stop]).t(), _matrix(x)
        if grad is None and whole:
            grad = torch.empty_like(weight)  # the strides that autograd would choose
            if grad.dtype == x.dtype:
                torch.mm(left, right, out=grad)
            else:
                grad.copy_(left.mm(right))
            weight.grad = grad
            return
        if grad is None:
            grad = weight.grad = torch.zeros_like(weight)
        elif grad.layout is not torch.strided:  # of an embedding with sparse gradients
            grad = weight.grad = torch.zeros_like(weight) + grad
        part = grad if whole else grad[start:stop]
        if grad.dtype == x.dtype:
            part.addmm_(left, right)
        else:
            part.add_(left.mm(right))


def _like(x: Tensor, tensor: Tensor) -> Tensor:
    """A tensor in the dtype of another; the check spares a call where nothing has to be done."""
    return tensor if tensor.dtype == x.dtype else tensor.to(x.dtype)


def _matrix(tensor: Tensor) -> Tensor:
    """View as (tokens, features)."""
    return tensor.unsqueeze(0) if tensor.dim() == 1 else tensor.flatten(0, -2)
