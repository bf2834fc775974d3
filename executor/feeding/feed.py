"""What the ops of a step are fed with: the rows of batch, target and keywords, by micro-batch or slice."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from adaptpipe.solver import InputError

from ..channels.message import Message
from ..programs.program import Program
from .rows import as_inputs, cut, cut_keywords
from .sequences import SequenceCut


@dataclass(frozen=True, slots=True)
class Feed:
    """For each micro-batch, or slice, what stages need beside messages.

    Parameters
    ----------
    inputs, targets
        Rows of the batch, for stage 0, and of the target, for the last stage; empty where there is no such stage.
    keywords
        Keyword arguments.
    """

    inputs: tuple[Message, ...]
    targets: tuple[object, ...]
    keywords: tuple[Mapping[str, object], ...]

    @classmethod
    def of(
        cls,
        program: Program,
        rank: int,
        stages: Collection[int],
        batch: object,
        target: object,
        keywords: Mapping[str, object],
    ) -> Feed:
        """Cut what a rank with some stages was given.

        Raises
        ------
        InputError
            If its rows, or the lengths of its sequences, do not fit the program, or the batch is missing.
        """
        sizes, sequences = program.sizes[:: len(program.tokens)], SequenceCut(program.tokens)
        given = sequences.cut_keywords(cut_keywords(keywords, sizes))
        inputs: tuple[Message, ...] = ()
        targets: tuple[object, ...] = ()
        if 0 in stages:
            if batch is None:
                raise InputError(f"batch is None on rank {rank}, which holds stage 0 and needs it")
            inputs = tuple(as_inputs(part) for part in sequences.cut("batch", cut("batch", batch, sizes)))
        if program.placement.stage_count - 1 in stages:
            targets = sequences.cut("target", cut("target", target, sizes))
        return cls(inputs, targets, given)
