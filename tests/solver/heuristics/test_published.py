"""Published bubble rates come out of the simulator."""

from __future__ import annotations

import pytest

from adaptpipe.solver.core.errors import InputError
from adaptpipe.solver.evaluate.check import check
from adaptpipe.solver.evaluate.simulate import simulate
from adaptpipe.solver.greedy import greedy
from adaptpipe.solver.heuristics import zb_h1
from adaptpipe.solver.methods import find_method
from benchmarks.instances import Published, load, names, published


def cells(*methods: str) -> list[Published]:
    return [cell for cell in published() if cell.method in methods]


def test_every_instance_of_a_table_has_published_values() -> None:
    of_tables = {name for name in names() if name.startswith("zb-table") and not name.endswith("-2x")}
    assert {cell.instance for cell in published()} == of_tables
    assert len(cells("1F1B", "ZB-H1", "ZB-H2")) == 63
    assert len(cells("ZB-V")) == 9
    with pytest.raises(InputError, match="cannot be read"):
        load("zb-table4")


@pytest.mark.parametrize("cell", cells("1F1B", "ZB-H1", "ZB-H2"), ids=lambda cell: f"{cell.instance}-{cell.method}")
def test_hand_made_linear_schedules_give_the_published_cell(cell: Published) -> None:
    problem, build = load(cell.instance), find_method(cell.method).build
    assert build is not None
    assert round(simulate(problem, build(problem, None)).span_bubble, 4) == cell.span_bubble


@pytest.mark.parametrize("cell", cells("ZB-V"), ids=lambda cell: cell.instance)
def test_zb_v_is_near_the_published_cell_or_better_within_the_same_memory(cell: Published) -> None:
    problem, build = load(cell.instance), find_method(cell.method).build
    assert build is not None
    schedule = build(problem, None)
    assert check(problem, schedule) == (), "the limit is 2p activations of one stage"
    assert simulate(problem, schedule).span_bubble <= cell.span_bubble + 0.0016


@pytest.mark.parametrize("cell", cells("ZB-1p"), ids=lambda cell: cell.instance)
def test_greedy_is_no_worse_than_the_published_search_in_the_same_memory(cell: Published) -> None:
    problem = load(cell.instance)
    work = max(simulate(problem, zb_h1(problem)).work)
    schedule = greedy(problem, objective="span", target=int(work / (1 - cell.span_bubble - 5e-5)))
    assert schedule is not None
    assert check(problem, schedule) == ()
    assert simulate(problem, schedule).span_bubble <= cell.span_bubble + 5e-5
