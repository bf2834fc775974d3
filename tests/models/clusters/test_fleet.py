"""Clusters: which devices a rank is made of, its links, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adaptpipe.models.clusters import DEVICES, Fleet, Link, Member, fleet
from adaptpipe.solver import InputError

NODE, NETWORK = (15e-6, 350e9), (30e-6, 40e9)


def wire(made: Fleet, one: int, other: int, tp: int = 1, dp: int = 1) -> tuple[float, float]:
    """Link between two ranks of the pipeline."""
    _, cluster = made.cluster(tp, dp)
    return cluster.latency_s[one][other], cluster.bandwidth[one][other]


def test_links_follow_the_nodes() -> None:
    """Published partition studies: 350 GB/s and 15 us inside a node of H100s, 40 GB/s and 30 us between nodes."""
    made = fleet("h100x16")
    assert (wire(made, 0, 7), wire(made, 7, 8), wire(made, 0, 15)) == (NODE, NETWORK, NETWORK)
    assert made.cluster()[1].memory == (71_400_000_000,) * 16


@pytest.mark.parametrize(
    ("tp", "dp", "ranks", "inside"),
    [(8, 1, 8, ()), (1, 8, 8, ()), (2, 1, 32, (0, 1, 2)), (2, 2, 16, (0, 2)), (4, 1, 16, (0, 2)), (16, 1, 4, ())],
)
def test_ranks_of_several_devices(tp: int, dp: int, ranks: int, inside: tuple[int, ...]) -> None:
    """With 8 devices a rank in nodes of 8, ranks are nodes and every link leaves one."""
    made = fleet("h100x64")
    assert made.ranks(tp, dp) == ranks
    assert tuple(r for r in range(3) if wire(made, r, r + 1, tp, dp) == NODE) == inside


def test_a_rank_is_as_good_as_the_worst_of_its_devices() -> None:
    h100, a100 = Member(DEVICES["h100"]), Member(DEVICES["a100-40"], 0.5)
    made = Fleet("mixed", (h100, h100, h100, a100, a100, a100), per_node=3)
    device, cluster = made.cluster(tp=2)
    slow = 0.5 * 312 / 989
    assert device == replace(h100.device, per_node=3)
    assert cluster.speed == pytest.approx((1.0, slow, slow))
    assert cluster.memory == (h100.usable, a100.usable, a100.usable)
    assert wire(made, 0, 1, tp=2)[1] == pytest.approx(20e9)  # devices 1 and 3: the second node's network is the A100s'
    assert wire(made, 1, 2, tp=2)[1] == pytest.approx(20e9)  # devices 2 and 4


def test_links_of_ones_own() -> None:
    made = replace(fleet("h100x4"), per_node=2, inside=Link(1e-6, 7e9), between=Link(2e-6, 5e9))
    assert (wire(made, 0, 1), wire(made, 1, 2)) == ((1e-6, 7e9), (2e-6, 5e9))
    rows = tuple(tuple(Link(0.0, 1e9 + 10 * a + b) for b in range(4)) for a in range(4))
    assert wire(replace(made, links=rows), 2, 1) == (0.0, 1e9 + 21)


def test_groups_exchange_over_the_links_of_the_fleet() -> None:
    """What shares a layer sends at the speed that the cluster says, not at the maker's."""
    made = replace(fleet("h100x8"), per_node=4, inside=Link(1e-6, 20e9), between=Link(2e-6, 5e9))
    device, _ = made.cluster(tp=4)
    assert [device.exchange(group) for group in (2, 4, 8)] == pytest.approx([20e9, 20e9, 5e9])
    assert device.exchange(3) == pytest.approx(5e9)  # devices 3 to 5 are in two nodes
    rows = tuple(tuple(Link(0.0, 1e9 + 10 * a + b) for b in range(4)) for a in range(4))
    device, _ = replace(fleet("mi300xx4"), links=rows).cluster(tp=2)
    assert device.exchange(2) == device.exchange(4) == pytest.approx(1e9 + 1)


def test_fewer_and_more_devices() -> None:
    rows = tuple(tuple(Link(0.0, 1e9 + 10 * a + b) for b in range(4)) for a in range(4))
    made = replace(fleet("h100x4"), links=rows)
    assert wire(made.resized(2), 1, 0) == (0.0, 1e9 + 10)
    assert len(fleet("h100x4").resized(12).members) == 12
    with pytest.raises(InputError, match="cluster h100x4: -1 devices are asked for; must be at least 1"):
        made.resized(-1)
    with pytest.raises(InputError, match="cluster h100x4: has 4 devices, and 5 are asked for; list them in a file"):
        made.resized(5)


def test_other_memory() -> None:
    made = Fleet("x", (Member(DEVICES["h100"], limit=5), Member(DEVICES["h100"])))
    assert {member.usable for member in made.with_memory(141 * 10**9).members} == {DEVICES["h200"].usable}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "h100",
            r"cluster 'h100': neither a file nor a preset; a preset is a device, x and their number, as in h100x8",
        ),
        ("h1000x8", r"device 'h1000': unknown; did you mean h100\?"),
        ("h100x١", "neither a file nor a preset"),
        ("h100x0", "cluster h100x0: 0 devices; must be 1 to 65536"),
        ("h100x99999999", "cluster h100x99999999: 99999999 devices; must be 1 to 65536"),
    ],
)
def test_presets_that_are_none(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fleet(name)


def test_degrees_that_do_not_divide_the_devices() -> None:
    with pytest.raises(InputError, match=r"h100x8: 8 devices are not a multiple of 6 \(tensor-parallel degree 3 x"):
        fleet("h100x8").cluster(tp=3, dp=2)
    with pytest.raises(InputError, match="data-parallel degree = 0: must be at least 1"):
        fleet("h100x8").cluster(dp=0)


def test_fleets_that_are_none() -> None:
    member = Member(DEVICES["h100"])
    with pytest.raises(InputError, match="cluster x: 0 devices"):
        Fleet("x", ())
    with pytest.raises(InputError, match="cluster x: 0 devices per node; must be at least 1"):
        Fleet("x", (member,), per_node=0)
    with pytest.raises(InputError, match="cluster x: the links' matrix must have a row and a column for each device"):
        Fleet("x", (member, member), links=((Link(0, 1.0),),))
    with pytest.raises(InputError, match=r"speed of h100 = 0.0: must be finite and above 0"):
        Member(DEVICES["h100"], 0.0)
    with pytest.raises(InputError, match=r"limit of h100 = -1 bytes: must not be below 0"):
        Member(DEVICES["h100"], limit=-1)
    with pytest.raises(InputError, match=r"link latency = -1.0 s: must be finite and not below 0"):
        Link(-1.0, 1.0)
    with pytest.raises(InputError, match=r"link bandwidth = 0.0 bytes/s: must be finite and above 0"):
        Link(0.0, 0.0)
