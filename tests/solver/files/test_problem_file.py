"""Problem files: round trips, the documentation's examples, and a message for each fault."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import Affine, InputError, Problem
from adaptpipe.solver.files.problem_file import ProblemSpec, problem_from_spec, problem_to_spec
from tests.strategies import Data, problem_data, problems

ROOT = Path(__file__).resolve().parents[3]
FULL: Data = {
    "pipeline": {"ranks": 2, "placement": "linear"},
    "batch": {"samples": 4, "microbatch_sizes": [1]},
    "costs": {"forward": 3, "backward_input": 4, "backward_weight": 5, "overhead": 1},
    "memory": {"unit": "MB", "activation": 6, "retained": 2, "static": 1, "limit": 30},
    "links": {"latency": 1, "bandwidth": 1e9, "bytes": 100},
}


def blocks(language: str) -> list[str]:
    text = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("text", [text for text in blocks("toml") if "[pipeline]" in text])
def test_the_documentations_problems_load(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(text)
    assert Problem.load(tmp_path / "p.toml").ranks >= 2


def test_the_documentation_lists_every_key() -> None:
    documented = set(re.findall(r"^\| `([a-z_.]+)`", "".join(blocks_of_tables()), flags=re.MULTILINE))
    keys: set[str] = set()
    for field in msgspec.structs.fields(ProblemSpec):
        inner = (
            [f.name for f in msgspec.structs.fields(field.type)] if isinstance(field.type, type(ProblemSpec)) else []
        )
        keys |= {f"{field.name}.{name}" for name in inner} or {field.name}
    assert documented == keys


def blocks_of_tables() -> list[str]:
    text = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    return [text[text.index("### Keys") : text.index("### Everything at once")]]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*-p*.toml")), ids=lambda path: path.stem)
def test_examples_load_and_are_named_after_their_file(path: Path) -> None:
    assert Problem.load(path).name == path.stem


def test_the_published_example() -> None:
    problem = Problem.load(ROOT / "examples" / "zb-1.5b-p8-m24.toml")
    assert (problem.forward[0], problem.backward_input[0], problem.weight_units[0]) == (18522, 18086, (9337,))
    assert problem.memory.limit == (8 * 201 * 10**6,) * 8
    assert problem.links.latency[0][1] == 601


@given(problems() | problems(slices=True))
def test_round_trip_through_the_spec(problem: Problem) -> None:
    again = problem_from_spec(msgspec.convert(msgspec.to_builtins(problem_to_spec(problem)), ProblemSpec))
    # A unit in which a number is not whole gives way to bytes.
    assert replace(again, memory=replace(again.memory, unit=problem.memory.unit)) == problem


def test_round_trip_through_a_file(tmp_path: Path) -> None:
    for name in ("uneven-p3", "v-1.5b-p4-m8"):
        problem = Problem.load(ROOT / "examples" / f"{name}.toml")
        problem.save(tmp_path / "p.json")
        assert Problem.load(tmp_path / "p.json") == problem


def test_a_file_without_a_name_is_named_after_itself(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_bytes(msgspec.json.encode(FULL))
    assert Problem.load(tmp_path / "mine.json").name == "mine"


def changed(*path: Any, to: Any) -> Data:
    data: Data = deepcopy(FULL)
    inner: Any = data
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    if to is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed("pipeline", "ranks", to=0), "pipeline.ranks: expected `int` >= 1"),
        (changed("pipeline", "ranks", to=...), "pipeline: object missing required field `ranks`"),
        (changed("pipeline", "placement", to="ring"), "pipeline.placement: 'ring' is none of linear, loop, v, wave"),
        (changed("pipeline", "placement", to=[]), "pipeline.placement: the list is empty"),
        (changed("pipeline", "placement", to=[0, 2]), r"pipeline.placement\[1\]: rank 2 is not one of 0..1"),
        (changed("pipeline", "placement", to=[0, 0]), "pipeline.placement: rank 1 holds no stage"),
        (
            changed("pipeline", "placement", to=[[0, 0], [1, 1]]),
            "pipeline.placement: rank 1 holds no stage in direction 0; give it one or lower pipeline.ranks",
        ),
        (changed("pipeline", "placement", to=[[0, 1], [1, 1]]), "rank 0 holds no stage in direction 1"),
        (changed("pipeline", "placement", to=[[0, 1], [1]]), "pipeline.placement: the directions differ"),
        (changed("pipeline", "placement", to=[[0, 1], 1]), r"pipeline.placement\[1\]: not a list, and others are"),
        (changed("pipeline", "placement", to=[[0, 1]] * 3), "pipeline.placement: 3 directions; there are one or two"),
        (changed("pipeline", "stages_per_rank", to=2), "pipeline.stages_per_rank: 2 does not fit placement 'linear'"),
        (
            changed("pipeline", to={"ranks": 2, "placement": [0, 1], "stages_per_rank": 1}),
            "pipeline.stages_per_rank: the list in pipeline.placement says it already",
        ),
        (changed("batch", "samples", to=0), "batch.samples: expected `int` >= 1"),
        (changed("batch", "samples", to=2**40), "batch.samples: expected `int` <= 1000000"),
        (changed("batch", "microbatch_sizes", to=[]), r"batch.microbatch_sizes: \[\] must be distinct sizes"),
        (changed("batch", "microbatch_sizes", to=[2, 1]), r"batch.microbatch_sizes: \[2, 1\] must be distinct sizes"),
        (changed("batch", "microbatch_sizes", to=[3]), "batch.samples: 4 is no sum of the sizes"),
        (changed("batch", "microbatch_sizes", to=[1, 2]), r"costs.forward\[0\]: a plain number while 2 micro-batch"),
        (changed("batch", "slices", to=0), "batch.slices: expected"),
        (changed("batch", "slices", to=2000), "batch.slices: expected `int` <= 1024"),
        (changed("batch", "slices", to={}), "batch.slices: neither tokens nor work; write the number of slices"),
        (changed("batch", "slices", to={"work": [1]}), "batch.slices: 1 slices, and there are from 2 to 1024"),
        (changed("batch", "slices", to={"work": [1, 0]}), r"batch.slices.work\[1\]: expected `int` >= 1"),
        (
            changed("batch", "slices", to={"tokens": [1, 2], "work": [1, 2, 3]}),
            "batch.slices.work: 3 values for 2 slices; give one for each",
        ),
        (
            changed("batch", to={"samples": 4, "microbatch_sizes": [1, 2], "slices": 2}),
            "batch.slices: given while 2 micro-batch sizes are allowed",
        ),
        (
            changed("pipeline", "placement", to="bidirectional") | {"batch": {"samples": 4, "slices": 2}},
            "batch.slices: given while stages have replicas in two directions",
        ),
        (changed("unit", to="min"), "unit: 'min' is none of ns, us, ms, s"),
        (changed("costs", "forward", to=1.5), "costs.forward: expected `int | array | object`, got `float`; durations"),
        (changed("costs", "forward", to=-1), "costs.forward: expected `int` >= 0"),
        (changed("costs", "forward", to=2**53 + 1), "costs.forward: expected `int` <= 9007199254740992"),
        (changed("costs", "forward", to=[1, 2, 3]), "costs.forward: 3 values for 2 stages"),
        (changed("costs", "forward", to=True), "costs.forward: expected `int | array | object`, got `bool`"),
        (changed("costs", "forwards", to=1), "costs: object contains unknown field `forwards`; see the list of keys"),
        (changed("costs", "forward", to={"fix": 1}), "costs.forward: object contains unknown field `fix`"),
        (changed("costs", "backward_weight", to=...), "costs.backward_weight and costs.weight_units: neither given"),
        (changed("costs", "weight_units", to=[1]), "costs.backward_weight and costs.weight_units: both given"),
        (
            changed("costs", to={"forward": 1, "backward_input": 1, "weight_units": []}),
            r"costs.weight_units\[0\]: the list is empty",
        ),
        (
            changed("costs", to={"forward": 1, "backward_input": 1, "weight_units": [[1]]}),
            "costs.weight_units: 1 lists for 2 stages",
        ),
        (
            changed("costs", to={"forward": 1, "backward_input": 1, "weight_units": [[1], 2]}),
            r"costs.weight_units\[1\]: not a list, and others are",
        ),
        (changed("costs", "overhead", to=[1]), "costs.overhead: 1 values, 2 are needed"),
        (changed("memory", "unit", to="TB"), "memory.unit: 'TB' is none of B, KB"),
        (changed("memory", "activation", to=...), "memory.retained: given without memory.activation"),
        (changed("memory", "retained_units", to=[1]), "memory.retained: given beside memory.retained_units"),
        (
            changed("memory", to={"activation": 3, "retained_units": [1, 2]}),
            r"memory.retained_units\[0\]: 2 units, and costs.weight_units\[0\] has 1",
        ),
        (changed("memory", "limit", to=[1, 2, 3]), "memory.limit: 3 values for 2 ranks"),
        (changed("memory", "limit", to=2**53), r"memory.limit\[0\]: 9007199254740992000000 is not within 0"),
        (changed("links", "latency", to=[[0]]), "links.latency: not a 2 x 2 matrix"),
        (changed("links", "bytes", to=...), "links.bandwidth: given without links.bytes"),
        (changed("links", "bandwidth", to=0), r"links.bandwidth\[0\]\[1\]: 0.0 is not a positive number"),
    ],
)
def test_every_fault_names_its_key(data: Data, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Problem.from_dict(data)


def test_sums_beyond_the_arithmetic_are_refused() -> None:
    """Overflow is named before it happens (google/or-tools#4352)."""
    with pytest.raises(InputError, match=r"the sum of all durations is 3.6e\+16|above 2\^60"):
        Problem.from_dict(changed("costs", "forward", to=2**53) | {"batch": {"samples": 500}}).instance((1,) * 500)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nix.toml: cannot be read: No such file"):
        Problem.load(tmp_path / "nix.toml")
    (tmp_path / "a.toml").write_text("[pipeline]\nranks = = 2")
    with pytest.raises(InputError, match=r"a.toml: broken TOML: .*line 2"):
        Problem.load(tmp_path / "a.toml")
    (tmp_path / "a.json").write_text('{"pipeline": ')
    with pytest.raises(InputError, match=r"a.json: broken JSON: "):
        Problem.load(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"a.json: broken JSON: "):
        Problem.load(tmp_path / "a.json")
    (tmp_path / "a.json").write_bytes(b'{"name": "\xff"}')
    with pytest.raises(InputError, match=r"a.json: not UTF-8 text \(byte 10\)"):
        Problem.load(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(InputError, match=r"a.json: holds no table of keys"):
        Problem.load(tmp_path / "a.json")
    with pytest.raises(InputError, match="cannot be written: "):
        Problem.from_dict(FULL).save(tmp_path / "missing" / "p.json")


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4),
    st.lists(st.integers(-1, 5), max_size=3), st.dictionaries(st.sampled_from(["fixed", "x"]), st.integers(-1, 3)),
)  # fmt: skip


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(data, dict):
        found += [place for key, value in data.items() for place in places(value, (*path, key))]
    elif isinstance(data, list):
        found += [place for index, value in enumerate(data) for place in places(value, (*path, index))]
    return found


