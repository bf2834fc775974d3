"""Weights that change while micro-batches are in flight: each micro-batch keeps those of its forward.

PipeDream's weight stashing (Narayanan et al., SOSP 2019, section 3.3). A micro-batch's forward and backward run on
leaves of its own, which share their storage with the newest weights. An update that finds such leaves in use gives the
newest weights another storage first, and leaves the old one to them; when the last of them goes, so does its storage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from adaptpipe.solver import InputError


@dataclass(frozen=True, slots=True)
class _Weight:
    """A parameter that trains, and every place of the module where it stands."""

    name: str
    parameter: nn.Parameter
    places: tuple[tuple[nn.Module, str], ...]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A micro-batch between its forward and its update: the version that it still needs, as leaves of its own."""

    version: int | None
    leaves: tuple[nn.Parameter, ...]


class WeightStash:
    """Versions of one stage's weights, and the optimizer that makes them.

    Parameters
    ----------
    stage
        Its number, for messages.
    module
        The stage.
    optimizer
        Of all its parameters that train; None where there are none.

    Attributes
    ----------
    most_versions
        The most versions that were alive at once since `begin`, the newest among them.

    Examples
    --------
    >>> layer = nn.Linear(1, 1, bias=False)
    >>> nn.init.ones_(layer.weight).item()
    1.0
    >>> stash = WeightStash(0, layer, torch.optim.SGD(layer.parameters(), lr=1.0))
    >>> stash.begin()
    >>> outputs = []
    >>> for microbatch in range(2):
    ...     stash.take(microbatch)
    ...     with stash.using(microbatch):
    ...         outputs.append(layer(torch.tensor([2.0])))
    >>> outputs[0].backward()
    >>> stash.update(0)
    >>> layer.weight.item(), stash.versions, stash.held_bytes
    (-1.0, 2, 4)
    """

    def __init__(self, stage: int, module: nn.Module, optimizer: Optimizer | None) -> None:
        self.stage, self.most_versions = stage, 1
        self._module, self._optimizer = module, optimizer
        self._weights: tuple[_Weight, ...] = ()
        self._before: tuple[torch.Tensor | None, ...] = ()
        self._newest = 0
        self._flights: dict[int, _Flight] = {}
        self.check()

    def check(self) -> None:
        """See that everything which trains can be updated here.

        Raises
        ------
        InputError
            If a parameter that trains is not the optimizer's, or has hooks, which would not see the gradients of its
            versions.
        """
        groups = [] if self._optimizer is None else self._optimizer.param_groups
        updated = {id(parameter) for group in groups for parameter in group["params"]}
        for weight in _trained(self._module):
            where = f"stage {self.stage}: {weight.name}"
            if id(weight.parameter) not in updated:
                raise InputError(
                    f"{where} trains, and no optimizer has it; give optimizers={{{self.stage}: …}} one of all "
                    "parameters of the stage, or set its requires_grad to False"
                )
            if weight.parameter._backward_hooks or weight.parameter._post_accumulate_grad_hooks:
                raise InputError(
                    f"{where} has a gradient hook, and gradients belong to versions of it that no hook sees; use the "
                    "optimizer's register_step_pre_hook, which finds each micro-batch's gradient in .grad"
                )

    @property
    def versions(self) -> int:
        """Versions alive now, the newest among them."""
        return len({flight.version for flight in self._flights.values()} - {None} | {self._newest})

    @property
    def held_bytes(self) -> int:
        """Bytes of all versions but the newest."""
        return (self.versions - 1) * sum(weight.parameter.nbytes for weight in self._weights)

    def begin(self) -> None:
        """Start a run; gradients of before are put aside.

        Raises
        ------
        InputError
            As `check`.
        """
        self.check()
        assert not self._flights, f"stage {self.stage}: micro-batches {list(self._flights)} were never updated with"
        self._weights = tuple(_trained(self._module))
        self._before = tuple(weight.parameter.grad for weight in self._weights)
        for weight in self._weights:
            weight.parameter.grad = None
        self.most_versions = 1

    def end(self) -> None:
        """End a run, also one that failed; gradients of before are put back."""
        self._flights.clear()
        torch.clear_autocast_cache()  # of casts that were made before
        for weight, grad in zip(self._weights, self._before, strict=True):
            weight.parameter.grad = grad
        self._weights, self._before = (), ()

    def take(self, microbatch: int) -> None:
        """Give a micro-batch the newest weights, for its forward and its backward."""
        leaves = tuple(nn.Parameter(weight.parameter.data) for weight in self._weights)
        self._flights[microbatch] = _Flight(self._newest, leaves)

    @contextmanager
    def using(self, microbatch: int) -> Iterator[None]:
        """Inside, the module has a micro-batch's weights; in backwards too, where layers may be computed again."""
        caching = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)  # it would keep a cast of every version until autocast ends
        self._place(self._flights[microbatch].leaves)
        try:
            yield
        finally:
            self._place(tuple(weight.parameter for weight in self._weights))
            torch.set_autocast_cache_enabled(caching)

    def let_go(self, microbatch: int) -> None:
        """Free a micro-batch's weights after its I: what waits for W needs their shapes alone."""
        leaves = self._flights[microbatch].leaves
        for leaf in leaves:
            leaf.data = leaf.data.new_empty(()).expand(leaf.shape)
        self._flights[microbatch] = _Flight(None, leaves)

    def update(self, microbatch: int) -> None:
        """Let the optimizer step on the gradient of a micro-batch whose backward is complete.

        Raises
        ------
        InputError
            If the module used a parameter elsewhere than in its place, and so not that of the micro-batch's version.
        """
        grads = tuple(leaf.grad for leaf in self._flights.pop(microbatch).leaves)
        if any(flight.version == self._newest for flight in self._flights.values()):
            for weight in self._weights:
                weight.parameter.data = weight.parameter.data.clone()
        for weight, grad in zip(self._weights, grads, strict=True):
            if weight.parameter.grad is not None:
                raise InputError(
                    f"stage {self.stage}: {weight.name} got a gradient that is of no version of it; the stage must use "
                    "its parameters as attributes of its modules, and keep no other references to them"
                )
            weight.parameter.grad = grad
        if self._optimizer is not None:
            self._optimizer.step()
        for weight in self._weights:
            weight.parameter.grad = None
        self._newest += 1
        self.most_versions = max(self.most_versions, self.versions)

    def _place(self, parameters: tuple[nn.Parameter, ...]) -> None:
        for weight, parameter in zip(self._weights, parameters, strict=True):
            for owner, name in weight.places:
                if type(owner).__setattr__ is nn.Module.__setattr__:
                    owner._parameters[name] = parameter  # the same, in a fifth of the time
                else:
                    setattr(owner, name, parameter)  # an LSTM keeps a list of its weights, too


def _trained(module: nn.Module) -> Iterator[_Weight]:
    """The parameters of a module that train, each once."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for owner in module.modules():
        for name, parameter in owner._parameters.items():
            places.setdefault(id(parameter), []).append((owner, name))
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            yield _Weight(name, parameter, tuple(places[id(parameter)]))


def stashes_of(stages: Mapping[int, nn.Module], optimizers: Mapping[int, Optimizer]) -> dict[int, WeightStash]:
    """A stash for each of a rank's stages.

    Raises
    ------
    InputError
        If `optimizers` is no mapping from the rank's stages to optimizers, or one cannot update its stage.
    """
    if not isinstance(optimizers, Mapping):
        raise InputError(
            f"optimizers is a {type(optimizers).__name__}; give a mapping from numbers of stages to their optimizers"
        )
    for stage, optimizer in optimizers.items():
        if stage not in stages:
            raise InputError(f"optimizers: has one for stage {stage!r}, and the rank has the stages {sorted(stages)}")
        if not isinstance(optimizer, Optimizer):
            raise InputError(f"optimizers[{stage}] is a {type(optimizer).__name__}; give a torch.optim.Optimizer")
    return {stage: WeightStash(stage, module, optimizers.get(stage)) for stage, module in stages.items()}
