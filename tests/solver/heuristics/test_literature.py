"""What holds for every schedule of the literature, whatever the shape and the costs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver.core.errors import InputError
from adaptpipe.solver.core.method import Method
from adaptpipe.solver.core.problem import Problem
from adaptpipe.solver.evaluate.check import check
from adaptpipe.solver.heuristics import LITERATURE

METHODS = pytest.mark.parametrize("method", LITERATURE, ids=lambda method: method.name)
FAMILIES = {"linear": (1,), "loop": (1, 2, 3), "v": (2,), "wave": (2, 4, 6), "bidirectional": (1,)}
"""Stages per rank that are tried in each family of placements."""


@st.composite
def shapes(draw: st.DrawFn, method: Method) -> Problem:
    """Problems on a method's own placement, with random numbers of ranks and micro-batches and random costs."""
    family = draw(st.sampled_from([*FAMILIES][:4])) if method.placement == "any" else method.placement
    ranks, per_rank = draw(st.integers(1, 8)), draw(st.sampled_from(FAMILIES[family]))
    stages = ranks * per_rank
    ticks = st.lists(st.integers(0, 30), min_size=stages, max_size=stages)
    batch: dict[str, Any] = {"samples": draw(st.integers(1, 4 * ranks))}
    if method.sliced:
        batch["slices"] = draw(st.integers(2, 4))
    return Problem.from_dict(
        {
            "pipeline": {"ranks": ranks, "placement": family, "stages_per_rank": per_rank},
            "batch": batch,
            "costs": {kind: draw(ticks) for kind in ("forward", "backward_input", "backward_weight")},
            "memory": {"activation": draw(ticks), "retained": draw(ticks)},
            "links": {"latency": draw(st.integers(0, 20))},
        }
    )


@METHODS
@given(data=st.data())
@settings(max_examples=40)
def test_each_is_valid_or_names_its_rule(method: Method, data: st.DataObject) -> None:
    """Illegal shapes hung, were wrong, or met a bare assert (pytorch/torchtitan#775, pytorch PR 144702)."""
    problem = data.draw(shapes(method))
    assert method.build is not None
    try:
        schedule = method.build(problem, None)
    except InputError as error:
        refusal = str(error)
    else:
        assert check(problem, schedule) == ()
        return
    assert not method.shapes.startswith("every p"), f"{problem}: {refusal}"
    assert re.search(rf"{re.escape(method.name)} needs .+, and .+; nearest: \S", refusal), refusal


@METHODS
def test_each_refuses_other_placements_with_a_remedy(method: Method) -> None:
    for family, (*_, per_rank) in FAMILIES.items():
        if family == method.placement or (method.placement == "any" and family != "bidirectional"):
            continue
        if (method.placement, family) in {("loop", "linear"), ("wave", "v")}:
            continue  # a loop with one stage on each rank; a single wave
        problem = Problem.from_dict(
            {
                "pipeline": {"ranks": 4, "placement": family, "stages_per_rank": per_rank},
                "batch": {"samples": 16},
                "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
            }
        )
        assert method.build is not None
        with pytest.raises(InputError, match=rf"pipeline\.placement: {re.escape(method.name)} needs .*placement"):
            method.build(problem, None)


@METHODS
def test_each_is_described(method: Method) -> None:
    assert method.placement in (*FAMILIES, "any")
    assert all((method.description, method.shapes, method.bubble, method.memory, method.source))
    assert method.build is not None
    paper = re.findall(r"arXiv \d{4}\.\d{5}", method.source)
    assert all(number in (method.build.__doc__ or "") for number in paper)
