"""Sums of gradients over the copies of a parameter: replicas of a stage, stages that share it, or both.

A sum starts as soon as this step's gradients of all of a rank's stages that have a part in it are complete, runs beside
the ops, and is waited for at the end of the step. Each has a process group of its own, so ranks need not start theirs
in one order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from adaptpipe.solver import InputError, Placement

from ..crew import Crew
from ..waiting import wait_in_time
from .ties import Tie

_FOREVER = timedelta(days=1)  # the limit that counts is that of `finish`

Slot = tuple[nn.Parameter, ...]
"""This rank's copies of one parameter, by stage."""


class Reduction:
    """One sum, of the gradients of some parameters.

    Parameters
    ----------
    name
        What to call it in messages.
    stages
        This rank's stages that have a part in it.
    slots
        The parameters, in an order that all members share.
    members
        The processes that have a part in it, the one whose values count at the start first.
    group
        These processes; None where this is the only one.
    replicas
        What sums are divided by: the mean over replicas is wanted.
    """

    def __init__(
        self,
        name: str,
        stages: frozenset[int],
        slots: Sequence[Slot],
        members: Sequence[int],
        group: dist.ProcessGroup | None,
        replicas: int,
    ) -> None:
        self._name = name
        self._stages = stages
        self._members = members
        self._group = group
        self._replicas = replicas
        self._all = slots
        self._slots: list[Slot] = []  # those that train
        self._waits_for: set[int] = set()
        self._before: dict[int, Tensor] = {}  # by parameter: the gradient of earlier steps
        self._under_way: list[tuple[dist.Work | None, Tensor, list[Slot]]] = []

    def make_equal(self) -> None:
        """Give all copies the values of the first member's first one."""
        for slot in self._all:
            value = slot[0].detach().contiguous()
            if self._group is not None:
                dist.broadcast(value, src=self._members[0], group=self._group)
            with torch.no_grad():
                for parameter in slot:
                    if parameter.data_ptr() != value.data_ptr():
                        parameter.copy_(value)

    def begin(self) -> None:
        """Start a step: put earlier gradients aside, so that they are not summed again."""
        self._slots = [slot for slot in self._all if slot[0].requires_grad]
        self._waits_for = set(self._stages)
        self._under_way = []
        self._before = {}
        for parameter in self._parameters():
            if parameter.grad is not None:
                self._before[id(parameter)] = parameter.grad
                parameter.grad = None

    def complete(self, stage: int) -> None:
        """Hear that this step's gradients of a stage are complete; start the sum if it waited for no other."""
        if stage in self._waits_for:
            self._waits_for.discard(stage)
            if not self._waits_for:
                self._start()

    def finish(self, timeout_s: float) -> None:
        """Wait for the sum, write it to every copy, and add what earlier steps left.

        Raises
        ------
        Late
            If it takes longer than `timeout_s` seconds.
        """
        assert not self._waits_for, f"{self._name}: the gradients of the stages {self._waits_for} were never complete"
        for work, flat, slots in self._under_way:
            if work is not None:
                late = f"{self._name}: the gradients of the ranks {list(self._members)} were not summed within"
                wait_in_time(work, timeout_s, f"{late} {timeout_s:g} s; one of them hangs")
            present = flat[-len(slots) :].tolist()
            parts = torch.split(flat[: -len(slots)], [slot[0].numel() for slot in slots])
            for slot, part, count in zip(slots, parts, present, strict=True):
                if count:
                    for parameter in slot:
                        self._write(parameter, part.view(parameter.shape))
        for parameter in self._parameters():
            if parameter.grad is None and id(parameter) in self._before:
                parameter.grad = self._before[id(parameter)]
        self._under_way, self._before = [], {}

    def abandon(self) -> None:
        """Give parameters the gradients of earlier steps back, after a step that failed."""
        for parameter in self._parameters():
            if id(parameter) in self._before:
                parameter.grad = self._before[id(parameter)]
        self._under_way, self._before = [], {}

    def parameters(self) -> Iterator[nn.Parameter]:
        """This rank's copies."""
        for slot in self._all:
            yield from slot

    def close(self) -> None:
        """Give the group back."""
        if self._group is not None:
            dist.destroy_process_group(self._group)

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for slot in self._slots for parameter in slot]

    def _start(self) -> None:
        by_dtype: dict[torch.dtype, list[Slot]] = defaultdict(list)
        for slot in self._slots:
            by_dtype[slot[0].dtype].append(slot)
        for slots in by_dtype.values():
            own = [self._sum(slot) for slot in slots]
            like = slots[0][0]
            # What follows the gradients says how many ranks have one: where none has, it stays None.
            present = torch.tensor([float(x is not None) for x in own], dtype=like.dtype, device=like.device)
            parts = [
                slot[0].new_zeros(slot[0].numel()) if x is None else x.reshape(-1)
                for x, slot in zip(own, slots, strict=True)
            ]
            flat = torch.cat([*parts, present])
            if self._replicas > 1:
                flat.div_(self._replicas)
            work = None
            if self._group is not None:
                work = dist.all_reduce(flat, group=self._group, async_op=True)
            self._under_way.append((work, flat, slots))

    def _sum(self, slot: Slot) -> Tensor | None:
        """What this rank's stages have for one parameter, added in the order of the stages."""
        total: Tensor | None = None
        for parameter in slot:
            grad = parameter.grad
            if grad is None:
                continue
            if grad.layout is not torch.strided:
                raise InputError(
                    f"{self._name}: a parameter of shape {tuple(parameter.shape)} has a sparse gradient, and only "
                    "dense ones are summed over ranks; use nn.Embedding(sparse=False)"
                )
            total = grad if total is None else total + grad
        return total

    def _write(self, parameter: nn.Parameter, total: Tensor) -> None:
        with torch.no_grad():
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(total)
            before = self._before.get(id(parameter))
            if before is not None:
                parameter.grad = before.add_(parameter.grad)