def edit(draw: Any, data: Any) -> Any:
    """Replace, drop, add or double something anywhere."""
    data = deepcopy(data)
    path = draw(st.sampled_from(places(data)))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    match draw(st.sampled_from(["replace", "drop", "add", "double"])):
        case "replace":
            inner[path[-1]] = draw(JUNK)
        case "drop":
            del inner[path[-1]]
        case "add" if isinstance(inner, dict):
            inner[draw(st.sampled_from(["nonsense", "limit", "weight_units", "bytes"]))] = draw(JUNK)
        case _ if isinstance(inner, list):
            inner.append(deepcopy(inner[path[-1]]))
    return data


KEY = re.compile(r"\b(top level|name|unit|pipeline|batch|costs|memory|links|ranks|samples|all bytes|all durations)\b")


@given(st.data())
def test_a_random_edit_loads_or_is_refused_by_key(data: st.DataObject) -> None:
    spoilt = data.draw(problem_data())
    for _ in range(data.draw(st.integers(1, 2))):
        spoilt = edit(data.draw, spoilt)
    message = "pipeline"
    try:
        problem = Problem.from_dict(spoilt)
        if len(problem.default_sizes()) < 1000:
            problem.instance(problem.default_sizes())
    except InputError as error:
        message = str(error)
    assert KEY.search(message), message


def test_affine_costs_may_stand_in_lists() -> None:
    problem = Problem.from_dict(changed("costs", "forward", to=[{"fixed": 1, "per_sample": 2}, 7]))
    assert problem.forward == (Affine(1, 2), 7)
