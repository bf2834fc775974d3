"""ZB-V at mean costs: its authors' figures, and that it makes a schedule of every problem."""

from __future__ import annotations

import pytest
from hypothesis import given

from adaptpipe.solver import InputError, Problem, check, simulate
from adaptpipe.solver.heuristics import costed_zb_v
from benchmarks.instances import Published, load, published
from tests.strategies import Data, problem_data

CELLS = [cell for cell in published() if cell.method == "ZB-V" and load(cell.instance).placement.ranks < 32]


@pytest.mark.parametrize("cell", CELLS[:5], ids=lambda cell: cell.instance)
def test_it_gives_the_published_cell_within_the_published_memory(cell: Published) -> None:
    problem = load(cell.instance)
    schedule = costed_zb_v(problem)
    assert check(problem, schedule) == (), "the limit is 2p activations of one stage"
    assert round(simulate(problem, schedule).span_bubble, 4) == cell.span_bubble


@given(problem_data(families=("v",), limited=False, sizes=False, units=False))
def test_every_problem_gets_a_valid_schedule(data: Data) -> None:
    problem = Problem.from_dict(data)
    assert check(problem, costed_zb_v(problem)) == ()


def test_with_equal_costs_and_free_messages_there_is_no_bubble() -> None:
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 4, "placement": "v", "stages_per_rank": 2},
            "batch": {"samples": 16},
            "costs": {"forward": 10, "backward_input": 10, "backward_weight": 10},
            "memory": {"activation": 1, "retained": 1, "limit": 8},
        }
    )
    schedule = costed_zb_v(problem)
    assert check(problem, schedule) == ()
    assert simulate(problem, schedule).span_bubble == 0


def test_other_placements_are_refused() -> None:
    data = {"pipeline": {"ranks": 2}, "batch": {"samples": 2}}
    problem = Problem.from_dict({**data, "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1}})
    with pytest.raises(InputError, match="ZB-V needs placement 'v'"):
        costed_zb_v(problem)
