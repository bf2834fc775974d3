"""Run a schedule on the user's own modules: the interpreter of programs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from adaptpipe.solver import InputError, Noise, Problem, Schedule

from ..gradients.hooks import GradientHooks
from ..gradients.norm import global_norm, scale
from ..gradients.reduction import Reducer
from ..gradients.ties import Copy
from ..stages.runner import Loss
from .memory import MemoryRule
from .modules import ModuleSession
from .plan import ExecutionMode

__all__ = ["Loss", "Pipeline"]


class Pipeline(ModuleSession):
    """Runs a schedule's ops on this rank's stages, and moves tensors between ranks.

    All processes of the default group make one together, with the same problem and schedule, and call its methods
    together. The stages stay the user's: the optimizer, train or eval mode, autocast and random state are left alone.

    Parameters
    ----------
    problem, schedule
        What to run; there are as many processes as it has ranks, times the replicas of `mesh`.
    stages
        This rank's stages, by number, those of both directions where there are two: their replicas are treated as
        those of `mesh`, and get sums of gradients. A stage is called with the tensors that the stage before returned,
        and returns a tensor, or a tuple or list of tensors and None. Floating-point ones carry gradients. A stage must
        not change its inputs in place. Where the schedule has slices, a stage has a method `forward_slice`, or is
        `token_wise`; see docs/modules.md.
    loss_fn
        Takes the last stage's output, whatever it is, and the target; gives the mean loss over the samples it got.
    mesh
        A device mesh of all processes, with a dimension named "pp" for the pipeline and at most one other, for its
        replicas (data parallelism). None: one pipeline. Replicas start with the first one's parameters. Each has a
        batch of its own, of as many samples; loss and gradients are the means over the samples of all.
    tied
        Parameters that stages share: of each its copies as (stage, name), on any ranks. They start with the values of
        the first stage's copy, and each gets the sum of all copies' gradients, to the bit the same, so that like
        optimizers keep them equal. A parameter object that two stages of a rank have in common is tied without.
    execution
        "adaptive": F, I and B in the schedule's order, and weight units when messages are waited for or memory is
        needed, as the problem's prices make it wise; "static": every op in the schedule's order.
    unit_time_s
        Seconds that a unit of weight gradient should take at most, so that no wait is overrun by more: the problem's
        units are cut further where they take longer. None: they are as they are.
    noise
        Disturbs the steps: ops sleep after they have run, messages are held back. Step n meets its scenario n.
    memory
        "enforce": no op may pass the rank's memory limit, as measured; "report": bytes are only measured.
    seed
        Of the random numbers that forwards draw while training, as dropout does; rank 0's counts. They depend on it,
        on the step, the stage, the micro-batch and the replica, so masks are the same under every schedule. None:
        that of `torch.manual_seed`. The process's own random state is as it was after every op.
    timeout_s
        Seconds that a rank waits for a message, or for others to do what all do together, before it gives up.

    Raises
    ------
    InputError
        On every rank, if the schedule cannot be run, or differs between ranks, or if a rank has other stages than the
        schedule's placement says, or wrapped ones, or copies of a parameter that are not alike.
    NoAnswerError
        On every rank, if the schedule is invalid, or could pass a memory limit, or if its ranks would wait for each
        other for ever.
    RankFailure, PeerFailed
        If anything else goes wrong on a rank: there, and on the others.
    TransportError
        If a rank does not make its pipeline within `timeout_s`, or a minute where that is less.

    Examples
    --------
    ::

        with Pipeline(problem, schedule, {rank: stage}, loss_fn) as pipeline:
            for batch, target in data:
                loss = pipeline.step(batch, target)  # gradients are in .grad, as after loss.backward()
                pipeline.clip_grad_norm_(1.0)
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
        mesh: DeviceMesh | None = None,
        tied: Iterable[Sequence[Copy]] = (),
        execution: ExecutionMode = "adaptive",
        unit_time_s: float | None = None,
        noise: Noise | None = None,
        memory: MemoryRule = "enforce",
        seed: int | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        super().__init__(
            problem,
            schedule,
            stages,
            loss_fn,
            mesh=mesh,
            tied=tied,
            execution=execution,
            unit_time_s=unit_time_s,
            noise=noise,
            memory=memory,
            seed=seed,
            timeout_s=timeout_s,
            updates="step",
        )
        self._reducer = Reducer(self._crew, self._program.placement, stages, self._ties)
        self._hooks = GradientHooks(stages)

    def step(self, batch: object, target: object, **keywords: object) -> float:
        """Run one step and add its gradients to `.grad`, as `loss.backward()` does.

        The loss is the mean over the batch: micro-batches weigh in by their samples, slices also by their tokens, and
        the weight is applied to the loss. So gradients that were there before are left as they are, and steps without
        `zero_grad` add up. A step that fails leaves a part of its own in them, or nothing where parameters are tied or
        have replicas.

        Parameters
        ----------
        batch
            A tensor, or a tuple or list of tensors, with one row for each sample; needed where stage 0 is (with two
            directions, all of it on both ranks), and None, or ignored, elsewhere.
        target
            The same, where the last stage is; may be a mapping too.
        **keywords
            For the forwards of this rank's stages: each gets those that it takes by name. Tensors, also within tuples,
            lists and mappings, have one row for each sample and are cut by micro-batch; all else is passed as it is.

        Returns
        -------
        float
            Loss of the batch, on every rank.

        Raises
        ------
        InputError
            If the rows of batch, target or keywords do not fit the schedule's sizes, or their sequences its slices, or
            no stage takes a keyword, or the pipeline is closed.
        RankFailure
            If anything goes wrong on this rank, with stage, op, micro-batch and step.
        PeerFailed
            If another rank failed first.
        """
        begin = time.perf_counter()
        self._ensure_usable()
        execution = self._training(*self._cut(self._program, batch, target, keywords))
        self._random.step = self._steps
        self._hooks.hold(self._reducer.parameters())
        self._reducer.begin()
        try:
            for stage, runner in self._stages.items():
                runner.begin(self._program.microbatches(stage, self._crew.rank), self._complete)
            return self._train(execution, begin)
        except BaseException:
            self._reducer.abandon()
            raise
        finally:
            self._hooks.release()

    def grad_norm(self) -> float:
        """Euclidean norm of all gradients of the pipeline, on every rank; a tied parameter or a replica counts once.

        Raises
        ------
        InputError, RankFailure, PeerFailed
            As `step`.
        """
        self._ensure_usable()
        first = {copy: tie[0] for tie in self._ties for copy in tie}
        counted = {
            id(parameter): parameter
            for stage, module in self.first_copies.items()
            for name, parameter in module.named_parameters()
            if first.get((stage, name), (stage, name)) == (stage, name)
        }
        with self._guard():
            return global_norm(counted.values(), self._crew, self._meeting_place, self._timeout_s)

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Scale all gradients of the pipeline so that their norm is at most `max_norm`; as torch's function of a model.

        Returns
        -------
        float
            The norm before, on every rank; not finite if a gradient is not.

        Raises
        ------
        InputError
            If `max_norm` is not above 0.
        RankFailure, PeerFailed
            As `step`.
        """
        if not max_norm > 0:
            raise InputError(f"max_norm = {max_norm}: must be above 0")
        norm = self.grad_norm()
        own = {id(p): p for runner in self._stages.values() for p in runner.module.parameters()}
        scale(own.values(), norm, max_norm)
        return norm

    def recomputed_bytes(self, batch: object, target: object, **keywords: object) -> dict[int, int]:
        """Run a step, slowly; for each of this rank's stages, the most bytes that a backward recomputed at a time.

        Checkpointed layers hold them while their backward runs. They are not among the bytes that are held after an op.

        Raises
        ------
        InputError, RankFailure, PeerFailed
            As `step`.
        """
        for runner in self._stages.values():
            runner.watched = True
        try:
            self.step(batch, target, **keywords)
        finally:
            for runner in self._stages.values():
                runner.watched = False
        return {stage: runner.recomputed_bytes for stage, runner in self._stages.items()}

    def close(self) -> None:
        """Let go of the stages, and end channels and groups. May be called twice."""
        if not self._closed and not self._failed:
            self._reducer.close()
        super().close()

    def _complete(self, stage: int) -> None:
        self._reducer.complete(stage)
        self._hooks.complete(stage)

    def _settle(self) -> None:
        self._reducer.finish(self._timeout_s)
        self._hooks.complete(None)
