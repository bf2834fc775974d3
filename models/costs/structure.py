"""The layers of a decoder, first to last."""

from __future__ import annotations

from dataclasses import replace

from .architecture import Architecture
from .blocks import attention, mlp
from .layer import Layer, Matrix, join
from .vision import vision


def structure(model: Architecture, sequence: int, *, split_layers: bool = False) -> tuple[Layer, ...]:
    """The layers of a decoder, first to last.

    A vision tower comes before the embedding of tokens, its patches' embedding with its first block and its merger
    with its last. Blocks that predict further tokens come between the last block and the head.

    Parameters
    ----------
    model
        Its dimensions.
    sequence
        Tokens of a sample.
    split_layers
        Whether attention and MLP are layers of their own, rather than one block.

    Examples
    --------
    >>> model = Architecture("tiny", layers=1, hidden=8, heads=2, kv_heads=1, head_size=4, ffn=16, vocab=100)
    >>> [layer.name for layer in structure(model, 32, split_layers=True)]
    ['embedding', 'attention 0', 'mlp 0', 'head']
    """
    found = [] if model.vision is None else vision(model.vision, model.hidden)
    found.append(_embedding(model, sequence))
    for index in range(model.layers):
        pair = (attention(model, index, sequence), mlp(model, index, sequence))
        found += pair if split_layers else [join(f"block {index}", "block", pair)]
    head = _head(model, sequence)
    found += [_further(model, index, sequence, head) for index in range(model.mtp)]
    return (*found, head)


def parameters(model: Architecture) -> int:
    """Parameters of the model, as its checkpoint counts them: a tied matrix once, and no blocks of kind "mtp".

    Examples
    --------
    >>> tiny = Architecture("tiny", layers=2, hidden=8, heads=2, kv_heads=1, head_size=4, ffn=16, vocab=100)
    >>> parameters(tiny), 2 * 100 * 8 + 2 * (2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16 + 2 * 8) + 8
    (2792, 2792)
    """
    counted = sum(layer.parameters for layer in structure(model, 1) if layer.kind != "mtp")
    return counted - (model.vocab * model.hidden if model.tied else 0)


def _embedding(model: Architecture, sequence: int) -> Layer:
    h = model.hidden
    return Layer(
        sequence,
        1,
        h,
        name="embedding",
        kind="embedding",
        others=(model.vocab + model.positions) * h,
        moved=3 * h,
        launches=0.5,
    )


def _head(model: Architecture, sequence: int) -> Layer:
    h = model.hidden
    return Layer(
        sequence,
        h,
        0,
        (Matrix(h, model.vocab, model.head_bias),),
        name="head",
        kind="head",
        others=model.norm * h,
        moved=2 * h,
        held=2 * h,
        light=h,
        stats=model.norm,
        logits=model.vocab,
    )


def _further(model: Architecture, index: int, sequence: int, head: Layer) -> Layer:
    """A block that predicts a token further ahead, with the head's logits.

    Its own parameters are two norms, the matrix that takes the last hidden state and the token's embedding to one
    width, the block, and a norm before the head, whose matrix is the head's own. The embedding's matrix is shared too.
    """
    h = model.hidden
    last = model.layers + index
    entry = Layer(
        sequence,
        h,
        h,
        (Matrix(2 * h, h),),
        others=2 * h,
        moved=7 * h,
        held=4 * h,
        light=2 * h,
        stats=2,
        launches=0.5,
    )
    joined = join(f"mtp {index}", "mtp", (entry, attention(model, last, sequence), mlp(model, last, sequence), head))
    return replace(joined, message=h, others=joined.others + model.vocab * h)
