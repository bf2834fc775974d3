"""PyTorch's own schedules, made without processes."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import nn
from torch.distributed.pipelining import schedules

LINEAR = ("GPipe", "1F1B")
LOOP = ("LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble")
V = ("ZBVZeroBubble", "DualPipeV")

logging.getLogger("torch.distributed.pipelining.schedules").setLevel(logging.ERROR)


def theirs(name: str, ranks: int, microbatches: int, **options: object) -> Any:
    """A schedule object of PyTorch's: one stage on each rank where it takes no more, else two."""
    kind: Any = schedules.get_schedule_class(name)

    def loss(*_: object) -> None: ...

    if name in LINEAR:
        return kind(_stage(0, ranks, ranks), microbatches, loss_fn=loss, **options)
    stages = [_stage(number, ranks, 2 * ranks) for number in (0, ranks)]
    return kind(stages, microbatches, loss_fn=loss, **options)


def _stage(number: int, ranks: int, count: int) -> SimpleNamespace:
    """What their constructors ask of a stage."""
    return SimpleNamespace(
        stage_index=number,
        num_stages=count,
        group_size=ranks,
        group_rank=0,
        is_first=number == 0,
        is_last=number == count - 1,
        has_backward=True,
        submod=nn.Module(),
    )


def dump(schedule: Any, path: Path, messages: bool = False) -> Path:
    """Write a schedule of theirs as CSV, as they do where they can."""
    if hasattr(schedule, "_dump_csv"):
        schedule._dump_csv(str(path), format="compute_comms" if messages else "compute_only")
        return path
    with path.open("w", newline="") as file:  # schedules of one stage each have no `_dump_csv`
        csv.writer(file).writerows(schedule.pipeline_order[rank] for rank in sorted(schedule.pipeline_order))
    return path
