"""What ranks make sure of together before the first message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

from adaptpipe.solver import AdaptPipeError, InputError, Placement

R = TypeVar("R")


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
            raise InputError(f"rank {rank} was given another schedule than rank 0; solve on one rank, or load one file")
    return made[0]


def check_stages(placement: Placement, rank: int, stages: Mapping[int, nn.Module]) -> None:
    """Check that a rank was given the stages that its schedule will ask it for.

    Raises
    ------
    InputError
        If not, or if a stage would need a replica, or if there are not as many processes as ranks.
    """
    check_world(placement)
    if placement.directions > 1:
        raise InputError(
            "the placement is bidirectional, and gradients of a stage's two replicas are not summed yet; "
            "use a placement with one direction: linear, loop, v or wave"
        )
    expected = [stage for _, stage in placement.held[rank]]
    if sorted(stages) != expected:
        raise InputError(
            f"rank {rank} was given the stages {sorted(stages)}, and the schedule's placement has "
            f"{expected} there: stage to rank is {list(placement.stages[0])}"
        )


def check_world(placement: Placement) -> None:
    """Check that the ranks are there.

    Raises
    ------
    InputError
        If there are not as many processes as ranks.
    """
    world = dist.get_world_size()
    if world != placement.ranks:
        raise InputError(
            f"the schedule is for {placement.ranks} ranks, and the process group has {world}; "
            f"start {placement.ranks} processes"
        )


def device_of(stages: Mapping[int, nn.Module]) -> torch.device | None:
    """Where a rank's stages are; None where they have no parameters or buffers."""
    for module in stages.values():
        for tensor in (*module.parameters(), *module.buffers()):
            return tensor.device
    return None
