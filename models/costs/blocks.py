"""What a block is made of: attention and MLP, plain, with latent keys, or with experts.

Letters: h hidden, q heads × head size, kv the same of keys (and of values), f hidden width of the MLP.
"""

from __future__ import annotations

from dataclasses import replace

from .architecture import Architecture, Experts, Latent
from .layer import Layer, Matrix, join, pairs


def attention(model: Architecture, index: int, sequence: int) -> Layer:
    """Norm, attention and the sum with its input.

    F moves 2h for the norm, 3h for the sum, 2(q + kv) for rotary positions, as much again where queries and keys are
    normed, and 2h more where the output is. It holds the norm's input and output, queries, keys, values and what
    attention gives: 2h + 2q + 2kv.
    """
    h, norm = model.hidden, model.norm
    span = pairs(sequence, model.window_of(index))
    if model.latent is not None:
        part = _latent(model, model.latent, sequence)
        work = 2 * span * model.heads * (model.latent.plain + model.latent.rotary + model.latent.value)
    else:
        q, kv = model.heads * model.head_size, model.kv_heads * model.head_size
        bias = model.qkv_bias
        matrices = (Matrix(h, q, bias), Matrix(h, kv, bias, False), Matrix(h, kv, bias, False))
        rotated = 2 * (q + kv) * ((0 if model.positions else 1) + model.qk_norm)
        part = Layer(
            sequence,
            h,
            h,
            (*matrices, Matrix(q, h, model.output_bias)),
            others=2 * model.head_size * model.qk_norm,
            moved=rotated,
            held=2 * q + 2 * kv + (q + kv) * model.qk_norm,
            stats=model.heads + (model.heads + model.kv_heads) * model.qk_norm,
        )
        work = 4 * span * q
    return replace(
        part,
        name=f"attention {index}",
        kind="attention",
        others=part.others + h * norm * (1 + model.post_norms),
        attention=work,
        moved=part.moved + (5 + 2 * model.post_norms) * h,
        held=part.held + (2 + model.post_norms) * h,
        light=part.light + h,
        stats=part.stats + norm * (1 + model.post_norms),
        synced=2 * h,
        launches=0.5,
    )


def _latent(model: Architecture, latent: Latent, sequence: int) -> Layer:
    """Matrices of latent attention: queries, and keys with values, through a low rank that is normed."""
    h, heads = model.hidden, model.heads
    query = heads * (latent.plain + latent.rotary)
    value = heads * latent.value
    bias, rank = model.qkv_bias, latent.query_rank
    down = (Matrix(h, query),) if rank is None else (Matrix(h, rank, bias), Matrix(rank, query))
    compressed = latent.rank + (rank or 0)
    return Layer(
        sequence,
        h,
        h,
        (
            *down,
            Matrix(h, latent.rank + latent.rotary, bias, False),
            Matrix(latent.rank, heads * (latent.plain + latent.value)),
            Matrix(value, h, model.output_bias),
        ),
        others=compressed,
        # Norms of the low ranks, and queries and keys put together of what has positions and what has none.
        moved=2 * compressed + 4 * query,
        # Low ranks before and after their norms, queries, keys, values and the output.
        held=2 * compressed + 2 * query + 2 * value,
        light=compressed,
        stats=heads + (1 if rank is None else 2),
    )


def mlp(model: Architecture, index: int, sequence: int) -> Layer:
    """Norm, MLP or experts, and the sum with its input.

    F moves 2h for the norm, 3h for the sum, and 3f for a gated activation, 2f for another. It holds the norm's input
    and output, and all widths f: 2h + 3f, or 2h + 2f.
    """
    h, norm = model.hidden, model.norm
    if model.experts is not None and model.has_experts(index):
        part = _routed(model, model.experts, sequence)
    else:
        part = dense(model, model.ffn, sequence)
    return replace(
        part,
        name=f"mlp {index}",
        kind="mlp",
        others=part.others + h * norm * (1 + model.post_norms),
        moved=part.moved + (5 + 2 * model.post_norms) * h,
        held=part.held + (2 + model.post_norms) * h,
        light=part.light + h,
        stats=part.stats + norm * (1 + model.post_norms),
        synced=2 * h,
    )


def dense(model: Architecture, width: int, sequence: int, fresh: bool = True) -> Layer:
    """The matrices of an MLP of some width, and its activation; `fresh` where nothing else keeps its input."""
    h, wide, bias = model.hidden, 3 if model.gated else 2, model.mlp_bias
    gate = (Matrix(h, width, bias, False),) if model.gated else ()
    matrices = (Matrix(h, width, bias, fresh), *gate, Matrix(width, h, bias))
    return Layer(
        sequence, h, h, matrices, moved=wide * width, held=wide * width, light=width, launches=0.5
    )  # fmt: skip


def _routed(model: Architecture, experts: Experts, sequence: int) -> Layer:
    """Experts: a router, tokens sent to those that were chosen and back, and those that every token meets.

    A token's k rows are written and read when they are sent and when they are put together again, and each expert keeps
    its input.
    """
    h, k, f = model.hidden, experts.chosen, experts.width
    matrices = (
        Matrix(h, experts.count),
        Matrix(h, f, copies=experts.count, used=k),
        *((Matrix(h, f, fresh=False, copies=experts.count, used=k),) if model.gated else ()),
        Matrix(f, h, copies=experts.count, used=k),
    )
    wide = 3 if model.gated else 2
    part = Layer(
        sequence,
        h,
        h,
        matrices,
        others=experts.count * experts.bias,
        moved=k * (4 * h + wide * f) + 2 * experts.count,
        held=k * (h + wide * f) + experts.count,
        light=k * f,
        sent=2 * k * h,
    )
    if experts.shared:
        part = join("", "", (part, dense(model, experts.shared, sequence, fresh=False)))
    if experts.shared_gate:
        part = replace(part, matrices=(*part.matrices, Matrix(h, 1, fresh=False)))
    return replace(part, launches=1.0)  # twice those of one MLP: routing and grouped products
