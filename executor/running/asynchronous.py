"""Train without a flush: stages are updated after every micro-batch, and backwards use the weights of their forward."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.optim import Optimizer

from adaptpipe.solver import InputError, Noise, Op, Problem, Schedule
from adaptpipe.solver.core.stream import stream

from ..channels.message import Message
from ..stages.runner import Loss
from ..waiting import gather
from ..weights.stash import stashes_of
from .execution import Execution
from .memory import MemoryRule
from .modules import ModuleSession
from .plan import Plan
from .startup import MAKING, agree, patience
from .stashing import StashingExecution


class AsyncPipeline(ModuleSession):
    """Runs a schedule with weight stashing, as PipeDream's, on this rank's stage.

    The stage is updated with every micro-batch: as soon as the backward is complete and its gradient on its way to the
    stage before, the optimizer steps. A micro-batch's forward uses the newest weights of each stage, its backward those
    of its forward, and its gradient, that of its own mean loss, is applied to the newest ones.

    All processes make one together, as a `Pipeline`, and call its methods together. There are no replicas, no ties
    between stages and no norm over all of them, for stages are updated at different times.

    Parameters
    ----------
    problem, schedule
        What to run; the schedule's `updates` are "stash". Every op runs in its order.
    stages, loss_fn
        As for `Pipeline`. Modules must use their parameters as attributes, and keep no other references to them; an
        update may give a parameter another storage.
    optimizers
        The optimizer of all parameters that train, by the number of their stage. Learning rates can change between
        calls, and within one in the optimizers' step hooks.
    noise, memory, seed, timeout_s
        As for `Pipeline`. Versions of weights beyond the newest are measured, and count against a limit.

    Raises
    ------
    InputError
        On every rank, as for `Pipeline`; if the schedule's updates are others, a stage that trains has no optimizer or
        not one of all its parameters, or a parameter has gradient hooks.
    NoAnswerError, RankFailure, PeerFailed, TransportError
        As for `Pipeline`.

    Examples
    --------
    ::

        optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
        with AsyncPipeline(problem, schedule, {rank: stage}, loss_fn, optimizers={rank: optimizer}) as pipeline:
            losses = pipeline.run(data)  # pairs of batch and target; the stages have been updated
    """

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        stages: Mapping[int, nn.Module],
        loss_fn: Loss,
        *,
        optimizers: Mapping[int, Optimizer],
        noise: Noise | None = None,
        memory: MemoryRule = "enforce",
        seed: int | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._problem, self._batch_schedule = problem, schedule
        super().__init__(
            problem,
            schedule,
            stages,
            loss_fn,
            execution="static",
            noise=noise,
            memory=memory,
            seed=seed,
            timeout_s=timeout_s,
            updates="stash",
        )
        try:
            self._stashes = agree(lambda: stashes_of(stages, optimizers), lambda made: "", patience(timeout_s), MAKING)
        except BaseException:
            self.close()
            raise
        self._batches, self._batch_program = 1, self.program

    def step(self, batch: object, target: object, **keywords: object) -> float:
        """Train on one batch, and empty the pipeline: `run` with a stream of one.

        Parameters
        ----------
        batch, target, **keywords
            As for `Pipeline.step`.

        Returns
        -------
        float
            Mean loss of the batch's samples, on every rank; each under the weights that its forwards met.

        Raises
        ------
        InputError, RankFailure, PeerFailed
            As `Pipeline.step`; also if a parameter has got a gradient hook meanwhile. After a failure some updates of
            some stages have been made.
        """
        begin = time.perf_counter()
        self._ensure_usable()
        self._follow_each_other(1)
        return self._stream(begin, *self._cut(self._program, batch, target, keywords))[0]

    def run(self, batches: Iterable[tuple[object, object]]) -> tuple[float, ...]:
        """Train on a stream of batches that follow each other without a flush, and empty the pipeline at its end.

        Ranks go from one batch to the next in the order of `adaptpipe.solver.core.stream`. The stream is one training
        step for `report` and `save_trace`; `steps` counts its batches.

        Parameters
        ----------
        batches
            (batch, target) of each, as for `step`; as many on every rank, all of which are held until the end.

        Returns
        -------
        tuple of float
            Mean loss of each batch, on every rank.

        Raises
        ------
        InputError
            As `step`, or, on every rank, if there is no batch, or ranks have given different numbers of them.
        RankFailure, PeerFailed
            As `step`.
        """
        begin = time.perf_counter()
        self._ensure_usable()
        given = list(batches)
        counts = gather(len(given), self._timeout_s, "run")
        if not all(counts) or len(set(counts)) > 1:
            raise InputError(f"batches: the ranks were given {list(counts)}; give each as many, and one at least")
        inputs: list[Message] = []
        targets: list[object] = []
        for number, pair in enumerate(given):
            match pair:
                case (batch, target):
                    pass
                case _:
                    raise InputError(f"batches[{number}] is a {type(pair).__name__}; give a pair of batch and target")
            try:
                more, goals = self._cut(self._batch_program, batch, target, {})
            except InputError as error:
                raise InputError(f"batches[{number}]: {error}") from None
            inputs += more
            targets += goals
        self._follow_each_other(len(given))
        return self._stream(begin, tuple(inputs), tuple(targets))

    def _follow_each_other(self, batches: int) -> None:
        """Get ready for a stream of so many batches."""
        if batches != self._batches:
            long = replace(self._problem, samples=self._problem.samples * batches)
            self._take_up(Plan.of(long, stream(self._batch_schedule, batches), "static", self._memory, updates="stash"))
            self._batches = batches

    def _take_up(self, plan: Plan) -> None:
        super()._take_up(plan)
        for stage, runner in self._stages.items():
            runner.unit_times = plan.program.unit_ticks[stage]

    def _stream(self, begin: float, inputs: tuple[Message, ...], targets: tuple[object, ...]) -> tuple[float, ...]:
        """Run what is ready."""
        stashes, batches = self._stashes.values(), self._batches
        if batches > 1:
            for runner in self._stages.values():
                runner.expect(())
        self._account.stashes = tuple(stashes)
        try:
            for stash in stashes:
                stash.begin()  # which may refuse, so before anything is sent
            execution = self._training(inputs, targets)
            self._random.step = self._steps
            for runner in self._stages.values():
                runner.begin(range(len(self._program.sizes)), lambda stage: None)
            loss = self._train(execution, begin)
        finally:
            for stash in stashes:
                stash.end()
        self._report = replace(self.report, versions=max(stash.most_versions for stash in stashes))
        self._steps += batches - 1
        if batches == 1:
            return (loss,)
        assert isinstance(execution, StashingExecution)
        losses = torch.tensor(execution.batch_losses(batches), dtype=torch.float64, device=self._meeting_place)
        with self._guard():
            self._all_reduce(losses)
        return tuple(losses.tolist())

    def _execution(
        self, inputs: Sequence[Message], targets: Sequence[object], added_s: Callable[[Op], float] | None
    ) -> Execution:
        parts = self._program, self._crew.rank, self._runners, self._transport, inputs, targets, self._account
        return StashingExecution(*parts, added_s, self._stashes)
