"""Whether a question has any answer that fits into memory; if not, which changes of it have, by trying them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from adaptpipe.solver import InputError, NoAnswerError
from adaptpipe.solver.planning.splits.need import Lack, why_not
from adaptpipe.solver.planning.workload import Workload

from .question import Question
from .subject import Subject, subject

TRIED_S = 20.0
"""Seconds after which no further change is tried."""

GROUP = 8
"""Tensor-parallel degrees that are tried: as many devices as a node has."""


class NoRoomError(NoAnswerError):
    """No plan fits into memory.

    Attributes
    ----------
    lack
        By how much at least, and where.
    """

    def __init__(self, message: str, lack: Lack) -> None:
        super().__init__(message)
        self.lack = lack


def require_room(about: Subject) -> None:
    """Refuse what cannot fit, before anything is searched.

    Raises
    ------
    NoRoomError
        With the rank, what it lacks at least, and what would make it fit.
    """
    lack = why_not(about.workload)
    if lack is None:
        return
    text = f"{about.workload.name} cannot fit into memory: {lack}"
    if about.question.model is not None:
        fitting = _fitting(about)
        tried = "; ".join(fitting) if fitting else "none of recomputing, more replicas or tensor parallelism alone"
        text += f"\ntried, and fits: {tried}"
    raise NoRoomError(text, lack)


def _fitting(about: Subject) -> list[str]:
    """Changes with which a plan fits, the least of each kind, as options."""
    found: list[str] = []
    until = time.monotonic() + TRIED_S
    for kind in _changes(about.question):
        for changes in kind:
            if time.monotonic() > until:
                return found
            changed = replace(about.question, ranks=about.workload.ranks, **changes)
            try:
                tried = subject(changed)
            except InputError:  # there are no such ranks, or the batch or the heads do not divide
                continue
            if not _overfull(tried.workload) and why_not(tried.workload) is None:
                more = ""
                if tried.devices != about.devices:  # the cluster's own would make fewer ranks
                    changes, more = {"ranks": changed.ranks, **changes}, f" ({tried.devices} devices)"
                options = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in changes.items())
                found.append(options + more)
                break
    return found


def _overfull(workload: Workload) -> bool:
    """Whether weights, gradients and optimizer alone are more than all ranks hold: then there is nothing to pack."""
    static = int(workload.static.sum()) - sum(tie.static for tie in workload.ties)
    return all(limit is not None for limit in workload.cluster.memory) and static > sum(
        limit for limit in workload.cluster.memory if limit is not None
    )


def _changes(question: Question) -> Iterator[list[dict[str, Any]]]:
    """Kinds of changes, each from the least on."""
    levels = ["none", "selective", "full"]
    yield [{"recompute": level} for level in levels[levels.index(question.recompute) + 1 :]]
    if question.zero == 0 and question.dp > 1:
        yield [{"zero": 1}]
    yield [{"dp": question.dp * factor, "zero": 1} for factor in (2, 4, 8)]
    yield [{"tp": tp} for tp in (2, 4, 8) if question.tp < tp <= GROUP]
