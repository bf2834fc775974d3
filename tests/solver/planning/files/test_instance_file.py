"""Files of workloads: what they say becomes the same prices, and what they cannot say is refused with its place."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from adaptpipe.solver.core.errors import InputError
from adaptpipe.solver.core.placement import place
from adaptpipe.solver.core.problem import price
from adaptpipe.solver.planning.files.instance_file import load_workload
from adaptpipe.solver.planning.workload import split_of

SPEC: dict[str, Any] = {
    "p": 2,
    "sequences": 6,
    "default_mbs": 1,
    "mbs_fixed": False,
    "cap": 100.5,
    "speed": [1.0, 0.5],
    "aop": 80,
    "link": {"all": [15, 2000.0]},
    "types": [
        {"kind": "embed", "F": 40.1, "I": 6.7, "W": 40.0, "fixed": [15, 5, 15], "act": 0.0, "rel_i": 0, "static": 9.5,
         "comm_bytes": 1000},
        {"kind": "block", "F": 100, "I": 120, "W": 80, "fixed": [3, 4, 2], "act": 5.5, "rel_i": 2.0, "static": 7,
         "comm_bytes": 3000},
    ],
    "units": [[0, 1], [1, 3]],
}  # fmt: skip


def write(folder: Path, spec: dict[str, Any], name: str = "one") -> Path:
    """A file with one instance."""
    path = folder / "instances.json"
    path.write_text(json.dumps({"format": "words", "instances": {name: spec}}), encoding="utf-8")
    return path


def test_prices_are_those_of_the_file(tmp_path: Path) -> None:
    work = load_workload(write(tmp_path, SPEC))
    assert (work.name, work.samples, work.sizes, work.ranks, work.layers) == ("one", 6, (1, 2, 3, 4), 2, 4)
    assert [part.kind for part in work.profile.parts] == ["embed", "block", "block", "block"]
    problem = work.problem(split_of([0, 2, 4]), place("linear", 2), (2, 2, 2))
    # op + fixed of each layer + each for two samples, at speeds 1 and 0.5.
    assert [price(cost, 2) for cost in problem.forward] == [379, 972]  # 80 + 15 + 80.2 + 3 + 200 = 378.2
    assert [price(cost, 2) for cost in problem.backward_input] == [343, 1136]  # 80 + 5 + 13.4 + 4 + 240 = 342.4
    assert [price(units[0], 2) for units in problem.weight_units] == [337, 808]
    assert [price(cost, 2) for cost in problem.memory.activation] == [11 * 10**6, 22 * 10**6]
    assert [price(cost, 2) for cost in problem.memory.retained] == [7 * 10**6, 14 * 10**6]
    assert problem.memory.static == (16_500_000, 14_000_000)
    assert problem.memory.limit == (100_500_000, 100_500_000)
    assert [price(cost, 2) for cost in problem.links.message] == [6000, 6000]
    assert problem.links.latency[0][1] == 15
    assert problem.links.bandwidth is not None
    assert problem.links.bandwidth[0][1] == 2e9


def test_links_inside_and_between_nodes(tmp_path: Path) -> None:
    link = {"ranks_per_node": 1, "intra": [1, 9.0], "inter": [30, 5.0]}
    cluster = load_workload(write(tmp_path, SPEC | {"link": link})).cluster
    assert cluster.latency_s[0] == (1e-6, 3e-5)
    assert cluster.bandwidth[1] == (5e6, 9e6)


def test_sizes_come_from_the_caller_the_file_or_the_usual_ones(tmp_path: Path) -> None:
    assert load_workload(write(tmp_path, SPEC | {"default_mbs": 6})).sizes == (1, 2, 3, 4, 6)
    assert load_workload(write(tmp_path, SPEC | {"mbs_fixed": True})).sizes == (1,)
    assert load_workload(write(tmp_path, SPEC), sizes=(2, 9)).sizes == (2,)


def changed(path: str, value: object) -> dict[str, Any]:
    """The instance with one value changed, by the keys to it."""
    spec: dict[str, Any] = deepcopy(SPEC)
    at: Any = spec
    keys: list[Any] = [int(key) if key.isdigit() else key for key in path.split(".")]
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = value
    return spec


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("units.0", [2, 1], r"instances.one.units\[0\]: type 2 is none of 0 to 1"),
        ("units.0", [-1, 1], r"instances.one.units\[0\]: type -1 is none of 0 to 1"),
        ("units.1", [1, 0], r"instances.one.units\[1\]: 0 layers; must be at least 1"),
        ("units", [[0, 1]], r"instances.one: 1 layers for 2 ranks"),
        ("speed", [1.0], r"instances.one: cluster.memory: 2 values for 1 ranks"),
        ("speed", [1.0, 0.0], r"instances.one: cluster.speed\[1\] = 0.0"),
        ("link", {"intra": [1, 1.0]}, r"instances.one: link: give all, or ranks_per_node, intra and inter"),
        ("link", {"all": [1]}, r"instances\[...\].link.all"),
        ("link", {"all": [-1, 1.0]}, r"instances.one: cluster.latency\[0\]\[1\]"),
        ("p", 0, r"instances\[...\].p"),
        ("types.0.F", -1, r"types\[0\].F"),
        ("types.0.kinds", "block", "kinds"),
        ("types.1.fixed", [1, 2], "fixed"),
        ("units", [], "units"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path: Path, path: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        load_workload(write(tmp_path, changed(path, value)))
    assert str(error.value).startswith(str(tmp_path / "instances.json"))


def test_an_instance_is_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_text(json.dumps({"instances": {"small": SPEC, "large": SPEC}}), encoding="utf-8")
    assert load_workload(path, "large").name == "large"
    with pytest.raises(InputError, match=r"two.json: holds 2 instances; choose one by name: small, large"):
        load_workload(path)
    with pytest.raises(InputError, match=r"no instance 'smal'; did you mean small\? it holds small, large"):
        load_workload(path, "smal")
    with pytest.raises(InputError, match="no instance 'xyz'; it holds small, large"):
        load_workload(path, "xyz")


def test_sizes_larger_than_the_batch_are_refused_where_none_is_left(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"instances.one: no micro-batch size of \[7\] is within 6 sequences"):
        load_workload(write(tmp_path, SPEC), sizes=(7,))
