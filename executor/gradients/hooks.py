"""Hooks that parameters call when a gradient has been added: once for each step, when all of it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Hook = Callable[[Tensor], object]


@dataclass(slots=True)
class _Held:
    """The hooks of one parameter, and what its gradient was before the step."""

    parameter: nn.Parameter
    hooks: dict[int, Hook]
    grad: Tensor | None
    version: int
    waits_for: set[int | None]


class GradientHooks:
    """Holds back what `register_post_accumulate_grad_hook` has set, and calls it once a step.

    By itself autograd calls such a hook after every micro-batch, and the optimizers that users run in it would step on
    a part of the gradient. A weight whose hooks are held back can wait for W as any other.

    Parameters
    ----------
    stages
        This rank's.
    """

    def __init__(self, stages: Mapping[int, nn.Module]) -> None:
        self._owners: dict[nn.Parameter, set[int | None]] = {}
        for stage, module in stages.items():
            for parameter in module.parameters():
                self._owners.setdefault(parameter, set()).add(stage)
        self._held: list[_Held] = []

    def hold(self, reduced: Iterable[nn.Parameter] = ()) -> None:
        """Take the hooks off, for the time of a step.

        Parameters
        ----------
        reduced
            Parameters whose gradients are not complete before they have been summed over ranks.
        """
        late = set(reduced)
        for parameter, stages in self._owners.items():
            if hooks := parameter._post_accumulate_grad_hooks:
                grad = parameter.grad
                version = -1 if grad is None else grad._version
                waits_for = stages | {None} if parameter in late else set(stages)
                self._held.append(_Held(parameter, dict(hooks), grad, version, waits_for))
                hooks.clear()  # autograd holds this very object, and so do the handles that remove hooks

    def complete(self, stage: int | None) -> None:
        """Hear that a stage's gradients are there, or (None) all sums over ranks; call what waited for no more."""
        for held in self._held:
            if stage in held.waits_for:
                held.waits_for.discard(stage)
                if not held.waits_for:
                    _restore(held)
                    _call(held)

    def release(self) -> None:
        """Put back the hooks of parameters that were not complete, after a step that failed."""
        for held in self._held:
            if held.waits_for:
                _restore(held)
        self._held.clear()


def _restore(held: _Held) -> None:
    hooks = held.parameter._post_accumulate_grad_hooks
    hooks.update(held.hooks)


def _call(held: _Held) -> None:
    """Call a parameter's hooks, as autograd does where something was added to its gradient."""
    grad = held.parameter.grad
    if grad is None or (grad is held.grad and grad._version == held.version):
        return
    with torch.no_grad():
        for hook in held.hooks.values():
            hook(held.parameter)
