"""What `run` says of the sizes that it chose."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from adaptpipe.commands.worth import choices, lines, worth
from adaptpipe.solver import Granularity, Problem, Result, Schedule, simulate
from adaptpipe.solver.core.granularity import ALL
from adaptpipe.solver.heuristics.one_by_one import one_by_one

SHAPE: dict[str, object] = {"pipeline": {"ranks": 2}, "batch": {"samples": 6, "microbatch_sizes": [1, 2]}}
COSTS: dict[str, object] = {
    "forward": {"fixed": 2, "per_sample": 4},
    "backward_input": {"fixed": 2, "per_sample": 4},
    "backward": {"fixed": 3, "per_sample": 6},
    "backward_weight": {"fixed": 2, "per_sample": 4},
}
PROBLEM = Problem.from_dict(SHAPE | {"costs": COSTS})


def answer(granularity: Granularity = ALL, sizes: tuple[int, ...] = (1, 1, 2, 2), problem: Problem = PROBLEM) -> Result:
    """One micro-batch after the other, fused: 30 ticks for each of size 1, 50 for each of size 2."""
    schedule: Schedule = one_by_one(problem, sizes)
    return Result("auto", "makespan", simulate(problem, schedule), 0, 0.0, granularity=granularity)


def test_every_figure_is_that_of_a_search() -> None:
    values = {"none": (2, 2, 2), "fused": (1, 1, 2, 2), "sizes": (1, 1, 1, 1, 1, 1)}
    asked = []

    def search(granularity: Granularity) -> Result:
        asked.append(str(granularity))
        return answer(granularity, values[str(granularity)])

    found = worth(PROBLEM, answer(), search)
    assert found is not None
    assert asked == ["none", "fused", "sizes"]
    # None by itself is worse than the order alone.
    assert (found.order, found.chosen, found.each) == (150, 160, {"fused": 150, "sizes": 150})
    text = " ".join(lines(answer(), found))
    assert "4 micro-batches, of size 1 (2 times), 2 (2 times); 100% of the backwards fused, 0% of the weight" in text
    assert "order alone 150, as chosen 160 (+6.7%); by itself: fused backwards 150 to 150 (+0.0%)" in text
    assert "because a fused backward takes 75.0% of I + W, 20% of F and I is fixed at size 2" in text


@pytest.mark.parametrize(
    ("granularity", "more", "kinds"),
    [
        ("all", {}, ["fused", "sizes"]),
        ("fused,units", {}, ["fused"]),
        ("all", {"weight_units": [{"fixed": 1, "per_sample": 2}] * 2}, ["fused", "units", "sizes"]),
        ("none", {}, []),
        ("all", {"backward_weight": COSTS["backward_weight"], "backward": {"fixed": 4, "per_sample": 8}}, ["sizes"]),
    ],
)
def test_what_cannot_be_chosen_is_not_asked(granularity: str, more: Mapping[str, object], kinds: list[str]) -> None:
    costs = {key: cost for key, cost in COSTS.items() if key != "backward_weight" or not more}
    problem = Problem.from_dict(SHAPE | {"costs": costs | dict(more)})
    assert choices(problem, Granularity.parse(granularity)) == kinds


def test_the_only_choice_is_what_the_schedule_did() -> None:
    found = worth(PROBLEM, answer(Granularity.parse("fused")), lambda granularity: answer(granularity, (1,) * 6))
    assert found is not None
    assert found.each == {"fused": 160}
    assert found.order == 180


def test_without_a_schedule_by_order_alone_nothing_is_said() -> None:
    nothing = Result("auto", "makespan", None, 0, 0.0)
    assert worth(PROBLEM, answer(), lambda _: nothing) is None
    assert "worth" not in " ".join(lines(answer(), None))
