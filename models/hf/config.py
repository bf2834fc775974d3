"""A decoder of transformers, in numbers: enough to cut it, and to build any stage alone."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from adaptpipe.solver import InputError

from ..config import Tie, unnumbered
from ..halves import BlockLayers
from .families import FAMILIES, Family, Settings

if TYPE_CHECKING:
    from .stage import DecoderStage

ATTENTIONS = ("sdpa", "eager")
"""Implementations of attention, by transformers' names, that stages can use."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """A causal language model of transformers: embedding, blocks, and a head with the last norm.

    Parameters
    ----------
    settings
        A config object of transformers, such as a `LlamaConfig`, of one of the `FAMILIES`; it is copied.
    sequence
        Tokens of a sample in training; at most the config's positions. Stages take shorter samples, and longer ones
        up to the config's positions, too.
    split_blocks
        Whether a block is two layers, attention and MLP, which may be in different stages. Parameters have the same
        names and values either way.

    Attributes
    ----------
    layer_parameters
        Number of parameters of each layer, in order; a matrix that is tied counts with both.

    Raises
    ------
    InputError
        If the family or the way of attention is unknown, the config cannot be built, or asks for what a stage cannot
        do; if `split_blocks` is not true or false.

    Examples
    --------
    >>> from transformers import LlamaConfig
    >>> small = LlamaConfig(
    ...     hidden_size=8, intermediate_size=16, num_attention_heads=2, num_hidden_layers=2, vocab_size=256
    ... )
    >>> config = DecoderConfig(small, sequence=16)
    >>> config.layer_names
    ('embedding', 'block 0', 'block 1', 'head')
    >>> config.layer_parameters
    (2048, 656, 656, 2056)
    """

    settings: Settings
    sequence: int
    split_blocks: bool = False
    layer_parameters: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        settings = deepcopy(self.settings)
        object.__setattr__(self, "settings", settings)
        kind = getattr(settings, "model_type", None)
        if not isinstance(kind, str) or kind not in FAMILIES:
            raise InputError(f"model_type = {kind!r}: not a family that can be split; use one of {', '.join(FAMILIES)}")
        _check_ability(settings)
        positions = settings.max_position_embeddings
        if type(self.sequence) is not int or not 1 <= self.sequence <= positions:
            raise InputError(
                f"model.sequence = {self.sequence!r}: must be a whole number from 1 to the config's "
                f"max_position_embeddings, {positions}"
            )
        if not isinstance(self.split_blocks, bool):
            raise InputError(f"model.split_blocks = {self.split_blocks!r}: must be true or false")
        object.__setattr__(self, "layer_parameters", _count(self.family, settings, self.layers))
        for block in range(self.blocks):
            window = self.family.window(settings, block)
            if window is not None and window < 1:
                raise InputError(f"sliding_window = {window}: must be at least 1, for a position sees itself")

    @property
    def family(self) -> Family:
        """How its parts are built and called."""
        return FAMILIES[self.settings.model_type]

    @property
    def vocab(self) -> int:
        """Different tokens."""
        vocab: int = self.settings.vocab_size
        return vocab

    @property
    def tied(self) -> bool:
        """Whether the head uses the matrix of the token embedding."""
        return bool(self.settings.tie_word_embeddings)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        blocks: int = self.settings.num_hidden_layers
        return blocks

    @property
    def dropouts(self) -> dict[str, float]:
        """Keys of the config that make training random, and their values."""
        values: dict[str, Any] = self.settings.to_dict()
        names = ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout")
        return {name: values[name] for name in names if values.get(name)}

    @property
    def slow_imports(self) -> tuple[str, ...]:
        """Modules that building a stage imports, which takes seconds."""
        return (self.family.module("modeling"),)

    @property
    def layers(self) -> BlockLayers:
        """Which layers there are."""
        return BlockLayers(self.blocks, self.split_blocks)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """`embedding`, `block 0` …, or `attention 0`, `mlp 0` …, and `head`."""
        return self.layers.names

    @property
    def layer_sorts(self) -> tuple[str, ...]:
        """The layers' names without their numbers; those that see fewer positions than a sample has are another sort.

        Examples
        --------
        >>> from transformers import Qwen3Config
        >>> config = Qwen3Config(num_hidden_layers=3, use_sliding_window=True, sliding_window=8, max_window_layers=2)
        >>> DecoderConfig(config, sequence=16).layer_sorts
        ('embedding', 'block', 'block', 'block, window 8', 'head')
        """
        windows = [self.family.window(self.settings, block) for block in range(self.blocks)]
        seen = ["" if window is None or window >= self.sequence else f", window {window}" for window in windows]
        if self.split_blocks:
            seen = [each for window in seen for each in (window, "")]
        return tuple(sort + more for sort, more in zip(unnumbered(self.layer_names), ["", *seen, ""], strict=True))

    @property
    def ties(self) -> tuple[Tie, ...]:
        """The token matrix, if it is tied."""
        family = self.family
        embedding = (0, f"{family.body}.{family.tokens}.weight")
        return ((embedding, (self.layers.head, "lm_head.weight")),) if self.tied else ()

    def make_stage(self, seed: int, layers: range) -> DecoderStage:
        """Build the layers of one stage."""
        from .stage import DecoderStage

        return DecoderStage(self, seed, layers)


def _check_ability(settings: Settings) -> None:
    """Refuse what would be left out in silence."""
    way = settings._attn_implementation
    if way is not None and way not in ATTENTIONS:
        raise InputError(f"attn_implementation = {way!r}: a stage cannot use it; use one of {', '.join(ATTENTIONS)}")
    for key, wanted, why in (
        ("is_causal", True, "stages have causal masks"),
        ("add_cross_attention", False, "a stage has no encoder to attend to"),
        ("quantization_config", None, "weights that are trained are not quantised"),
    ):
        value = getattr(settings, key, wanted)
        if value != wanted:
            raise InputError(f"{key} = {value!r}: {why}; leave the key out")


def _count(family: Family, settings: Settings, layers: BlockLayers) -> tuple[int, ...]:
    """Parameters of each layer, by building it without memory for its weights."""
    import torch
    from torch import nn

    def size(*modules: nn.Module) -> int:
        return sum(parameter.numel() for module in modules for parameter in module.parameters())

    try:
        with torch.device("meta"):
            family.owner(settings)
            family.make_rotary(settings)
            first = size(family.make_embeddings(settings))
            blocks = [family.make_block(settings, block) for block in range(settings.num_hidden_layers)]
            head = nn.Linear(settings.hidden_size, settings.vocab_size, bias=False)
            last = size(family.make_norm(settings), head)
    except InputError:
        raise
    except Exception as error:  # whatever transformers and torch say of sizes that do not fit
        raise InputError(
            f"model: transformers cannot build a {family.name} of this config: {type(error).__name__}: {error}; "
            "change its keys"
        ) from error
    if not blocks:
        raise InputError(f"num_hidden_layers = {settings.num_hidden_layers}: must be at least 1")
    attention = tuple(size(*(block.get_submodule(name) for name in family.attention)) for block in blocks)
    mlp = tuple(size(block) - count for block, count in zip(blocks, attention, strict=True))
    return (first, *layers.of_each(attention, mlp), last)