class Reducer:
    """All sums that a rank has a part in. All processes make one together.

    Parameters
    ----------
    crew, placement
        Processes, and stages on their ranks.
    stages
        This rank's.
    ties
        What stages share.
    """

    def __init__(self, crew: Crew, placement: Placement, stages: Mapping[int, nn.Module], ties: Sequence[Tie]) -> None:
        self._reductions: list[Reduction] = []
        replicas = len(crew.replicas)
        tied = {copy for tie in ties for copy in tie}
        named = {stage: dict(module.named_parameters()) for stage, module in stages.items()}

        def add(name: str, shared_by: Iterable[int], there: Iterable[int], slots: list[Slot]) -> None:
            ranks = dict.fromkeys(rank for stage in shared_by for rank in placement.holders(stage))
            members = [members[rank] for members in crew.replicas for rank in ranks]
            if len(members) == 1 and all(len(slot) <= 1 for slot in slots):
                return  # one object in one place: autograd adds up what its stages have for it
            group = dist.new_group(members, timeout=_FOREVER) if len(members) > 1 else None
            if here := frozenset(there):
                self._reductions.append(Reduction(name, here, slots, members, group, replicas))

        for tie in ties:
            mine = [(stage, named[stage][name]) for stage, name in tie if stage in stages]
            slot = tuple({id(parameter): parameter for _, parameter in mine}.values())
            what = " = ".join(f"{name} of stage {stage}" for stage, name in tie)
            add(what, [stage for stage, _ in tie], [stage for stage, _ in mine], [slot])
        for stage in range(placement.stage_count):
            own: list[Slot] = [(p,) for name, p in named.get(stage, {}).items() if (stage, name) not in tied]
            add(f"stage {stage}", [stage], {stage} & set(stages), own)
        for reduction in self._reductions:
            reduction.make_equal()

    def parameters(self) -> Iterator[nn.Parameter]:
        """This rank's parameters whose gradients are summed."""
        for reduction in self._reductions:
            yield from reduction.parameters()

    def begin(self) -> None:
        """Start a step."""
        for reduction in self._reductions:
            reduction.begin()

    def complete(self, stage: int) -> None:
        """Hear that this step's gradients of a stage are complete."""
        for reduction in self._reductions:
            reduction.complete(stage)

    def finish(self, timeout_s: float) -> None:
        """End a step: wait for every sum, up to `timeout_s` seconds for each."""
        for reduction in self._reductions:
            reduction.finish(timeout_s)

    def abandon(self) -> None:
        """End a step that failed: gradients of earlier steps are not lost."""
        for reduction in self._reductions:
            reduction.abandon()

    def close(self) -> None:
        """Give the groups back."""
        for reduction in self._reductions:
            reduction.close()
        self._reductions = []
