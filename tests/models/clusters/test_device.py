"""Devices: published figures, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from adaptpipe.models.clusters.device import DEVICES, Achieved, device
from adaptpipe.solver import InputError

H100 = DEVICES["h100"]


def test_the_reserve_leaves_what_trainers_report() -> None:
    """Limits that the published partition studies assume: 71.4 GB of 80, 128 of 141."""
    assert H100.usable == 71_400_000_000
    assert round(DEVICES["h200"].usable / 1e9) == 128
    assert replace(H100, kept=10**12).usable == 0


@pytest.mark.parametrize(("name", "found"), [("H100", "h100"), ("a100", "a100-80"), ("Mi300X", "mi300x")])
def test_names(name: str, found: str) -> None:
    assert device(name) is DEVICES[found]


def test_unknown_names_get_a_hint() -> None:
    with pytest.raises(InputError, match=r"device 'h1000': unknown; did you mean h100\? there are a100-40, a100-80"):
        device("h1000")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flops": 0.0}, r"device.flops = 0.0: must be finite and above 0"),
        ({"bandwidth": float("nan")}, r"device.bandwidth = nan: must be finite and above 0"),
        ({"op_s": -1e-6}, r"device.op_s = -1e-06: must be finite and not below 0"),
        ({"per_node": 0}, r"device.per_node = 0: must be at least 1"),
        ({"kept_share": 1.0}, r"device.kept_share = 1.0: must be at least 0 and below 1"),
    ],
)
def test_values_out_of_bounds(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(H100, **change)


@pytest.mark.parametrize("share", [0.0, 1.5, float("nan")])
def test_shares_out_of_bounds(share: float) -> None:
    with pytest.raises(InputError, match=f"achieved.gemm = {share}: is a share"):
        Achieved(gemm=share)
