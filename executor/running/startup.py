"""What ranks make sure of together before the first message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

from adaptpipe.solver import AdaptPipeError, InputError, Placement

from ..crew import Crew

R = TypeVar("R")

_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")


def agree(prepare: Callable[[], R], fingerprint: Callable[[R], str]) -> R:
    """Do the same on every rank, and see that all have got the same; an error on one is raised on all.

    Raises
    ------
    AdaptPipeError
        The first rank's, where `prepare` raised one.
    InputError
        If the fingerprints of what was made differ between ranks.
    """
    made: list[R] = []
    error: AdaptPipeError | None = None
    try:
        made.append(prepare())
    except AdaptPipeError as caught:
        error = caught
    mine = (fingerprint(made[0]) if made else "", error)
    everyone: list[tuple[str, AdaptPipeError | None]] = [mine] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    for _, found in everyone:
        if found is not None:
            raise found from error
    for rank, (mark, _) in enumerate(everyone):
        if mark != everyone[0][0]:
            raise InputError(
                f"rank {rank} was given another schedule, or other ties, than rank 0; solve on one rank, or load one "
                "file on all"
            )
    return made[0]


def gather(mine: R) -> list[R]:
    """Tell every process what each of them has."""
    everyone = [mine] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return everyone


def check_stages(placement: Placement, crew: Crew, stages: Mapping[int, nn.Module]) -> None:
    """Check that a rank was given the stages that its schedule will ask it for.

    Raises
    ------
    InputError
        If not, or if a stage would need a replica in another direction or is wrapped for data parallelism, or if there
        are not as many processes as ranks.
    """
    check_world(placement, crew)
    if placement.directions > 1:
        raise InputError(
            "the placement is bidirectional, and gradients of a stage's two replicas are not summed yet; "
            "use a placement with one direction: linear, loop, v or wave"
        )
    expected = [stage for _, stage in placement.held[crew.rank]]
    if sorted(stages) != expected:
        raise InputError(
            f"rank {crew.rank} was given the stages {sorted(stages)}, and the schedule's placement has "
            f"{expected} there: stage to rank is {list(placement.stages[0])}"
        )
    for stage, module in stages.items():
        for name, part in module.named_modules():
            for wrapper in type(part).__mro__:
                if wrapper.__name__ in _WRAPPERS:
                    raise InputError(
                        f"stage {stage}: {name or 'the stage'} is a {wrapper.__name__}, which would sum gradients in "
                        "every micro-batch's backward, and before those that W computes; give the bare module, and "
                        "Pipeline a mesh with replicas: mesh=init_device_mesh(…)"
                    )


def check_world(placement: Placement, crew: Crew) -> None:
    """Check that the ranks are there.

    Raises
    ------
    InputError
        If there are not as many processes as ranks.
    """
    there = len(crew.members)
    if there != placement.ranks:
        replicas = len(crew.replicas)
        where = "the process group" if replicas == 1 else f"each of the mesh's {replicas} replicas"
        raise InputError(
            f"the schedule is for {placement.ranks} ranks, and {where} has {there}; "
            f"start {placement.ranks * replicas} processes"
        )


def device_of(stages: Mapping[int, nn.Module]) -> torch.device | None:
    """Where a rank's stages are; None where they have no parameters or buffers."""
    for module in stages.values():
        for tensor in (*module.parameters(), *module.buffers()):
            return tensor.device
    return None
