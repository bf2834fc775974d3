"""The same layers on another placement: nothing is lost, and what comes back is what went."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptpipe.solver import Affine, InputError, Placement, Problem, explicit, place, simulate
from adaptpipe.solver.core.problem import Cost, price
from adaptpipe.solver.core.regroup import regroup
from adaptpipe.solver.heuristics import interleaved, one_f_one_b
from tests.strategies import problems


def sums(problem: Problem) -> dict[str, Any]:
    """Everything of the layers that must stay, added up; at every size."""

    def add(costs: tuple[Cost, ...]) -> list[int]:
        return [sum(price(cost, size) for cost in costs) for size in (0, *problem.sizes)]

    memory = problem.memory
    return {
        "layers": sum(problem.layers or (1,) * problem.stages),
        "forward": add(problem.forward),
        "backward_input": add(problem.backward_input),
        "backward": problem.backward and add(problem.backward),
        "weight": add(tuple(unit for units in problem.weight_units for unit in units)),
        "activation": add(memory.activation),
        "retained": add(memory.retained),
        "freed": memory.retained_units and add(tuple(unit for units in memory.retained_units for unit in units)),
        "static": sum(memory.static),
        "weights": sum(memory.weights),
    }


@st.composite
def layered(draw: st.DrawFn) -> Problem:
    """Problems of one direction with layers in their stages."""
    problem = draw(problems(families=("linear", "loop", "v", "wave", "explicit")))
    count = st.integers(1, 4)
    layers = draw(st.lists(count, min_size=problem.stages, max_size=problem.stages))
    problem = replace(problem, layers=tuple(layers))
    if draw(st.booleans()):
        static = tuple(draw(st.integers(0, 99)) for _ in range(problem.stages))
        problem = replace(
            problem,
            memory=replace(
                problem.memory,
                retained=tuple(units[0] if len(units) == 1 else Affine(3, 5) for units in problem.weight_units),
                static=static,
                weights=tuple(draw(st.integers(0, each)) for each in static),
            ),
        )
    return problem


@given(st.data())
def test_all_that_the_layers_have_stays(data: st.DataObject) -> None:
    problem = data.draw(layered())
    count = sum(problem.layers)
    stages = data.draw(st.sampled_from([s for s in range(problem.ranks, count + 1) if count % s == 0] or [0]))
    if not stages:
        return
    target = explicit(problem.ranks, [*range(problem.ranks), *[0] * (stages - problem.ranks)])
    found = regroup(problem, target)
    assert sums(found) == sums(problem)
    assert found.placement == target
    assert (found.memory.limit, found.memory.reserve) == (problem.memory.limit, problem.memory.reserve)


@given(layered())
def test_to_the_same_number_of_stages_only_the_ranks_change(problem: Problem) -> None:
    assert regroup(problem, problem.placement) == problem
    turned = Placement(problem.ranks, tuple(tuple(reversed(row)) for row in problem.placement.stages))
    assert regroup(problem, turned) == replace(problem, placement=turned)


@pytest.mark.parametrize("family", ["v", "loop", "wave"])
@pytest.mark.parametrize("backward", [None, [13, 17, 19]])
@pytest.mark.parametrize("units", [1, 4])
def test_there_and_back(family: str, backward: list[int] | None, units: int) -> None:
    """Cutting and joining undo each other, where units end with layers, or every W is whole, which it stays."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 3, "layers_per_stage": 4},
            "batch": {"samples": 4},
            "costs": {
                "forward": [7, 9, 11],
                "backward_input": [{"fixed": 3, "per_sample": 7}, 5, 9],
                "weight_units": [[3, 5, 7, 9][:units], [1, 2, 3, 5][:units], [11, 7, 5, 2][:units]],
                "backward": backward,
                "overhead": [1, 2, 3],
            },
            "memory": {"activation": [5, 7, 9], "retained": [3, 2, 1], "static": [5, 6, 7], "limit": 99},
            "links": {"bandwidth": 1e9, "bytes": [5, 6, 7]},
        }
    )
    finer = regroup(problem, place(family, 3, 2))
    assert finer.stages == 6
    assert finer.layers == (2,) * 6
    assert regroup(finer, problem.placement) == problem


