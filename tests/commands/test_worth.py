"""What `run` says of the sizes that it chose."""

from __future__ import annotations

from adaptpipe.commands.worth import lines, worth
from adaptpipe.solver import Problem, solve
from adaptpipe.solver.core.granularity import NONE

PROBLEM = Problem.from_dict(
    {
        "pipeline": {"ranks": 2},
        "batch": {"samples": 6, "microbatch_sizes": [1, 2]},
        "costs": {
            "forward": {"fixed": 2, "per_sample": 4},
            "backward_input": {"fixed": 2, "per_sample": 4},
            "backward": {"fixed": 3, "per_sample": 6},
            "backward_weight": {"fixed": 2, "per_sample": 4},
        },
    }
)


def test_every_figure_is_that_of_a_schedule() -> None:
    result = solve(PROBLEM, time_limit=3)
    found = worth(PROBLEM, result, 4)
    assert found is not None
    coarse = solve(PROBLEM, time_limit=3, granularity=NONE)
    assert (found.chosen, found.order) == (result.value, coarse.value)
    assert found.chosen < found.order
    assert [name for name, _ in found.each] == ["fused backwards", "sizes"]
    assert all(found.chosen <= value <= found.order for _, value in found.each)
    text = " ".join(lines(result, found))
    assert f"order alone {found.order:,}, as chosen {found.chosen:,} ({found.chosen / found.order - 1:+.1%})" in text
    size = sorted(result.schedule.sizes)[len(result.schedule.sizes) // 2]
    fixed = f"{2 / (2 + 4 * size):.0%} of F and I is fixed at size {size}"
    assert f"a fused backward takes 75.0% of I + W, {fixed}" in text


def test_what_cannot_be_chosen_is_not_named() -> None:
    data = {
        "pipeline": {"ranks": 2},
        "batch": {"samples": 4},
        "costs": dict.fromkeys(("forward", "backward_input", "backward_weight"), 3),
    }
    problem = Problem.from_dict(data)
    result = solve(problem, time_limit=3)
    found = worth(problem, result, 2)
    assert found is not None
    assert found.each == ()
    assert "no other choice" in " ".join(lines(result, found))
