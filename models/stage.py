"""Modules for a run of layers, with the weights and the names that the unsplit model has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from adaptpipe.solver import InputError

from .config import ModelConfig, Tie
from .layer import Layer, Past, SequenceLayer, generator_for

_ADAM_MOMENTS = 2
_ADAM_STEP_BYTES = 4  # torch keeps a float32 step count with every parameter


class Stage(nn.Module):
    """A contiguous run of a model's layers, applied one after the other.

    The keys of its state dict are those of the unsplit model: `layers.3.fc1.weight` is layer 3's, whichever stage
    holds it. So the state dicts of all stages merge into the unsplit model's.

    Parameters
    ----------
    layers
        The layers by their index in the model, in the order in which they are applied.
    """

    def __init__(self, layers: dict[int, Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(index): layer for index, layer in layers.items()})

    def forward(self, x: Tensor) -> Tensor:
        """Apply every layer; the first dimension is the samples'."""
        for layer in self.layers.values():
            x = layer(x)
        return x


class SequenceStage(Stage):
    """A stage of layers that all can be given a sequence slice by slice."""

    def forward_slice(self, x: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Apply every layer to the next slice of a sequence.

        Parameters
        ----------
        x
            The slice: of the second dimension, the first one being the samples'.
        past
            What this gave beside the output of the slice before; () for the first slice.

        Examples
        --------
        >>> from adaptpipe.models import GPTConfig
        >>> model = build_full(GPTConfig(layers=2, width=8, heads=2, sequence=16), seed=0)
        >>> text = torch.arange(16)[None]
        >>> head, past = model.forward_slice(text[:, :10], ())
        >>> tail, past = model.forward_slice(text[:, 10:], past)
        >>> torch.allclose(torch.cat((head, tail), 1), model(text), atol=1e-6)
        True
        """
        present = []
        for layer, before in zip(self.layers.values(), past or [()] * len(self.layers), strict=True):
            assert isinstance(layer, SequenceLayer), "stages of other layers are of the base class"
            x, after = layer.forward_slice(x, before)
            present.append(after)
        return x, tuple(present)


def build_stage(config: ModelConfig, seed: int, layers: range) -> nn.Module:
    """Build only the layers of one stage, on the CPU in float32.

    Each layer's parameters come from a generator of its own, seeded by `seed` and the layer's index. So they do not
    depend on the split, and the global random state is neither read nor changed. Layers of the stage that are tied
    share one parameter; where the other layer is elsewhere, the stage has a copy of equal values.

    Parameters
    ----------
    config
        The whole model.
    seed
        Any integer.
    layers
        Indices of the stage's layers, one of the ranges of `split_layers`.

    Raises
    ------
    InputError
        If `layers` is empty, has gaps, or leaves the model.

    Examples
    --------
    >>> from adaptpipe.models import GPTConfig
    >>> stage = build_stage(GPTConfig(layers=2, width=8, heads=2, sequence=16), seed=0, layers=range(2, 4))
    >>> list(stage.state_dict())[-2:]
    ['layers.3.logits.weight', 'layers.3.logits.bias']
    """
    count = len(config.layer_names)
    if layers.step != 1 or not 0 <= layers.start < layers.stop <= count:
        raise InputError(
            f"layers of a stage = {layers}: must be a contiguous part of range(0, {count}) with at least one layer; "
            "split_layers makes such ranges"
        )
    return config.make_stage(seed, layers)


def tied_copies(config: ModelConfig, parts: Sequence[range]) -> tuple[tuple[tuple[int, str], ...], ...]:
    """Parameters that stages share, each by its copies (stage, name): what `Pipeline` takes as `tied`.

    Parameters
    ----------
    config
        The whole model.
    parts
        Layers of each stage, by `split_layers`.

    Examples
    --------
    >>> from adaptpipe.models import GPTConfig, split_layers
    >>> tied_copies(GPTConfig(layers=2, width=8, heads=2, sequence=16, tied=True), split_layers(4, 2))
    (((0, 'layers.0.tokens.weight'), (1, 'layers.3.logits.weight')),)
    """
    home = {layer: stage for stage, part in enumerate(parts) for layer in part}
    return tuple(tuple((home[layer], name) for layer, name in tie) for tie in config.ties)


def build_full(config: ModelConfig, seed: int) -> nn.Module:
    """Build the unsplit model, on the CPU in float32: one stage that holds every layer.

    Examples
    --------
    >>> from adaptpipe.models import GPTConfig
    >>> model = build_full(GPTConfig(layers=2, width=8, heads=2, sequence=16), seed=0)
    >>> model(torch.zeros(3, 16, dtype=torch.int64)).shape
    torch.Size([3, 16, 256])
    """
    return build_stage(config, seed, range(len(config.layer_names)))


def parameter_count(module: nn.Module) -> int:
    """Number of parameters, each counted once.

    Examples
    --------
    >>> parameter_count(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in module.parameters())


def static_bytes(module: nn.Module) -> int:
    """Bytes that a stage holds all the time while it is trained with Adam: weights, buffers, gradients, Adam's state.

    Frozen parameters have neither gradients nor optimizer state. A parameter that is used twice counts once. What
    `torch.optim.Adam` and `AdamW` keep is a first and a second moment in the parameter's type, and a step count.

    Examples
    --------
    >>> static_bytes(nn.Linear(3, 2))  # 8 parameters of 4 bytes, four times, and two step counts
    136
    """
    total = sum(buffer.nbytes for buffer in module.buffers())
    for parameter in module.parameters():
        total += parameter.nbytes
        if parameter.requires_grad:
            total += (1 + _ADAM_MOMENTS) * parameter.nbytes + _ADAM_STEP_BYTES
    return total


def stack(make_layer: Callable[[int], Layer], seed: int, layers: range, ties: Sequence[Tie] = ()) -> Stage:
    """Build layers, each with a generator of its own, put them one after the other, and tie them."""
    built = {index: _build_layer(make_layer, seed, index) for index in layers}
    sliced = all(isinstance(layer, SequenceLayer) for layer in built.values())
    stage = SequenceStage(built) if sliced else Stage(built)
    for (first, source), *others in ties:
        for layer, name in others:
            if layer in layers:
                owner = stage if first in layers else stack(make_layer, seed, range(first, first + 1))
                path, _, last = name.rpartition(".")
                setattr(stage.get_submodule(path), last, owner.get_parameter(source))
    return stage


def _build_layer(make_layer: Callable[[int], Layer], seed: int, index: int) -> Layer:
    # torch's own initialisation draws from the global generator. (A start on the meta device would avoid that, but
    # its first use costs a second and a half.)
    with torch.random.fork_rng(devices=[]):
        layer = make_layer(index)
    with torch.no_grad():
        layer.reset(generator_for(seed, f"layer {index}"))
    return layer
