"""What ranks make sure of together before the first message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

from adaptpipe.solver import AdaptPipeError, InputError, Placement

from ..crew import Crew
from ..errors import PeerFailed, RankFailure
from ..failures import blame
from ..waiting import gather

R = TypeVar("R")

MAKING = "the making of the pipeline"
"""What ranks come together for when each of them makes a `Pipeline`."""

_LEAST_S, _MOST_S = 60.0, 1e9


def patience(timeout_s: float) -> float:
    """Seconds to wait for others who make their pipeline, and may compile code for it: a minute at least."""
    return min(max(_LEAST_S, timeout_s), _MOST_S)


_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")


def agree(prepare: Callable[[], R], fingerprint: Callable[[R], str], timeout_s: float, what: str) -> R:
    """Do the same on every rank, and see that all have got the same; an error on one ends it on all.

    Parameters
    ----------
    prepare
        What to do, on this rank alone.
    fingerprint
        Of what was made, that which must be alike on all ranks.
    timeout_s, what
        As for `gather`.

    Raises
    ------
    AdaptPipeError
        The first rank's, where `prepare` raised one.
    RankFailure, PeerFailed
        Where it raised anything else: there, and on the others.
    InputError
        If the fingerprints of what was made differ between ranks.
    Late
        If a rank does not come.
    """
    made: list[R] = []
    cause: Exception | None = None
    error: AdaptPipeError | None = None
    try:
        made.append(prepare())
    except AdaptPipeError as caught:
        cause = error = caught
    except Exception as caught:
        cause, error = caught, blame(caught, dist.get_rank())
    everyone = gather((fingerprint(made[0]) if made else "", error), timeout_s, what)
    for rank, (_, found) in enumerate(everyone):
        if isinstance(found, RankFailure) and rank != dist.get_rank():
            raise PeerFailed(dist.get_rank(), found)
        if found is not None:
            raise found from cause
    for rank, (mark, _) in enumerate(everyone):
        if mark != everyone[0][0]:
            raise InputError(
                f"rank {rank} was given another schedule, or other ties, than rank 0; solve on one rank, or load one "
                "file on all"
            )
    return made[0]


def check_stages(placement: Placement, crew: Crew, stages: Mapping[int, nn.Module]) -> None:
    """Check that a rank was given the stages that its schedule will ask it for.

    Raises
    ------
    InputError
        If not, or if a stage is wrapped for data parallelism, or if there are not as many processes as ranks.
    """
    check_world(placement, crew)
    if not isinstance(stages, Mapping):
        raise InputError(f"stages is a {type(stages).__name__}; give a mapping from numbers of stages to modules")
    expected = sorted({stage for _, stage in placement.held[crew.rank]})
    if sorted(stages) != expected:
        raise InputError(
            f"rank {crew.rank} was given the stages {sorted(stages)}, and the schedule's placement has {expected} "
            f"there: stage to rank is {', and the other way '.join(str(list(row)) for row in placement.stages)}"
        )
    for stage, module in stages.items():
        if not isinstance(module, nn.Module):
            raise InputError(f"stage {stage} is a {type(module).__name__}; give an nn.Module")
        for name, part in module.named_modules():
            for wrapper in type(part).__mro__:
                if wrapper.__name__ in _WRAPPERS:
                    raise InputError(
                        f"stage {stage}: {name or 'the stage'} is a {wrapper.__name__}, which would sum gradients in "
                        "every micro-batch's backward, and before those that W computes; give the bare module, and "
                        "Pipeline a mesh with replicas: mesh=init_device_mesh(…)"
                    )


def check_replicas(placement: Placement, crew: Crew, stages: Mapping[int, nn.Module], timeout_s: float) -> None:
    """Check that all replicas of a stage have the same parameters, and train the same; all processes call it together.

    Replicas of the pipeline have one of each stage, and so have the two directions of a placement.

    Raises
    ------
    InputError
        On every process, if not.
    """
    if len(crew.replicas) == placement.directions == 1:
        return
    mine = {
        stage: {
            name: (tuple(parameter.shape), parameter.dtype, parameter.requires_grad)
            for name, parameter in module.named_parameters()
        }
        for stage, module in stages.items()
    }
    everyone = gather(mine, patience(timeout_s), MAKING)
    for stage in range(placement.stage_count):
        places = list(product(range(len(crew.replicas)), placement.holders(stage)))
        first, *others = [everyone[crew.replicas[replica][rank]][stage] for replica, rank in places]
        for place, other in zip(places[1:], others, strict=True):
            for name in [*first, *(name for name in other if name not in first)]:
                ours, theirs = first.get(name), other.get(name)
                if ours != theirs:
                    raise InputError(
                        f"stage {stage}: {name} {_told(ours)} {_where(placement, crew, *places[0])}, and "
                        f"{_told(theirs)} {_where(placement, crew, *place)}; replicas of a stage must have the same "
                        "parameters, and train the same of them"
                    )


def _where(placement: Placement, crew: Crew, replica: int, rank: int) -> str:
    if placement.directions == 1:
        return f"in replica {replica}"
    return f"on rank {rank}" + (f" of replica {replica}" if len(crew.replicas) > 1 else "")


def _told(fact: tuple[tuple[int, ...], torch.dtype, bool] | None) -> str:
    if fact is None:
        return "is missing"
    shape, dtype, trains = fact
    return f"has shape {shape} and dtype {dtype} and {'trains' if trains else 'is frozen'}"


def check_timeout(timeout_s: float) -> None:
    """Check how long ranks are to wait for each other.

    Raises
    ------
    InputError
        If it is no time.
    """
    if not 0 < timeout_s <= _MOST_S:
        raise InputError(f"timeout_s = {timeout_s}: must be above 0, and at most {_MOST_S:g} seconds")


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
