"""Run a schedule on the user's own modules: the interpreter of programs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn

from adaptpipe.solver import InputError, Problem, Schedule
from adaptpipe.solver.core.problem import SECONDS

from ..channels.message import Message
from ..programs.lowering import forward_only, lower
from ..programs.program import Program
from .execution import Execution
from .rows import as_inputs, cut, evaluation_sizes
from .runner import Loss, StageRunner
from .session import Session
from .startup import agree, check_stages, device_of

__all__ = ["Loss", "Pipeline"]


class Pipeline(Session):
    """Runs a schedule's ops on this rank's stages, and moves tensors between ranks.

    All ranks of the default process group make one together, with the same problem and schedule, and call its methods
    together. The stages stay the user's: the optimizer, train or eval mode, autocast and random state are left alone.

    Parameters
    ----------
    problem, schedule
        What to run; the number of ranks is that of the default process group.
    stages
        This rank's stages, by number. A stage is called with the tensors that the stage before returned, and returns a
        tensor, or a tuple or list of tensors and None. Floating-point ones carry gradients. A stage must not change
        its inputs in place.
    loss_fn
        Takes the last stage's output, whatever it is, and the target; gives the mean loss over the samples it got.
    timeout_s
        Seconds that a rank waits for a message before it gives up.

    Raises
    ------
    InputError
        On every rank, if the schedule cannot be run, or differs between ranks, or if a rank has other stages than the
        schedule's placement says.
    NoAnswerError
        On every rank, if the schedule is invalid, or its ranks would wait for each other for ever.

    Examples
    --------
    ::

        with Pipeline(problem, schedule, {rank: stage}, loss_fn) as pipeline:
            for batch, target in data:
                loss = pipeline.step(batch, target)  # gradients are in .grad, as after loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    """

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        stages: Mapping[int, nn.Module],
        loss_fn: Loss,
        *,
        timeout_s: float = 60.0,
    ) -> None:
        rank = dist.get_rank()

        def prepare() -> Program:
            program = lower(problem, schedule)
            check_stages(program.placement, rank, stages)
            return program

        program = agree(prepare, lambda program: program.fingerprint)
        last = program.placement.stage_count - 1
        self._stages = {
            stage: StageRunner(stage, module, loss_fn if stage == last else None, program.unit_ticks[stage])
            for stage, module in sorted(stages.items())
        }
        super().__init__(
            program,
            schedule,
            self._stages,
            seconds_per_tick=float(SECONDS[problem.unit]),
            timeout_s=timeout_s,
            device=device_of(stages),
        )

    def step(self, batch: object, target: object) -> float:
        """Run one step and add its gradients to `.grad`, as `loss.backward()` does.

        The loss is the mean over the batch: micro-batches weigh in by their samples, and the weight is applied to the
        loss. So gradients that were there before are left as they are, and steps without `zero_grad` add up.

        Parameters
        ----------
        batch
            A tensor, or a tuple or list of tensors, with one row for each sample; needed on the rank of stage 0 only,
            and None, or ignored, elsewhere.
        target
            The same, for the last stage's rank; may be a mapping too.

        Returns
        -------
        float
            Loss of the batch, on every rank.

        Raises
        ------
        InputError
            If the rows of batch or target do not fit the schedule's sizes, or the pipeline is closed.
        RankFailure
            If anything goes wrong on this rank, with stage, op, micro-batch and step.
        PeerFailed
            If another rank failed first.
        """
        begin = time.perf_counter()
        self._ensure_usable()
        return self._train(self._start(self._program, batch, target), begin)

    def evaluate(self, batch: object, target: object, sizes: Sequence[int] | None = None) -> float:
        """Mean loss of a batch of any size, without gradients.

        Leaves nothing behind: no activations, no gradients, no change of mode. Call `eval()` on the stages before, if
        they have layers that care.

        Parameters
        ----------
        batch, target
            As for `step`, with any number of rows.
        sizes
            Samples of each micro-batch; read on the rank of stage 0. None: near-equal ones, none larger than the
            schedule's largest.

        Returns
        -------
        float
            The loss, on every rank.

        Raises
        ------
        InputError, RankFailure, PeerFailed
            As `step`.
        """
        self._ensure_usable()
        chosen: list[tuple[int, ...]] = [()]
        if self._rank == self._first_rank:
            chosen = [evaluation_sizes(batch, sizes, max(self._program.sizes))]
        with self._guard():
            dist.broadcast_object_list(chosen, src=self._first_rank)
        execution = self._start(forward_only(self._program.placement, chosen[0]), batch, target)
        with self._guard(execution), torch.no_grad():
            execution.run()
            return self._end(execution)

    def weight_groups(self) -> dict[int, tuple[int, ...]]:
        """For each of this rank's stages, the floating-point operations of each piece of its last W that stands alone.

        Pieces share no tensor with each other, so a weight gradient that is cut between them frees with each unit all
        that the unit needed, in whatever order the units run. Empty where W had nothing to do.
        """
        return {stage: runner.weight_groups() for stage, runner in self._stages.items()}

    def _start(self, program: Program, batch: object, target: object) -> Execution:
        inputs: tuple[Message, ...] = ()
        targets: tuple[object, ...] = ()
        if self._rank == self._first_rank:
            if batch is None:
                raise InputError(f"batch is None on rank {self._rank}, which holds stage 0 and needs it")
            inputs = tuple(as_inputs(part) for part in cut("batch", batch, program.sizes))
        if self._rank == self._loss_rank:
            targets = cut("target", target, program.sizes)
        return self._begin(program, inputs, targets)
