"""Decoders by their dimensions: all that their parameters, operations and bytes follow from. No torch needed."""

from __future__ import annotations

from dataclasses import dataclass, fields

from adaptpipe.solver import InputError

MOST_LAYERS = 10_000
"""Of any kind, so that a slip of the pen is no list of millions."""

MOST = 10**9
"""Of every other dimension."""


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, 2405.04434, section 2.1): queries, keys and values from low ranks.

    Attributes
    ----------
    query_rank
        Width that queries are compressed to; None: they are not.
    rank
        Width that keys and values are compressed to, together.
    plain, rotary
        Widths of a head's query and key without and with positions; the key with positions is one for all heads.
    value
        Width of a head's value.
    """

    query_rank: int | None
    rank: int
    plain: int
    rotary: int
    value: int

    def __post_init__(self) -> None:
        _check("latent.", self, optional=("query_rank",))


@dataclass(frozen=True, slots=True)
class Experts:
    """MLPs of which each token meets a few.

    Attributes
    ----------
    count, chosen
        Experts of a block, and those that a token is sent to.
    width
        Hidden width of one.
    shared
        Hidden width, in sum, of experts that every token meets; 0: none.
    shared_gate
        Whether what they add is weighed by a gate of its own (Qwen 2 MoE).
    first_dense
        Blocks at the start that have one ordinary MLP instead.
    every
        Each how manieth block has experts, the dense ones left out.
    bias
        Whether the router keeps a bias for each expert that balances their loads (DeepSeek-V3).
    """

    count: int
    chosen: int
    width: int
    shared: int = 0
    shared_gate: bool = False
    first_dense: int = 0
    every: int = 1
    bias: bool = False

    def __post_init__(self) -> None:
        _check("experts.", self, zero=("shared", "first_dense"))
        if self.chosen > self.count:
            raise InputError(f"experts.chosen = {self.chosen}: must be at most experts.count = {self.count}")


@dataclass(frozen=True, slots=True)
class Vision:
    """A vision transformer whose merged patches take tokens' places (Qwen2-VL, 2409.12191, section 2.1).

    Attributes
    ----------
    layers, hidden, heads, ffn
        Of its blocks: full attention within an image, layer norms, an MLP of two matrices, biases everywhere.
    patch
        Numbers in a patch: channels × frames × height × width.
    merged
        Patches that are merged, by an MLP, into one token.
    patches
        Patches of an image, before they are merged.
    images
        Images of a sample.
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    patch: int
    merged: int = 4
    patches: int = 4096
    images: int = 1

    def __post_init__(self) -> None:
        _check("vision.", self)

    @property
    def tokens(self) -> int:
        """Tokens that the images of a sample take in the decoder."""
        return -(-self.patches // self.merged) * self.images


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder: embedding, blocks of attention and MLP, and a head with the last norm.

    Attributes
    ----------
    name
        For people.
    layers, hidden, heads, kv_heads, head_size, ffn, vocab
        Blocks; width of the hidden state; heads of queries, and of keys and values; width of a head; hidden width of
        the MLP; tokens that there are.
    gated
        Whether the MLP has a gate: three matrices instead of two.
    tied
        Whether the head uses the embedding's matrix.
    layer_norm
        Whether norms have a bias and subtract the mean; otherwise they are root-mean-square norms.
    qkv_bias, output_bias, mlp_bias, head_bias
        Whether the matrices of queries, keys and values, of attention's output, of the MLP and of the head have biases.
    qk_norm
        Whether queries and keys are normed, head by head (Qwen 3).
    post_norms
        Whether the outputs of attention and MLP are normed too (Gemma 2).
    positions
        Learned positions; 0: they are rotary.
    window, full_every
        Tokens that a token sees, itself included, None: all; and each how manieth block has no window, 0: none.
    latent, experts, vision
        What it has of these.
    mtp
        Blocks after the last that predict further tokens, each with the head's logits (DeepSeek-V3, 2412.19437,
        section 2.2).

    Raises
    ------
    InputError
        When a dimension is not a whole number from 1, or too large, or heads cannot share keys evenly.

    Examples
    --------
    >>> Architecture("tiny", layers=2, hidden=8, heads=2, kv_heads=1, head_size=4, ffn=16, vocab=100).gated
    True
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocab: int
    gated: bool = True
    tied: bool = False
    layer_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    positions: int = 0
    window: int | None = None
    full_every: int = 0
    latent: Latent | None = None
    experts: Experts | None = None
    vision: Vision | None = None
    mtp: int = 0

    def __post_init__(self) -> None:
        _check("", self, zero=("positions", "full_every", "mtp"), optional=("window",))
        if self.heads % self.kv_heads:
            raise InputError(f"{self.heads} heads cannot share {self.kv_heads} heads of keys evenly")

    @property
    def norm(self) -> int:
        """Vectors of parameters in a norm; as many numbers it keeps of each token."""
        return 2 if self.layer_norm else 1

    def has_experts(self, block: int) -> bool:
        """Whether a block has experts in place of one MLP."""
        experts = self.experts
        if experts is None or block < experts.first_dense:
            return False
        return (block + 1) % experts.every == 0

    def window_of(self, block: int) -> int | None:
        """Tokens that a token sees in a block; None: all."""
        full = self.full_every and (block + 1) % self.full_every == 0
        return None if full else self.window


def _check(
    place: str,
    value: Architecture | Latent | Experts | Vision,
    zero: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
) -> None:
    for field in fields(value):
        found, kind = getattr(value, field.name), str(field.type)
        if kind == "bool":
            if not isinstance(found, bool):
                raise InputError(f"{place}{field.name} = {found!r}: must be true or false")
        elif kind == "int" or (field.name in optional and found is not None):
            least = 0 if field.name in zero else 1
            most = MOST_LAYERS if field.name in ("layers", "mtp") else MOST
            if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
                raise InputError(f"{place}{field.name} = {found!r}: must be a whole number from {least} to {most}")
