"""The layers of a vision tower."""

from __future__ import annotations

from dataclasses import replace

from .architecture import Vision
from .layer import Layer, Matrix, join, pairs


def vision(tower: Vision, width: int) -> list[Layer]:
    """Blocks of the vision tower; its patches' embedding joins the first, its merger the last."""
    h, f, patches = tower.hidden, tower.ffn, tower.patches * tower.images
    matrices = (
        Matrix(h, h, True),
        Matrix(h, h, True, False),
        Matrix(h, h, True, False),
        Matrix(h, h, True),
        Matrix(h, f, True),
        Matrix(f, h, True),
    )
    block = Layer(
        patches,
        h,
        h,
        matrices,
        kind="vision",
        others=4 * h,
        attention=tower.images * 4 * pairs(tower.patches, causal=False) * h,
        moved=14 * h + 2 * f,
        held=8 * h + 2 * f,
        light=2 * h + f,
        stats=4 + tower.heads,
        synced=4 * h,
    )
    entry = Layer(patches, tower.patch, h, (Matrix(tower.patch, h),), held=tower.patch, moved=h, launches=0.0)
    wide, rows = h * tower.merged, 1 / tower.merged
    merger = Layer(
        patches,
        h,
        h,
        (Matrix(wide, wide, True, rows=rows), Matrix(wide, width, True, rows=rows)),
        others=2 * h,
        moved=4 * h + width * rows,
        held=4 * h,
        light=2 * h,
        stats=2,
        launches=0.25,
    )
    blocks = [replace(block, name=f"vision {index}") for index in range(tower.layers)]
    blocks[0] = join(blocks[0].name, "vision", (entry, blocks[0]))
    blocks[-1] = replace(
        join(blocks[-1].name, "vision", (blocks[-1], merger)), message=round(width * rows)
    )  # tokens count patches; what leaves is a row for each token
    return blocks
