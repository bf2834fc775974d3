"""The ranks that a model is spread over: how fast each is, what it may hold, and the links between them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .errors import InputError


@dataclass(frozen=True, slots=True)
class Cluster:
    """Ranks of one pipeline. A rank may be several devices that share its layers (tensor parallelism).

    Parameters
    ----------
    name
        For people.
    speed
        For each rank, its speed relative to the device that the layers' profile is of.
    memory
        For each rank, bytes that it may hold in all, a reserve already taken off; None: no limit.
    latency_s, bandwidth
        Seconds of an empty message, and bytes per second, [from][to].

    Raises
    ------
    InputError
        When the rows do not fit each other, or a value is out of bounds.
    """

    name: str
    speed: tuple[float, ...]
    memory: tuple[int | None, ...]
    latency_s: tuple[tuple[float, ...], ...]
    bandwidth: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        ranks = len(self.speed)
        if ranks < 1:
            raise InputError("cluster: no ranks; give it one at least")
        for key, count in (
            ("memory", len(self.memory)),
            ("latency", len(self.latency_s)),
            ("bandwidth", len(self.bandwidth)),
        ):
            if count != ranks:
                raise InputError(f"cluster.{key}: {count} values for {ranks} ranks; give one for each rank")
        for rank, (speed, memory) in enumerate(zip(self.speed, self.memory, strict=True)):
            if not (math.isfinite(speed) and speed > 0):
                raise InputError(f"cluster.speed[{rank}] = {speed}: must be finite and above 0")
            if memory is not None and memory < 0:
                raise InputError(f"cluster.memory[{rank}] = {memory}: must not be below 0")
        for key, rows, least in (("latency", self.latency_s, 0.0), ("bandwidth", self.bandwidth, math.ulp(0.0))):
            for rank, row in enumerate(rows):
                if len(row) != ranks:
                    raise InputError(f"cluster.{key}[{rank}]: {len(row)} values for {ranks} ranks; give one for each")
                for to, value in enumerate(row):
                    if to != rank and not (math.isfinite(value) and value >= least):
                        bound = "must be finite and above 0" if least else "must be finite and not below 0"
                        raise InputError(f"cluster.{key}[{rank}][{to}] = {value}: {bound}")

    @property
    def ranks(self) -> int:
        """Number of ranks, p."""
        return len(self.speed)

    @property
    def uniform(self) -> bool:
        """Whether all ranks are equally fast, hold as much and have the same links."""
        links = {
            (self.latency_s[r][q], self.bandwidth[r][q]) for r in range(self.ranks) for q in range(self.ranks) if r != q
        }
        return len(set(self.speed)) == 1 and len(set(self.memory)) == 1 and len(links) <= 1


def uniform_cluster(
    name: str, ranks: int, memory: int | None, latency_s: float, bandwidth: float, speed: float = 1.0
) -> Cluster:
    """A cluster of equal ranks with equal links.

    Examples
    --------
    >>> uniform_cluster("two", 2, None, 1e-5, 1e9).uniform
    True
    """
    return Cluster(
        name, (speed,) * ranks, (memory,) * ranks, ((latency_s,) * ranks,) * ranks, ((bandwidth,) * ranks,) * ranks
    )
