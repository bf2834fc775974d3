"""How a stage is called slice by slice: what slices hand on to each other, and the gradients that come back for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from adaptpipe.solver import InputError

from ..channels.message import Message
from ..weights.activations import Storages

_PLAIN = int | float | str | None  # what may be handed on beside tensors: it has no gradient


@dataclass(frozen=True, slots=True)
class _Handed:
    """What one slice handed on: cut off from its history, and where the gradients of its tensors belong."""

    state: Any
    ends: tuple[tuple[GradientEdge, Tensor], ...]


class Carried:
    """Calls a stage, with whole sequences or slice by slice.

    Each slice gets what the one before handed on as leaves of a graph of its own. Its backward leaves their gradients
    there, and the backward of the slice before, which comes later, begins with them too.

    Parameters
    ----------
    stage, module
        The stage. Where there are slices it has a method `forward_slice(*inputs, past=…, **keywords)`, which returns
        the output and what it hands on: nested tuples, lists and dicts of tensors and plain values. `past` is what it
        handed on in the slice before, () in the first one. Or it is `token_wise` and hands nothing on.
    slices
        Slices of each sequence; 1: it comes whole.

    Raises
    ------
    InputError
        If there are slices, and the stage does not say how it takes them.

    Examples
    --------
    >>> import torch
    >>> class Sum(nn.Module):
    ...     def forward_slice(self, x, past):
    ...         y = torch.cat((*past, x), 1).sum(1, keepdim=True)
    ...         return y, (y,)
    >>> carried = Carried(0, Sum(), slices=2)
    >>> [carried.call(j, (torch.ones(1, 3),), {}).item() for j in range(4)]
    [3.0, 6.0, 3.0, 6.0]
    """

    def __init__(self, stage: int, module: nn.Module, slices: int) -> None:
        self._stage, self._module, self._slices = stage, module, slices
        self._hands_on = slices > 1 and hands_on(stage, module)
        self._handed: dict[int, _Handed] = {}

    def call(self, microbatch: int, inputs: Message, keywords: Mapping[str, object]) -> object:
        """Call the stage for a slice, and keep what it hands on.

        Parameters
        ----------
        microbatch
            Number of the slice, counted through all sequences.
        inputs, keywords
            What it gets beside.

        Returns
        -------
        object
            The output.

        Raises
        ------
        InputError
            If the stage does not return output and state.
        """
        if not self._hands_on:
            return self._module(*inputs, **keywords)
        # Views, because autocast keeps casts of leaves until its context ends, which is the end of the step.
        past = tree_map_only(Tensor, lambda x: x.view_as(x), self._past(microbatch))
        returned = self._module.forward_slice(*inputs, past=past, **keywords)  # type: ignore[operator]  # a method
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise InputError(
                f"stage {self._stage}: forward_slice returned a {type(returned).__name__}; it must return the output, "
                "and what it hands on to the next slice, () if nothing"
            )
        output, present = returned
        if (microbatch + 1) % self._slices:
            state = tree_map(self._cut_off, present)
            pairs = zip(tree_leaves(present), tree_leaves(state), strict=True)
            ends = tuple(
                (get_gradient_edge(x), leaf) for x, leaf in pairs if isinstance(leaf, Tensor) and leaf.requires_grad
            )
            self._handed[microbatch] = _Handed(state, ends)
        return output

    def given_to(self, microbatch: int) -> list[Tensor]:
        """Tensors that a slice gets from the one before."""
        return _tensors(self._past(microbatch))

    def given_by(self, microbatch: int) -> list[Tensor]:
        """Tensors that a slice, whose forward has run, hands on."""
        return _tensors(self._handed[microbatch].state) if microbatch in self._handed else []

    def gradient_bytes(self, microbatch: int) -> int:
        """Bytes of the gradients that wait for a slice's backward."""
        storages = Storages()
        for _, leaf in self._handed[microbatch].ends if microbatch in self._handed else ():
            if leaf.grad is not None:
                storages.add(leaf.grad)
        return storages.nbytes()

    def gradients(self, microbatch: int) -> list[tuple[GradientEdge, Tensor]]:
        """Let go of what a slice handed on; where its backward begins because of that, and with which gradients."""
        handed = self._handed.pop(microbatch, None)
        if handed is None:
            return []
        return [(edge, leaf.grad) for edge, leaf in handed.ends if leaf.grad is not None]

    def assert_empty(self) -> None:
        """Check at the end of a step that every slice that handed something on has run backward."""
        assert not self._handed, f"stage {self._stage} keeps what slices {list(self._handed)} have handed on"

    def clear(self) -> None:
        """Let go of everything, after a step that failed."""
        self._handed.clear()

    def _past(self, microbatch: int) -> Any:
        return self._handed[microbatch - 1].state if self._hands_on and microbatch % self._slices else ()

    def _cut_off(self, x: object) -> object:
        if isinstance(x, Tensor):
            return x.detach().requires_grad_(x.requires_grad)
        if not isinstance(x, _PLAIN):
            raise InputError(
                f"stage {self._stage}: forward_slice hands a {type(x).__name__} on; only tensors, numbers, texts and "
                "None, within tuples, lists and dicts, can be handed on to the next slice"
            )
        return x


def _tensors(state: object) -> list[Tensor]:
    return [x for x in tree_leaves(state) if isinstance(x, Tensor)]


def hands_on(stage: int, module: nn.Module) -> bool:
    """Whether a stage hands something on between the slices of a sequence; if not, it works on each token by itself.

    Raises
    ------
    InputError
        If the stage does not say how it takes slices.

    Examples
    --------
    >>> layer = nn.Linear(2, 2)
    >>> layer.token_wise = True
    >>> hands_on(0, layer)
    False
    """
    if callable(getattr(module, "forward_slice", None)):
        return True
    if getattr(module, "token_wise", False) is not True:
        raise InputError(
            f"stage {stage} is a {type(module).__name__}, which takes whole sequences only, and the schedule cuts them "
            "into slices; give it a method forward_slice(x, past) that returns output and present, or token_wise = "
            "True if no token of its output depends on other tokens; or solve without batch.slices"
        )
    return False
