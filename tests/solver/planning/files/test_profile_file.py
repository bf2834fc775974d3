"""Files of measured layers: what is written is read, and what cannot be is refused with its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adaptpipe.solver import InputError, Measurement, Part, Profile
from adaptpipe.solver.planning.files.profile_file import LayerProfile, load_profile
from adaptpipe.solver.planning.workload import Tie


def measured(size: int) -> Measurement:
    s = size / 1e3
    return Measurement(
        size, s, 1.1 * s, 0.9 * s, 1.8 * s, 90 * size, 60 * size, 8 * size, (s / 2, s / 2), (20 * size, 40 * size), 33,
        (0.01, 0.02, 0.0, 0.1),
    )  # fmt: skip


BLOCK = Part("block 0", 700, (measured(1), measured(3)), 0.9, (1, 3), "block", 44, 0.05, 0.02)
FIRST = Part("embedding", 70, (Measurement(1, 0.0, 0.0, 0.0, 1e-7, 0, 0, 8),), kind="embedding", parameters=3)
PARTS = (FIRST, *(replace(BLOCK, name=f"block {n}") for n in range(3)), replace(FIRST, name="head", kind="head"))
PROFILE = Profile("a processor", PARTS, 0.0, op_s=1e-5)
WHOLE = LayerProfile({128: PROFILE, 64: replace(PROFILE, op_s=2e-5)}, (Tie((0, 4), 12),), {"kind": "gpt", "layers": 3})


@pytest.fixture
def data(tmp_path: Path) -> Any:
    WHOLE.save(tmp_path / "p.json")
    return msgspec.json.decode((tmp_path / "p.json").read_bytes())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    WHOLE.save(tmp_path / "p.json")
    found = load_profile(tmp_path / "p.json")
    assert found == WHOLE
    assert found.at(64).op_s == 2e-5


def test_equal_layers_are_written_once(data: Any) -> None:
    assert [len(length["kinds"]) for length in data["lengths"]] == [3, 3]
    assert data["lengths"][0]["layers"][1:4] == [["block 0", 1], ["block 1", 1], ["block 2", 1]]


def test_the_only_length_needs_no_choice() -> None:
    assert LayerProfile({8: PROFILE}).at() is PROFILE
    with pytest.raises(InputError, match="holds sequences of 64, 128; choose one with --sequence"):
        WHOLE.at()
    with pytest.raises(InputError, match="sequence = 32: the profile holds 64, 128"):
        WHOLE.at(32)


def set_at(*keys: Any, value: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


KIND = ("lengths", 1, "kinds", 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_at("format", value="x"), "format: 'x' is not 'adaptpipe-profile'; this is another kind of file"),
        (set_at("version", value=2), "version: 2 is not 1, the one this release reads"),
        (set_at("lengths", 1, "sequence", value=64), r"lengths\[1\].sequence: 64 is there twice"),
        (set_at("lengths", 1, "layers", value=[["x", 0]]), r"lengths: have \[1, 5\] layers; all must be of one model"),
        (set_at("lengths", 1, "layers", 2, 1, value=3), r"lengths\[1\].layers\[2\]: kind 3 is none of 0 to 2"),
        (set_at("ties", 0, "layers", value=[0, 5]), r"ties\[0\].layers: \[0, 5\] are not two of the 5 layers"),
        (set_at("ties", 0, "layers", value=[4, 0]), r"ties\[0\].layers: \[4, 0\] are not two of the 5 layers"),
        (set_at(*KIND, "measurements", 0, "size", value=3), r"\.measurements: sizes \[3, 3\] must be distinct"),
        (set_at(*KIND, "measurements", 0, "unit_s", value=[0.1]), r"\.unit_s: 1 values; there must be 2"),
        (set_at(*KIND, "measurements", 0, "unit_bytes", value=[]), r"\.unit_bytes: 0 values; there must be 2"),
        (set_at(*KIND, "measurements", 0, "unit_bytes", value=[1, 2]), r"unit_bytes: 3 in sum; must be retained, 60"),
        (set_at(*KIND, "measurements", 0, "spread", value=[0.1]), r"\.spread: 1 values; there must be 4"),
        (set_at(*KIND, "measurements", 0, "forward_s", value=-1.0), "forward_s: expected `float` >= 0"),
        (set_at(*KIND, "measurements", value=[]), "measurements: expected `array` of length >= 1"),
        (set_at(*KIND, "colour", value=1), "unknown field `colour`"),
    ],
)  # fmt: skip
def test_refusals_name_the_place(data: Any, tmp_path: Path, change: Callable[[Any], None], message: str) -> None:
    change(data)
    path = tmp_path / "changed.json"
    path.write_bytes(msgspec.json.encode(data))
    with pytest.raises(InputError, match=message) as caught:
        load_profile(path)
    assert str(caught.value).startswith(str(path))


def test_a_folder_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        WHOLE.save(tmp_path)
