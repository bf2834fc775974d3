"""The families of decoders that can be split: where transformers keeps their parts, and how it builds and calls them.

The blocks, norms and rotary embeddings are transformers' own classes. What differs between families, or between
releases of transformers, is in the family's class here and nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from adaptpipe.solver import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

Settings = Any
"""A config object of transformers, which is imported only where one is made."""


@dataclass(frozen=True, slots=True)
class Family(ABC):
    """A family of decoders.

    Parameters
    ----------
    name
        Its `model_type` in a config.json.
    prefix
        What its classes' names begin with.
    """

    name: str
    prefix: str

    body: ClassVar[str]
    """Where the unsplit model has everything but the head."""
    blocks: ClassVar[str]
    """Where the body has its blocks."""
    norm: ClassVar[str]
    """Where the body has its last norm."""
    tokens: ClassVar[str]
    """Where the body has the embedding of tokens, whose matrix may be tied to the head's."""
    attention: ClassVar[tuple[str, ...]]
    """A block's modules that attend; all others are the MLP's."""

    def settings(self, keys: Mapping[str, object]) -> Settings:
        """Make a config object of what is in a config.json."""
        return self._named("configuration", "Config").from_dict(dict(keys))

    def owner(self, settings: Settings) -> Any:
        """Make the model without its parts, which knows how each is initialised; settles `settings`' attention."""
        return self._named("modeling", "PreTrainedModel")(settings)

    @abstractmethod
    def make_embeddings(self, settings: Settings) -> nn.ModuleDict:
        """Build what the body has before the blocks, by name."""

    @abstractmethod
    def embed(self, body: Any, tokens: Tensor) -> Tensor:
        """Apply the embeddings to tokens int64 [samples, tokens]."""

    @abstractmethod
    def make_block(self, settings: Settings, index: int) -> nn.Module:
        """Build a block."""

    @abstractmethod
    def apply(self, block: nn.Module, x: Tensor, mask: Tensor | None, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        """Apply a block to a hidden state."""

    @abstractmethod
    def attend(self, block: Any, x: Tensor, mask: Tensor | None, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        """Apply the attention of a block, its norm and the sum with its input included."""

    @abstractmethod
    def transform(self, block: Any, x: Tensor) -> Tensor:
        """Apply the MLP of a block, its norm and the sum with its input included."""

    def keep(self, block: nn.Module, attention: bool) -> None:
        """Leave a block its attention, or its MLP, alone."""
        for name, _ in list(block.named_children()):
            if (name in self.attention) != attention:
                delattr(block, name)

    @abstractmethod
    def make_norm(self, settings: Settings) -> nn.Module:
        """Build the last norm."""

    @abstractmethod
    def make_rotary(self, settings: Settings) -> nn.Module | None:
        """Build what makes the rotary embedding's cosines and sines; None for other positions."""

    def window(self, settings: Settings, index: int) -> int | None:
        """How many positions, its own and those before it, a position of a block sees; None: all.

        A config keeps keys that its family never looks at, so a `sliding_window` alone says nothing.
        """
        return None

    def module(self, kind: str) -> str:
        """Name of transformers' module with the family's "modeling" or "configuration"."""
        return f"transformers.models.{self.name}.{kind}_{self.name}"

    def _named(self, kind: str, suffix: str) -> Any:
        return getattr(import_transformers(self.module(kind)), self.prefix + suffix)


class Rotary(Family):
    """Pre-norm blocks, rotary positions, root-mean-square norms: Llama and its relatives."""

    __slots__ = ()
    body, blocks, norm, tokens = "model", "layers", "norm", "embed_tokens"
    attention = ("input_layernorm", "self_attn")

    def make_embeddings(self, settings: Settings) -> nn.ModuleDict:
        """Build the embedding of tokens."""
        from torch import nn

        tokens = nn.Embedding(settings.vocab_size, settings.hidden_size, settings.pad_token_id)
        return nn.ModuleDict({"embed_tokens": tokens})

    def embed(self, body: Any, tokens: Tensor) -> Tensor:
        """Look the tokens up."""
        hidden: Tensor = body.embed_tokens(tokens)
        return hidden

    def make_block(self, settings: Settings, index: int) -> nn.Module:
        """Build a decoder layer."""
        block: nn.Module = self._named("modeling", "DecoderLayer")(settings, index)
        return block

    def apply(self, block: nn.Module, x: Tensor, mask: Tensor | None, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        """Apply a decoder layer."""
        return _hidden(block(x, attention_mask=mask, position_embeddings=rotation))

    def attend(self, block: Any, x: Tensor, mask: Tensor | None, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        """Apply a decoder layer's attention."""
        normed = block.input_layernorm(x)
        return x + _hidden(block.self_attn(normed, position_embeddings=rotation, attention_mask=mask))

    def transform(self, block: Any, x: Tensor) -> Tensor:
        """Apply a decoder layer's MLP."""
        branch: Tensor = block.mlp(block.post_attention_layernorm(x))
        return x + branch

    def make_norm(self, settings: Settings) -> nn.Module:
        """Build a root-mean-square norm."""
        norm: nn.Module = self._named("modeling", "RMSNorm")(settings.hidden_size, eps=settings.rms_norm_eps)
        return norm

    def make_rotary(self, settings: Settings) -> nn.Module:
        """Build the rotary embedding."""
        rotary: nn.Module = self._named("modeling", "RotaryEmbedding")(settings)
        return rotary


class Windowed(Rotary):
    """Llama's relatives in which all blocks have the config's window, or none has one."""

    __slots__ = ()

    def window(self, settings: Settings, index: int) -> int | None:
        """Give the window of every block."""
        window: int | None = settings.sliding_window
        return window


class Mixed(Windowed):
    """Llama's relatives in which the config says for each block whether it has the window."""

    __slots__ = ()

    def window(self, settings: Settings, index: int) -> int | None:
        """Give the window of a block, if it has one."""
        if settings.layer_types[index] != "sliding_attention":
            return None
        window = super().window(settings, index)
        if window is None:
            raise InputError(
                f"layer_types[{index}] = 'sliding_attention', and the config has no window; set use_sliding_window = "
                "true and sliding_window, or leave layer_types out"
            )
        return window


class GPT2(Family):
    """Pre-norm blocks, learned positions, layer norms, and matrices stored as transformers' `Conv1D`."""

    __slots__ = ()
    body, blocks, norm, tokens = "transformer", "h", "ln_f", "wte"
    attention = ("ln_1", "attn")

    def make_embeddings(self, settings: Settings) -> nn.ModuleDict:
        """Build the embeddings of tokens and positions, and their dropout."""
        from torch import nn

        tokens = nn.Embedding(settings.vocab_size, settings.hidden_size)
        positions = nn.Embedding(settings.max_position_embeddings, settings.hidden_size)
        return nn.ModuleDict({"wte": tokens, "wpe": positions, "drop": nn.Dropout(settings.embd_pdrop)})

    def embed(self, body: Any, tokens: Tensor) -> Tensor:
        """Add a vector of its position to each token's."""
        hidden: Tensor = body.drop(body.wte(tokens) + body.wpe.weight[: tokens.shape[1]])
        return hidden

    def make_block(self, settings: Settings, index: int) -> nn.Module:
        """Build a block."""
        block: nn.Module = self._named("modeling", "Block")(settings, layer_idx=index)
        return block

    def apply(self, block: nn.Module, x: Tensor, mask: Tensor | None, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        """Apply a block."""
        return _hidden(block(x, attention_mask=mask))

    def attend(self, block: Any, x: Tensor, mask: Tensor | None, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
        """Apply a block's attention."""
        return x + _hidden(block.attn(block.ln_1(x), attention_mask=mask))

    def transform(self, block: Any, x: Tensor) -> Tensor:
        """Apply a block's MLP."""
        branch: Tensor = block.mlp(block.ln_2(x))
        return x + branch

    def make_norm(self, settings: Settings) -> nn.Module:
        """Build a layer norm."""
        from torch import nn

        return nn.LayerNorm(settings.hidden_size, eps=settings.layer_norm_epsilon)

    def make_rotary(self, settings: Settings) -> None:
        """Have none: positions are learned."""


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        GPT2("gpt2", "GPT2"),
        Rotary("llama", "Llama"),
        Windowed("mistral", "Mistral"),
        Mixed("qwen2", "Qwen2"),
        Mixed("qwen3", "Qwen3"),
    )
}
"""The families that can be split, by `model_type`."""


def import_transformers(module: str) -> ModuleType:
    """Import a module of transformers, by name: what it ships of types would cost mypy minutes.

    Raises
    ------
    InputError
        If it is not there.
    """
    try:
        return import_module(module)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != "transformers":
            raise
        raise InputError(
            f"{module} cannot be imported ({error}), and this model needs it; pip install 'adaptpipe[hf]'"
        ) from error


def _hidden(output: Any) -> Tensor:
    # Blocks of older releases return a tuple, the hidden state first.
    hidden: Tensor = output[0] if isinstance(output, tuple) else output
    return hidden
