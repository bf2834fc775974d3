"""A linear layer whose backward hands its weight gradient to somebody who computes it later."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ClassVar, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_AUTOCAST = frozenset({torch.float32, torch.bfloat16, torch.float16})
_DTYPES = _AUTOCAST | {torch.float64}

Sink = Callable[[Tensor, Tensor, nn.Parameter, int], None]
"""Takes the layer's input, the gradient of its output, the weight, and the weight's version at the forward."""


class Sinks:
    """The sink that patched modules see.

    One per process and not one per thread: on accelerators the backward, and with it the recomputation of
    checkpointed layers, runs in a thread of autograd's own.
    """

    current: ClassVar[Sink | None] = None


def linear_forward(self: nn.Linear, input: Tensor) -> Tensor:
    """Stand in for `nn.Linear.forward`; the same where no sink is set or the gradient cannot wait."""
    if torch.compiler.is_compiling():  # before all else, so that the user's graph stays whole, and one for all sinks
        return nn.Linear.forward(self, input)
    sink = Sinks.current
    weight = self._parameters.get("weight")
    if sink is None or weight is None or not _can_wait(input, weight):
        return nn.Linear.forward(self, input)
    device = input.device.type
    if torch.is_autocast_enabled(device) and {input.dtype, weight.dtype} <= _AUTOCAST:
        # Cast here: within the function below, autocast would cache a weight that has lost its history.
        input = input.to(torch.get_autocast_dtype(device))
    elif input.dtype != weight.dtype:
        return nn.Linear.forward(self, input)  # which names the mistake
    y = _DeferredLinear.apply(input, weight, self.bias, sink)  # type: ignore[no-untyped-call]  # torch's
    return cast(Tensor, y)


# Pickle finds a bound method by its name, and so takes the class's own forward.
linear_forward.__name__ = "forward"


def _can_wait(x: Tensor, weight: nn.Parameter) -> bool:
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
        and x.shape[-1] == weight.shape[1]
    )


class _DeferredLinear(torch.autograd.Function):
    """`F.linear` whose backward leaves the weight gradient to the queue."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: nn.Parameter, bias: nn.Parameter | None, sink: Sink) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight)
        ctx.weight, ctx.version, ctx.sink = weight, weight._version, sink
        y = F.linear(_matrix(x), weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
        # An ordinary view made in here could not be changed in place, as ReLU(inplace=True) does.
        return cast(Tensor, torch.ops.aten._unsafe_view(y, (*x.shape[:-1], y.shape[-1])))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (gy,) = gradients
        if gy is None:
            return None, None, None, None
        x, weight = ctx.saved_tensors
        needs_x, _, needs_bias = ctx.needs_input_grad[:3]
        gx = gy.matmul(weight.to(x.dtype)) if needs_x else None
        gbias = _matrix(gy).sum(0) if needs_bias else None
        gweight = None
        match _destination(ctx.next_functions[1][0]):
            case "grad":
                ctx.sink(x, gy, ctx.weight, ctx.version)
            case "caller":
                gweight = _matrix(gy).t().mm(_matrix(x))
        return gx, gweight, gbias, None


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
        Input of the layer and gradient of its output, of shapes (..., in) and (..., out).
    weight
        The parameter, of shape (out, in).
    version
        The weight's version at the forward.
    name
        What to call it in messages.
    """

    __slots__ = ("_name", "_versions", "gy", "weight", "x")

    def __init__(self, x: Tensor, gy: Tensor, weight: nn.Parameter, version: int, name: str) -> None:
        self.x, self.gy, self.weight = x, gy, weight
        self._versions = (version, x._version, gy._version)
        self._name = name

    @property
    def rows(self) -> int:
        """Rows of the weight: the layer's output features."""
        return self.weight.shape[0]

    def run(self, start: int, stop: int) -> None:
        """Compute the rows from `start` to before `stop`, at most once each, in any order.

        Raises
        ------
        RuntimeError
            If the weight, or a tensor that its gradient is made of, was changed in place since the forward.
        """
        x, gy, weight = self.x, self.gy, self.weight
        if (weight._version, x._version, gy._version) != self._versions:
            raise RuntimeError(
                f"{self._name}: one of the tensors needed for its gradient has been modified by an inplace operation "
                "since the forward (the weight itself, the layer's input, or the gradient of its output); "
                "run W before the optimizer step"
            )
        # Without no_grad the new gradient would carry a graph, for x requires grad, and keep every gy alive.
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False) if _autocasting(x) else nullcontext():
            left, right = _matrix(gy)[:, start:stop].t(), _matrix(x)
            grad, whole = weight.grad, start == 0 and stop == self.rows
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


def _autocasting(x: Tensor) -> bool:
    return torch.is_autocast_enabled(x.device.type)


def _matrix(tensor: Tensor) -> Tensor:
    """View as (tokens, features)."""
    return tensor.unsqueeze(0) if tensor.dim() == 1 else tensor.flatten(0, -2)
