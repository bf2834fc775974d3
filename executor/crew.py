"""The processes that run a pipeline, and those that run its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from adaptpipe.solver import InputError

T = TypeVar("T")

PIPELINE = "pp"
"""Name of a device mesh's dimension along which the stages lie; its other dimension, if any, has replicas."""


@dataclass(frozen=True, slots=True)
class Crew:
    """Who runs what: each process of the default group is one rank of one replica of the pipeline.

    Parameters
    ----------
    replicas
        For each replica of the pipeline, its processes by pipeline rank, as ranks of the default group.
    replica, rank
        Where this process is in there.
    group
        This replica's processes.
    """

    replicas: tuple[tuple[int, ...], ...]
    replica: int
    rank: int
    group: dist.ProcessGroup

    @classmethod
    def of(cls, mesh: DeviceMesh | None = None) -> Self:
        """Read the crew off a device mesh; None: the default group's processes run one pipeline.

        Raises
        ------
        InputError
            If the mesh has no dimension "pp", more than two, or not all processes.
        """
        world = dist.get_world_size()
        if mesh is None:
            group = dist.group.WORLD
            assert group is not None, "there is a default process group"
            return cls((tuple(range(world)),), 0, dist.get_rank(), group)
        names = mesh.mesh_dim_names or ()
        if PIPELINE not in names or len(names) > 2:
            raise InputError(
                f"mesh has the dimensions {list(names)}; give one named {PIPELINE!r} for the pipeline, and at most one "
                'other for its replicas: init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "pp"))'
            )
        if mesh.size() != world:
            raise InputError(f"mesh has {mesh.size()} of the {world} processes; it must have all of them")
        table = mesh.mesh.reshape(1, -1) if len(names) == 1 else mesh.mesh if names[1] == PIPELINE else mesh.mesh.t()
        replicas = tuple(tuple(row) for row in table.tolist())
        me = dist.get_rank()
        (replica,) = (number for number, row in enumerate(replicas) if me in row)
        return cls(replicas, replica, replicas[replica].index(me), mesh.get_group(PIPELINE))

    def first(self, everyone: Sequence[T]) -> list[T]:
        """Of what all processes have, what the first replica's have, by pipeline rank."""
        return [everyone[process] for process in self.replicas[0]]

    @property
    def members(self) -> tuple[int, ...]:
        """This replica's processes by pipeline rank."""
        return self.replicas[self.replica]
