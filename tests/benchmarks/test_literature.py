"""The solver beside the schedules of the literature, at equal memory."""

from __future__ import annotations

from benchmarks.instances import load
from benchmarks.literature import Level, handmade, levels, text


def test_the_solver_is_never_worse_at_any_level_of_memory() -> None:
    problem = load("v-1.5b-p4-m8-0.75x")
    found = levels(problem, 0.3)
    limits = [level.limit for level in found]
    assert limits == sorted(set(limits))
    assert {max(timeline.peak_memory) for timeline in handmade(problem).values()} <= set(limits)
    assert problem.memory.limit[0] in limits
    assert not any(level.worse for level in found)
    assert f"| v | {len(found)} | 0 |" in text([("v", found)], 0.3)


def test_a_worse_level_is_counted() -> None:
    assert Level(1, 10, "1F1B", 11, 9).worse
    assert Level(1, 10, "1F1B", None, 9).worse
    assert not Level(1, None, "", 11, 9).worse
    assert "| x | 1 | 1 | 0 | -10.00% |" in text([("x", [Level(1, 10, "1F1B", 11, 9)])], 1)
