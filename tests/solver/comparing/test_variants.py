"""On which placements a method is compared, and why not on others."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from adaptpipe.solver import Problem
from adaptpipe.solver.comparing import placement_text, variants, where_text
from adaptpipe.solver.core.method import Method
from adaptpipe.solver.core.placement import explicit, place
from adaptpipe.solver.core.slices import Slices
from adaptpipe.solver.heuristics import gpipe
from adaptpipe.solver.methods import METHODS, find_method


def problem(ranks: int = 2, layers: int | list[int] = 1, **pipeline: Any) -> Problem:
    return Problem.from_dict(
        {
            "pipeline": {"ranks": ranks, "layers_per_stage": layers} | pipeline,
            "batch": {"samples": 4},
            "costs": {"forward": 60, "backward_input": 60, "backward_weight": 60},
        }
    )


def of(family: str) -> Method:
    return Method("X", (), "a schedule of any kind", gpipe, placement=family)


@pytest.mark.parametrize(
    ("family", "layers", "expected"),
    [
        ("linear", 6, {"X": "linear"}),
        ("any", 6, {"X": "linear"}),
        ("bidirectional", 6, {"X": "bidirectional"}),
        ("v", 6, {"X": "v"}),
        ("loop", 6, {"X v=2": "loop v=2", "X v=3": "loop v=3", "X v=6": "loop v=6"}),
        ("wave", 12, {"X w=1": "v", "X w=2": "wave v=4", "X w=3": "wave v=6", "X w=6": "wave v=12"}),
    ],
)
def test_every_placement_of_the_family(family: str, layers: int, expected: dict[str, str]) -> None:
    found = variants(problem(layers=layers), of(family))
    places = {}
    for each in found:
        assert each.problem is not None
        assert sum(each.problem.forward) == 120  # type: ignore[arg-type]
        placement = each.problem.placement
        places[each.label] = "v" if placement.stages == place("v", 2, 2).stages else placement_text(placement)
    assert places == expected


@pytest.mark.parametrize(
    ("family", "layers", "reason"),
    [
        ("loop", 1, r"X: needs several stages on each rank, and the 2 layers on 2 ranks .* so that there are 4"),
        ("wave", 3, r"X: needs several stages on each rank, and the 6 layers on 2 ranks .* so that there are 8"),
        ("loop", [1, 2], r"X: needs several stages on each rank, and the 3 layers on 2 ranks .* so that there are 4"),
        (
            "v",
            3,
            r"X: needs placement v: pipeline.layers_per_stage: the 2 stages have 6 layers .* multiple of 2 layers",
        ),
    ],
)
def test_why_a_placement_cannot_be_had(family: str, layers: int, reason: str) -> None:
    (found,) = variants(problem(layers=layers), of(family))
    assert found.problem is None
    assert re.search(reason, found.reason)


def test_what_the_reason_says_to_set_is_legal() -> None:
    for ranks in range(1, 5):
        for count in range(ranks, 13):
            own = explicit(ranks, [*range(ranks), *[0] * (count - ranks)])
            for family in ("loop", "wave"):
                (found, *_) = variants(problem(ranks, placement=list(own.stages[0])), of(family))
                if found.problem is None:
                    wanted = int(found.reason.rpartition(" ")[2])
                    assert wanted % ranks == 0
                    assert variants(problem(ranks, wanted // ranks), of(family))[0].problem is not None


def test_layers_that_make_no_linear_pipeline_stay_as_they_are() -> None:
    own = problem(placement=[0, 1, 0])
    assert [each.problem for each in variants(own, of("any"))] == [own]
    assert [each.problem for each in variants(own, of("linear"))] == [None]
    searched = variants(own, find_method("auto"))
    assert [(each.label, each.problem) for each in searched] == [("auto", own)]


def test_every_schedule_of_the_literature_is_compared_or_says_why() -> None:
    for method in METHODS:
        for layers in (1, 4):
            for each in variants(problem(4, layers), method):
                assert each.label.startswith(method.name)
                assert (each.problem is None) == bool(each.reason)


def test_slices_are_the_problems_or_two_and_four() -> None:
    sliced = Method("Y", (), "a schedule of slices", gpipe, placement="loop", sliced=True)
    whole, cut = problem(layers=2), replace(problem(layers=2), slices=Slices.equal(3))
    found = variants(whole, sliced)
    assert [each.label for each in found] == ["Y v=2 k=2", "Y v=2 k=4"]
    assert [each.problem and each.problem.slice_count for each in found] == [2, 4]
    assert [where_text(each.problem) for each in found if each.problem] == ["loop v=2 k=2", "loop v=2 k=4"]
    assert [each.label for each in variants(cut, sliced)] == ["Y v=2 k=3"]
    # Others are compared with whole micro-batches, also in two directions, where there are no slices.
    for family in ("linear", "bidirectional"):
        assert variants(cut, of(family)) == variants(whole, of(family))
    assert variants(cut, replace(of("linear"), sliced=None))[0].problem == cut
