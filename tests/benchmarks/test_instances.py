"""The problem files hold the numbers of their sources, and every row of the benchmark has one."""

from __future__ import annotations

import pytest

from adaptpipe.solver.core.problem import price
from adaptpipe.solver.evaluate.simulate import simulate
from adaptpipe.solver.heuristics import one_f_one_b
from benchmarks.instances import load, names
from benchmarks.instances.make import HERE, instances
from benchmarks.sets import SETS

INSTANCES = tuple(instances())


def test_the_files_are_those_that_make_writes() -> None:
    assert sorted(instance.name for instance in INSTANCES) == list(names())
    for instance in INSTANCES:
        assert (HERE / f"{instance.name}.toml").read_text(encoding="utf-8") == instance.text(), instance.name


def test_every_row_has_a_file_and_stands_once() -> None:
    rows = [row for rows in SETS for row in rows.rows]
    assert len({row.key for row in rows}) == len(rows) == 25 + 9 + 7 + 6 + 40
    assert {row.instance for row in rows} <= set(names())
    assert {row.instance for row in SETS[1].rows} == {name for name in names() if name.endswith("-v")}


def test_table_5_memory_is_that_of_the_models_dimensions() -> None:
    problem = load("zb-table5-6.2b-p8-m24-2x")
    assert set(problem.memory.activation) == {34 * 4096 + 5 * 32 * 1024}
    assert set(problem.memory.retained) == {32 * 4096}
    assert set(problem.memory.limit) == {16 * 303104}


@pytest.mark.parametrize("times", [1, 2])
def test_one_times_is_what_1f1b_needs(times: int) -> None:
    problem = load("linear-1.5b-p4-m8-1x" if times == 1 else "linear-1.5b-p4-m8-2x")
    assert max(simulate(problem, one_f_one_b(problem)).peak_memory) * times == problem.memory.limit[0]


def test_halves_make_the_stage() -> None:
    """The halves are rounded up, and in order; the fold puts the first and the last on one rank."""
    whole, cut = load("linear-6.2b-uneven-p4-m8-1x"), load("v-6.2b-uneven-p4-m8-1x")
    for stages, halves in ((whole.forward, cut.forward), (whole.backward_input, cut.backward_input)):
        for stage, cost in enumerate(stages):
            pair = halves[2 * stage : 2 * stage + 2]
            assert len(set(pair)) == 1
            assert price(cost, 1) <= 2 * price(pair[0], 1) <= price(cost, 1) + 1
    assert [cut.placement.rank_of(s, 0, 8) for s in range(8)] == [0, 1, 2, 3, 3, 2, 1, 0]
    assert whole.memory.limit == cut.memory.limit == (4960_000_000,) * 4
