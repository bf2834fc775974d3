"""What all pipelines of modules have in common: how they are made, how data reaches stages, and evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from adaptpipe.solver import InputError, Noise, Problem, Schedule
from adaptpipe.solver.core.problem import SECONDS
from adaptpipe.solver.core.updates import Updates

from ..channels.message import Message
from ..crew import Crew
from ..feeding.feed import Feed
from ..feeding.keywords import check_keywords
from ..feeding.rows import evaluation_sizes
from ..gradients.ties import Copy, Tie, check_declared, find_ties
from ..programs.lowering import forward_only
from ..programs.program import Program
from ..stages.device import device_of
from ..stages.randomness import RandomState
from ..stages.runner import Loss, StageRunner
from ..waiting import gather, wait_in_time
from .memory import MemoryRule
from .plan import ExecutionMode, Plan
from .session import Session
from .startup import MAKING, agree, check_replicas, check_stages, check_timeout, patience


class ModuleSession(Session):
    """A session whose ops are those of the user's modules; it does not know what becomes of their gradients.

    Parameters
    ----------
    problem, schedule, stages, loss_fn, mesh, tied, execution, unit_time_s, noise, memory, seed, timeout_s
        As for `Pipeline`.
    updates
        Those that the schedule must have.
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
        execution: ExecutionMode,
        unit_time_s: float | None = None,
        noise: Noise | None,
        memory: MemoryRule,
        seed: int | None,
        timeout_s: float,
        updates: Updates,
    ) -> None:
        tick_s, declared = float(SECONDS[problem.unit]), tuple(tuple(copies) for copies in tied)

        def prepare() -> tuple[Plan, Crew]:
            crew = Crew.of(mesh)
            check_timeout(timeout_s)
            try:
                index(seed or 0)
            except TypeError:
                raise InputError(f"seed = {seed!r}: must be a whole number") from None
            unit_ticks = None if unit_time_s is None else unit_time_s / tick_s
            plan = Plan.of(problem, schedule, execution, memory, unit_ticks, updates)
            check_stages(schedule.placement, crew, stages)
            check_declared(schedule.placement, stages, declared)
            return plan, crew

        together = patience(timeout_s), MAKING
        plan, crew = agree(prepare, lambda made: f"{made[0].fingerprint} {declared}", *together)
        check_replicas(schedule.placement, crew, stages, timeout_s)
        self._ties = find_ties(stages, declared, *together)  # which may refuse, so before stages are changed
        program = plan.program
        seeds = gather(torch.initial_seed() if seed is None else seed, *together)
        self._random = RandomState(seeds[0], crew.replica, device_of(stages))
        last = program.placement.stage_count - 1
        self._stages: dict[int, StageRunner] = {}

        def take_over() -> None:
            for stage, module in sorted(stages.items()):
                loss = loss_fn if stage == last else None
                times, slices = program.unit_ticks[stage], schedule.slices
                self._stages[stage] = StageRunner(stage, module, loss, times, self._random, slices)

        try:
            agree(take_over, lambda nothing: "", *together)
        except BaseException:
            for runner in self._stages.values():
                runner.close()
            raise
        takes = gather([runner.takes for runner in self._stages.values()], *together)
        self._keywords = [names for part in takes for names in part]
        super().__init__(
            plan,
            crew,
            self._stages,
            seconds_per_tick=tick_s,
            noise=noise,
            memory=memory,
            timeout_s=timeout_s,
            device=device_of(stages),
        )

    @property
    def steps(self) -> int:
        """Training steps done. Set it where training resumes, so that dropout does not repeat the first masks."""
        return self._steps

    @steps.setter
    def steps(self, done: int) -> None:
        self._steps = done

    @property
    def stages(self) -> dict[int, nn.Module]:
        """This rank's stages, by number."""
        return {stage: runner.module for stage, runner in self._stages.items()}

    @property
    def first_copies(self) -> dict[int, nn.Module]:
        """Those of this rank's stages that count where a stage counts once: all, or those of direction 0."""
        row = self._program.placement.stages[0]
        return {stage: module for stage, module in self.stages.items() if row[stage] == self._crew.rank}

    @property
    def crew(self) -> Crew:
        """The processes of the pipeline and of its replicas."""
        return self._crew

    @property
    def ties(self) -> tuple[Tie, ...]:
        """Parameters that several stages have, each by its copies (stage, name); the same on every rank."""
        return self._ties

    def evaluate(self, batch: object, target: object, sizes: Sequence[int] | None = None, **keywords: object) -> float:
        """Mean loss of a batch of any size, without gradients.

        Leaves nothing behind: no activations, no gradients, no change of mode. Call `eval()` on the stages before, if
        they have layers that care.

        Parameters
        ----------
        batch, target, **keywords
            As for `Pipeline.step`, with any number of rows.
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
            As `Pipeline.step`.
        """
        self._ensure_usable()
        chosen: tuple[int, ...] = ()
        if self._crew.rank == self._program.placement.holders(0)[0]:
            chosen = evaluation_sizes(batch, sizes, max(self._program.sizes))
        with self._guard():
            (count,) = self._told([len(chosen)])
            program = forward_only(self._program.placement, self._told(chosen or (0,) * count))
        execution = self._evaluation(program, *self._cut(program, batch, target, keywords))
        with self._guard(execution), torch.no_grad():
            execution.run()
            return self._end(execution)

    def weight_groups(self) -> dict[int, tuple[int, ...]]:
        """For each of this rank's stages, the floating-point operations of each piece of its last W that stands alone.

        Pieces share no tensor with each other, so a weight gradient that is cut between them frees with each unit all
        that the unit needed, in whatever order the units run. Empty where W had nothing to do.
        """
        return {stage: runner.weight_groups() for stage, runner in self._stages.items()}

    def _told(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """What the (first) rank of stage 0 tells the others of its replica, which have as many numbers."""
        values = torch.tensor(numbers, device=self._meeting_place)
        first = self._crew.members[self._program.placement.holders(0)[0]]
        work = dist.broadcast(values, src=first, group=self._crew.group, async_op=True)
        late = f"evaluate was not called on every rank of the pipeline within {self._timeout_s:g} s"
        wait_in_time(work, self._timeout_s, late)
        return tuple(values.tolist())

    def _cut(
        self, program: Program, batch: object, target: object, keywords: Mapping[str, object]
    ) -> tuple[tuple[Message, ...], tuple[object, ...]]:
        """The rows of every micro-batch, where this rank needs them; keywords go to the stages."""
        check_keywords(keywords, self._keywords)
        feed = Feed.of(program, self._crew.rank, self._stages, batch, target, keywords)
        for runner in self._stages.values():
            runner.expect(feed.keywords)
        return feed.inputs, feed.targets
