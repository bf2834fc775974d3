"""Clusters: what is refused, and what counts as uniform."""

from __future__ import annotations

import math
from typing import Any

import pytest

from adaptpipe.solver.core.cluster import Cluster, uniform_cluster
from adaptpipe.solver.core.errors import InputError

FITS: dict[str, Any] = {
    "name": "two",
    "speed": (1.0, 0.5),
    "memory": (10, None),
    "latency_s": ((math.nan, 1e-6), (0.0, -1.0)),  # what a rank sends itself is not looked at
    "bandwidth": ((0.0, 1e9), (1e9, math.inf)),
}


def test_a_rank_needs_no_link_to_itself() -> None:
    assert Cluster(**FITS).ranks == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"speed": ()}, "cluster: no ranks; give it one at least"),
        ({"memory": (10,)}, "cluster.memory: 1 values for 2 ranks; give one for each rank"),
        ({"latency_s": ((0.0, 0.0),)}, "cluster.latency: 1 values for 2 ranks"),
        ({"bandwidth": ((1.0, 1.0),) * 3}, "cluster.bandwidth: 3 values for 2 ranks"),
        ({"speed": (1.0, 0.0)}, r"cluster.speed\[1\] = 0.0: must be finite and above 0"),
        ({"speed": (math.inf, 1.0)}, r"cluster.speed\[0\] = inf: must be finite"),
        ({"speed": (math.nan, 1.0)}, r"cluster.speed\[0\] = nan: must be finite"),
        ({"memory": (10, -1)}, r"cluster.memory\[1\] = -1: must not be below 0"),
        (
            {"latency_s": ((0.0, -1e-6), (0.0, 0.0))},
            r"cluster.latency\[0\]\[1\] = -1e-06: must be finite and not below",
        ),
        ({"latency_s": ((0.0,), (0.0, 0.0))}, r"cluster.latency\[0\]: 1 values for 2 ranks; give one for each"),
        ({"bandwidth": ((0.0, 0.0), (1.0, 0.0))}, r"cluster.bandwidth\[0\]\[1\] = 0.0: must be finite and above 0"),
        ({"bandwidth": ((0.0, 1.0), (math.inf, 0.0))}, r"cluster.bandwidth\[1\]\[0\] = inf: must be finite and above"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Cluster(**FITS | changed)


def test_uniform_is_one_speed_one_memory_and_one_link() -> None:
    assert uniform_cluster("three", 3, 10, 1e-6, 1e9).uniform
    assert not Cluster(**FITS).uniform
    same: dict[str, Any] = FITS | {"speed": (2.0, 2.0), "memory": (5, 5)}
    assert not Cluster(**same).uniform
    assert Cluster(**same | {"latency_s": ((9.0, 1e-6), (1e-6, 9.0))}).uniform
