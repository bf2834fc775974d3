"""How many draws of wrong costs there is time for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from adaptpipe.solver import Measurement, Part, Profile
from adaptpipe.solver.core.cluster import uniform_cluster
from adaptpipe.solver.planning.judging import jury
from adaptpipe.solver.planning.judging.jury import Jury
from adaptpipe.solver.planning.plan import Plan
from adaptpipe.solver.planning.rivals.today import rivals, todays
from adaptpipe.solver.planning.workload import Workload

PART = Part("layer", 4, (Measurement(1, 1e-3, 1e-3, 1e-3, 2e-3, 3, 2, 9),))
WORKLOAD = Workload("four", Profile("device", (PART,) * 4, 0.0), uniform_cluster("two", 2, None, 1e-5, 1e9), 4, (1,))


@pytest.mark.parametrize(("pace", "draws", "sources"), [(0.001, 40, 5), (0.02, 17, 5), (0.051, 24, 1), (0.5, 5, 1)])
def test_fewer_draws_where_they_take_long(
    monkeypatch: pytest.MonkeyPatch, pace: float, draws: int, sources: int
) -> None:
    """A plan of 50,000 ops was judged for five minutes after a search of ten seconds."""
    now = 0.0

    def ranked(plans: list[Plan], _: float, count: int) -> None:
        nonlocal now
        now += count * pace

    monkeypatch.setattr(jury, "ranked", ranked)
    monkeypatch.setattr(jury, "time", SimpleNamespace(monotonic=lambda: now))
    chosen = Jury.within(todays(WORKLOAD)[0].plan(WORKLOAD), 15)
    assert (chosen.draws, len(chosen.sources)) == (draws, sources)
    assert chosen.takes_s <= 15 or draws == 5


def test_what_was_not_drawn_is_not_told() -> None:
    best, *others = todays(WORKLOAD)
    found = Jury(2, jury.TOGETHER, 0.0).judged(best.plan(WORKLOAD), rivals(others), 0)
    assert {(gain.source, gain.error) for gain in found.gains} == {("all", 0.0), ("all", 0.1), ("all", 0.2)}