def test_shares_units_and_messages() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2, "layers_per_stage": [3, 3]},
            "batch": {"samples": 2},
            "costs": {
                "forward": [10, 20],
                "backward_input": 6,
                "weight_units": [[1, 2, 4], [6, 4]],
                "overhead": [1, 2],
            },
            "memory": {"activation": 7, "retained_units": [[3, 2, 1], [2, 2]]},
            "links": {"bandwidth": 1e9, "bytes": [5, 6]},
        }
    )
    found = regroup(problem, place("loop", 2, 3))
    assert found.forward == (3, 3, 4, 6, 7, 7)
    # Units come last layer first: the first one is the last layer's. Of two units in three layers, the middle layer has
    # a part of each.
    assert found.weight_units == ((4,), (2,), (1,), (3,), (2, 1), (4,))
    assert found.links.message == (5, 5, 5, 6, 6, 6)
    assert found.overhead == (1, 1, 1, 2, 2, 2)
    joined = regroup(replace(problem, layers=(1, 1)), explicit(2, [0, 1]))
    assert joined.weight_units == problem.weight_units


def test_layers_that_do_not_divide_are_refused() -> None:
    data: dict[str, Any] = {
        "pipeline": {"ranks": 4, "layers_per_stage": 3},
        "batch": {"samples": 4},
        "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
    }
    problem = Problem.from_dict(data)
    with pytest.raises(
        InputError,
        match=r"pipeline.layers_per_stage: the 4 stages have 12 layers in all, which do not make 8 stages of equally "
        r"many; they would with a multiple of 2 layers in each of the 4",
    ):
        regroup(problem, place("v", 4, 2))
    data["pipeline"]["layers_per_stage"] = 2
    assert regroup(Problem.from_dict(data), place("v", 4, 2)).stages == 8
    with pytest.raises(InputError, match=r"pipeline.ranks: the placement has 2 ranks, and the problem 4; layers move"):
        regroup(problem, place("linear", 2))


def test_layers_in_files() -> None:
    data: dict[str, Any] = {
        "pipeline": {"ranks": 2, "layers_per_stage": [4, 2]},
        "batch": {"samples": 4},
        "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
    }
    assert Problem.from_dict(data).layers == (4, 2)
    data["pipeline"]["layers_per_stage"] = 1
    problem = Problem.from_dict(data)
    assert problem.layers == ()
    for wrong, message in (
        ([4], "pipeline.layers_per_stage: 1 values, 2 are needed"),
        ([], "pipeline.layers_per_stage: 0 values, 2 are needed"),
        (0, "pipeline.layers_per_stage: expected .* >= 1"),
        (1025, "pipeline.layers_per_stage: expected .* <= 1024"),
    ):
        data["pipeline"]["layers_per_stage"] = wrong
        with pytest.raises(InputError, match=message):
            Problem.from_dict(data)
    with pytest.raises(InputError, match=r"pipeline.layers_per_stage\[1\]: 0 is below 1; a stage has a layer or more"):
        replace(problem, layers=(1, 0))


def test_interleaving_gains_what_its_formula_says() -> None:
    """At equal work: 1F1B's bubble is divided by the number of stages per rank."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 4, "layers_per_stage": 6},
            "batch": {"samples": 8},
            "costs": {"forward": 60, "backward_input": 60, "backward_weight": 60},
        }
    )
    work = 8 * 180
    assert simulate(problem, one_f_one_b(problem)).makespan == work + 3 * 180
    for v in (2, 3, 6):
        finer = regroup(problem, place("loop", 4, v))
        timeline = simulate(finer, interleaved(finer))
        assert timeline.makespan == work + 3 * 180 // v
        assert set(timeline.work) == {work}
