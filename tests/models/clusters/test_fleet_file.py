"""Cluster files: what they say, and what is refused, with file and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptpipe.models.clusters import DEVICES, Link, load_fleet
from adaptpipe.solver import InputError

LAB = """
devices_per_node = 2
op_us = 50
achieved = {gemm = 0.5}

[[devices]]
device = "h100"
count = 2
reserve_gb = 10

[[devices]]
device = {name = "own", tflops = 100, tb_per_s = 1, memory_gb = 48, inside_gb_per_s = 32, between_gb_per_s = 12}
count = 1
speed = 0.9
limit_gb = 40.5

[links]
inside = {latency_us = 10, gb_per_s = 300}
"""


def write(folder: Path, text: str) -> str:
    """A cluster file."""
    path = folder / "lab.toml"
    path.write_text(text)
    return str(path)


def test_a_file_says_it_all(tmp_path: Path) -> None:
    made = load_fleet(write(tmp_path, LAB))
    device, cluster = made.cluster()
    assert (made.name, len(made.members), made.per_node) == ("lab", 3, 2)
    assert (device.op_s, device.achieved.gemm, device.achieved.elementwise) == (50e-6, 0.5, 0.75)
    assert cluster.memory == (70 * 10**9, 70 * 10**9, 40_500_000_000)
    assert cluster.speed == pytest.approx((1.0, 1.0, 0.9 * 100 / 989))
    assert cluster.bandwidth[0][1] == 300e9
    assert cluster.bandwidth[1][2] == pytest.approx(0.8 * 12e9)  # published, and the share that is achieved


def test_more_memory_keeps_the_devices_reserve(tmp_path: Path) -> None:
    made = load_fleet(write(tmp_path, '[[devices]]\ndevice = "h100"\ncount = 1\nmemory_gb = 141\n'))
    assert made.members[0].usable == DEVICES["h200"].usable


def test_a_matrix_of_links(tmp_path: Path) -> None:
    text = (
        '[[devices]]\ndevice = "h100"\ncount = 2\n[links]\nlatency_us = [[0, 3], [4, 0]]\ngb_per_s = [[0, 5], [6, 0]]\n'
    )
    made = load_fleet(write(tmp_path, text))
    assert (made.link(0, 1), made.link(1, 0)) == (Link(3e-6, 5e9), Link(4e-6, 6e9))


def test_what_is_no_file_is_a_preset() -> None:
    assert len(load_fleet("mi300xx8").members) == 8


ONE = '[[devices]]\ndevice = "h100"\ncount = 2\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"lab.toml: top level: object missing required field `devices`"),
        ("devices = []", r"lab.toml: devices: expected `array` of length >= 1"),
        (ONE + "colour = 1", r"lab.toml: devices\[0\]: object contains unknown field `colour`; see the list of keys"),
        (ONE.replace("h100", "h10"), r"lab.toml: device 'h10': unknown; did you mean h100\?"),
        (ONE + "reserve_gb = 1\nlimit_gb = 1", r"lab.toml: devices\[0\]: has both reserve_gb and limit_gb"),
        (ONE + "speed = 0", r"lab.toml: devices\[0\].speed: expected `float` >= 1e-06"),
        (ONE + "memory_gb = 1e12", r"lab.toml: devices\[0\].memory_gb: expected `float` <= 1000000000.0"),
        (ONE + "[achieved]\ngemm = 1.5", r"lab.toml: achieved.gemm: expected `float` <= 1"),
        (
            ONE + "[links]\nlatency_us = [[0, 1], [1, 0]]",
            "lab.toml: links: a matrix of latency_us needs one of gb_per_s",
        ),
        (
            ONE + "[links]\nlatency_us = [[0, 1], [1, 0]]\ngb_per_s = [[0, 1], [1, 0]]\n"
            "inside = {latency_us = 1, gb_per_s = 1}",
            "lab.toml: links: has both a matrix and inside or between",
        ),
        (
            ONE + "[links]\nlatency_us = [[0, 1], [1]]\ngb_per_s = [[0, 1], [1, 0]]",
            r"links.latency_us\[1\]: 1 values for 2",
        ),
        (
            ONE + "[links]\nlatency_us = [[0, 1]]\ngb_per_s = [[0, 1], [1, 0]]",
            r"links.latency_us: 1 rows for 2 devices",
        ),
        (
            ONE + "[links]\nlatency_us = [[0, 1], [1, 0]]\ngb_per_s = [[0, 0], [1, 0]]",
            r"lab.toml: link bandwidth = 0.0 bytes/s: must be finite and above 0",
        ),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_fleet(write(tmp_path, text))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"nowhere.toml: cannot be read: No such file"):
        load_fleet("nowhere.toml")
