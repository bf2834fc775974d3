"""Methods side by side: equal work, true bounds, and a solver that is never worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import Comparison, InputError, Problem, Timeline, check, compare, place, simulate, solve
from adaptpipe.solver.bounds import lower_bound
from adaptpipe.solver.comparing import Row, frontier, pareto
from adaptpipe.solver.comparing.front import MOST_LEVELS
from adaptpipe.solver.comparing.notes import notes
from adaptpipe.solver.comparing.row import without_limits
from adaptpipe.solver.core.result import Result
from adaptpipe.solver.core.slices import Slices
from adaptpipe.solver.core.updates import Updates
from adaptpipe.solver.evaluate.limits import over_limit
from adaptpipe.solver.heuristics import one_f_one_b
from adaptpipe.solver.methods import find_method
from tests.strategies import problems

MEMORY = {"unit": "MB", "activation": 40, "retained": 20, "limit": 160}


def model(memory: dict[str, Any] = MEMORY, layers: int = 4, samples: int = 8, **more: Any) -> Problem:
    costs = {"forward": 120, "backward_input": 120, "backward_weight": 80} | more
    return Problem.from_dict(
        {
            "name": "model",
            "pipeline": {"ranks": 4, "layers_per_stage": layers},
            "batch": {"samples": samples},
            "costs": costs,
            "memory": memory,
            "links": {"latency": 1, "bandwidth": 1e9, "bytes": 3000},
        }
    )


def by_label(found: Comparison) -> dict[str, Row]:
    return {row.label: row for row in found.rows}


def test_each_method_on_its_own_placement_at_equal_work() -> None:
    rows = by_label(compare(model(), ["gpipe", "1f1b", "interleaved", "zbv", "chimera"]))
    assert list(rows) == ["GPipe", "1F1B", "Interleaved1F1B v=2", "Interleaved1F1B v=4", "Chimera", "ZB-V"]
    for row in rows.values():
        assert row.timeline is not None
        assert sum(row.timeline.work) == 4 * 8 * 320
    places = {label: row.placement for label, row in rows.items()}
    assert places["Interleaved1F1B v=4"] == "loop v=4"
    assert places["ZB-V"] == "v"
    assert rows["Chimera"].copies == 2
    assert rows["1F1B"].copies == 1
    figures = rows["Interleaved1F1B v=2"].data()
    # Each of 8 micro-batches passes 7 boundaries, there and back; one within a stage has that stage's bytes.
    assert (figures["messages"], figures["message_bytes"]) == (112, 112 * 3000)


def test_a_schedule_over_the_limit_is_shown_with_what_it_needs() -> None:
    found = compare(model(), ["gpipe", "1f1b"])
    rows = by_label(found)
    assert not rows["GPipe"].fits
    assert rows["GPipe"].memory == 8 * 40 * 10**6
    assert rows["GPipe"].value == 8 * 320 + 3 * 320 + 6 * 4
    assert "it needs 320 MB on rank 0, and the limit is 160 MB" in rows["GPipe"].result.reason
    assert found.gap(rows["GPipe"]) is None
    assert rows["GPipe"].gap is not None
    # Its own bound is one without limits: lower than what is proven within them.
    assert rows["GPipe"].bound <= rows["1F1B"].bound


def test_no_schedule_at_all_within_the_limit() -> None:
    tight = model(MEMORY | {"static": 200})
    found = compare(tight, ["1f1b"])
    assert [(row.fits, row.memory) for row in found.rows] == [(False, 360 * 10**6)]
    assert found.bound() == found.rows[0].bound > 0


def test_the_bound_over_placements_counts_those_on_which_only_rows_over_the_limit_are_known() -> None:
    """Without that it would be the bound of 1F1B's placement, and a search might find less on the loop."""
    found = compare(model(layers=8), ["1f1b", "interleaved"])
    rows = by_label(found)
    over = [row.bound for row in rows.values() if not row.fits]
    assert over
    assert found.bound() == min(over) < rows["1F1B"].bound


def test_what_is_proven_for_chosen_sizes_is_no_bound_over_placements() -> None:
    found = compare(model(), ["1f1b"])
    (row,) = found.rows
    raised = row.bound + 1
    of_sizes = replace(row, bound=raised, result=replace(row.result, bound=raised, proven_for="sizes"))
    assert replace(found, rows=(of_sizes,)).bound() == lower_bound(found.problem) == row.bound


@settings(max_examples=25)
@given(st.data())
def test_bounds_hold_for_the_placements_they_are_of(data: st.DataObject) -> None:
    problem = data.draw(problems(max_ranks=3, max_samples=4, families=("linear", "v", "loop")))
    problem = replace(problem, layers=(2,) * problem.stages)
    found = compare(problem, ["gpipe", "1f1b", "interleaved", "zbh1", "zbv", "chimera"])
    for row in found.rows:
        if row.timeline is None:
            assert row.result.reason
            continue
        assert row.value is not None
        assert row.bound <= row.value
        placed = row.timeline.problem if row.fits else without_limits(row.timeline.problem)
        assert check(placed, row.timeline.schedule) == ()
        assert row.fits == (not over_limit(row.timeline))
        if row.fits:
            assert found.bound() <= row.bound


@pytest.mark.timeout(300)
@settings(max_examples=12)
@given(st.data())
def test_the_solver_is_never_worse_than_a_row_that_fits(data: st.DataObject) -> None:
    """On any placement, at every level of memory."""
    problem = data.draw(problems(max_ranks=3, max_samples=4, families=("linear", "v"), sizes=False))
    problem = replace(problem, layers=(2,) * problem.stages)
    objective: Any = data.draw(st.sampled_from(["makespan", "span"]))
    found = compare(
        problem, ["auto", "1f1b", "interleaved", "zbh1", "zbh2", "zbv"], objective=objective, time_limit=0.2
    )
    assert any(level.own for level in found.levels)
    for level in found.levels:
        fitting = [
            row.value
            for row in found.rows
            if row.timeline is not None
            and row.value is not None
            and all(
                top is None or peak <= top for peak, top in zip(row.timeline.peak_memory, level.limits, strict=True)
            )
        ]
        if fitting:
            assert level.best.value is not None
            assert level.best.value <= min(fitting)
        for result in level.results:
            if result.timeline is not None:
                assert check(result.timeline.problem, result.schedule) == ()
                assert result.timeline.problem.memory.limit == level.limits
                assert result.bound <= result.timeline.value(objective)


def test_what_less_memory_gives_is_not_lost_with_more() -> None:
    found = compare(model(), ["auto", "1f1b", "interleaved", "zbh2", "zbv", "vhalf"], time_limit=3)
    values = [level.best.value for level in found.levels]
    assert None not in values
    assert values == sorted(values, key=lambda value: -(value or 0))
    assert [level.own for level in found.levels].count(True) == 1
    assert len(found.levels) <= MOST_LEVELS + 1
    front = found.data()["front"]
    assert [each["makespan"] for each in front] == values
    labels = [row.label for row in found.rows]
    assert labels[0].startswith("auto on ")
    assert len(labels) == len(set(labels))


def test_levels_are_where_the_heuristics_are() -> None:
    found = compare(model(MEMORY | {"limit": 10**6}), ["1f1b", "zbh1", "zbh2"])
    levels = frontier(found.problem, found.rows, time_limit=0.5)
    rooms = {level.limits[0] for level in levels}
    assert rooms == {row.memory for row in found.rows} | {10**12}
    free = model({"activation": 1})
    without = frontier(free, compare(free, ["1f1b", "zbh2"]).rows, time_limit=0.5)
    assert [level.limits for level in without] == [(4,) * 4, (None,) * 4]


def test_one_proof_serves_all_schedules_of_a_problem() -> None:
    found = compare(model(), ["auto", "1f1b", "zbv"], time_limit=2)
    for row in found.rows:
        same = [
            other.bound
            for other in found.rows
            if row.timeline is not None
            and other.timeline is not None
            and other.timeline.problem == row.timeline.problem
        ]
        assert row.bound == max(same)


def test_notes_name_the_rows_that_are_not_comparable() -> None:
    every = ["gpipe", "1f1b", "zbh1", "zbh2", "chimera"]
    notes = compare(model(), every).notes
    assert any(note.startswith("Chimera: parameters held twice") and "static is 0" in note for note in notes)
    assert any(note.startswith("ZB-H2: ranks begin and end at different times") for note in notes)
    assert not any("fused" in note for note in notes)
    assert not any("sizes differ" in note for note in notes)
    counted = compare(model(MEMORY | {"static": 1}), every).notes
    assert not any("static is 0" in note for note in counted)
    fused = compare(model(backward=150), every).notes
    assert any(note.startswith("GPipe, 1F1B, Chimera: fused backwards are priced apart") for note in fused)
    assert not any("fused" in note for note in compare(model(backward=150), ["zbh1"]).notes)


def test_micro_batch_sizes_that_differ_are_noted() -> None:
    cost, data = {"fixed": 30, "per_sample": 10}, {"activation": {"per_sample": 10}}

    def sized(limit: int) -> Comparison:
        problem = {
            "pipeline": {"ranks": 2, "layers_per_stage": 2},
            "batch": {"samples": 8, "microbatch_sizes": [1, 2, 3, 4]},
            "costs": dict.fromkeys(("forward", "backward_input", "backward_weight"), cost),
            "memory": data | {"limit": limit},
        }
        return compare(Problem.from_dict(problem), ["1f1b", "interleaved"])

    first = sized(30)
    assert [row.timeline and row.timeline.schedule.microbatches for row in first.rows] == [7, 8]
    assert "Micro-batch sizes differ between rows: compare makespans, not bubbles." in first.notes
    # What a schedule over the limit needs is told for the smallest micro-batches: with larger ones it needs more.
    second = sized(24)
    assert [(row.fits, row.memory) for row in second.rows] == [(True, 20), (False, 25)]
    assert second.notes == ()


def test_the_common_bubble_is_a_rows_own_where_ranks_have_the_same_work() -> None:
    found = compare(model(), ["1f1b", "zbv", "interleaved"])
    for row in found.rows:
        assert row.timeline is not None
        assert row.value is not None
        assert found.bubble(row.value) == pytest.approx(row.timeline.bubble)
    assert found.bubble(0) == 0


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(InputError, match="methods: the list is empty; name some, or leave it out for all"):
        compare(model(), [])
    with pytest.raises(InputError, match="method: 'best' is none of auto"):
        compare(model(), ["best"])
    with pytest.raises(InputError, match="time limit: 0 is not a positive number of seconds"):
        compare(model(), ["1f1b"], time_limit=0)
    with pytest.raises(InputError, match="workers: 0 is below 1"):
        compare(model(), ["auto"], workers=0)


def test_other_searches_share_the_time_on_the_problems_own_placement() -> None:
    found = compare(model(layers=1, samples=4), ["greedy", "anneal", "zbv"], time_limit=1)
    assert [row.label for row in found.rows] == ["anneal", "greedy", "ZB-V"]
    assert found.rows[0].placement == "linear"
    assert found.rows[2].timeline is None
    assert "they would with a multiple of 2 layers" in found.rows[2].result.reason


def test_slices_have_a_front_of_their_own() -> None:
    for slices in (None, Slices.equal(2)):
        found = compare(replace(model(), slices=slices), ["auto", "1f1b", "zbv", "seq1f1b"], time_limit=1)
        kinds = [level.best.timeline is not None and level.best.timeline.schedule.slices > 1 for level in found.levels]
        assert kinds == sorted(kinds)
        assert set(kinds) == {False, True}
        assert [level.own for level in found.levels].count(True) == 2
        for kind in (False, True):
            of_kind = [row for row in found.rows if row.fits and (row.data()["slices"] != 1) == kind]
            (own,) = (level for level, each in zip(found.levels, kinds, strict=True) if level.own and each == kind)
            assert own.best.value == min(row.value for row in of_kind if row.value is not None)
            assert found.bound(kind) == min(row.bound for row in of_kind)


def test_pareto_is_what_no_other_point_beats() -> None:
    assert pareto([]) == []
    assert pareto([(1, 5), (1, 4), (2, 4), (3, 3)]) == [(1, 4), (3, 3)]


def test_a_row_is_simulated_on_the_problem_it_names() -> None:
    (row,) = compare(model(), ["zbv"]).rows
    assert row.timeline is not None
    assert row.timeline.schedule.placement.stages == place("v", 4, 2).stages
    assert simulate(row.timeline.problem, row.timeline.schedule).makespan == row.value


def test_a_search_that_does_not_know_slices_says_so() -> None:
    sliced = replace(model(), slices=Slices.equal(2))
    found = compare(sliced, ["ilp", "1f1b"])
    assert [(row.label, row.fits) for row in found.rows] == [("ilp", False), ("1F1B", True)]
    assert "batch.slices: ilp runs whole micro-batches" in found.rows[0].result.reason


def stale(problem: Problem, updates: Updates) -> Row:
    """1F1B's order without a flush."""
    method = replace(find_method("1f1b"), name=f"1F1B-{updates}", updates=updates)
    schedule = replace(one_f_one_b(problem), updates=updates)
    timeline = simulate(problem, schedule)
    result = Result(method.name, "makespan", timeline, 1, 0.0)
    return Row(method.name, method, result, timeline, 1)


def test_stale_weights_are_counted_noted_and_no_start_for_the_solver() -> None:
    problem = model(MEMORY | {"static": 8, "weights": 2, "limit": 10**6})
    row = stale(problem, "stash")
    assert (row.versions, row.synchronous, row.data()["weight_versions"]) == (4, False, 4)
    assert row.memory == (4 * 40 + 8 + 3 * 2) * 10**6
    (note,) = notes(problem, [row], "makespan")
    assert note.startswith("1F1B-stash: stale weights, 3 updates late at most (an update after each micro-batch")
    assert "not counted" not in note
    (note,) = notes(model(), [stale(model(), "double")], "makespan")
    assert note.endswith("memory.weights is 0, so further copies of weights are not counted.")
    levels = frontier(problem, [row], time_limit=0.3)
    assert [level.own for level in levels] == [True]


def test_slices_are_compared_and_noted() -> None:
    found = compare(model(), ["1f1b", "seq1f1b"])
    assert [row.label for row in found.rows] == ["1F1B", "Seq1F1B k=2", "Seq1F1B k=4"]
    assert [row.data()["slices"] for row in found.rows] == [1, 2, 4]
    (note,) = found.notes
    assert note.startswith("Seq1F1B k=2, Seq1F1B k=4: micro-batches cut into slices")
    assert "equal slices are assumed" in note
    said = compare(replace(model(), slices=Slices((1, 1), (2, 3))), ["1f1b", "seq1f1b"])
    assert [row.label for row in said.rows] == ["1F1B", "Seq1F1B k=2"]
    assert "assumed" not in said.notes[0]
    for row in [*found.rows, *said.rows]:
        assert row.timeline is not None
        assert sum(row.timeline.work) == 4 * 8 * 320
        assert row.timeline.message_bytes == 2 * 3 * 8 * 3000


def test_ctrl_c_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def search(*arguments: Any, **options: Any) -> Result:
        calls.append(arguments[1])
        return replace(solve(*arguments, **options), interrupted=True)

    monkeypatch.setattr("adaptpipe.solver.comparing.level.solve", search)
    monkeypatch.setattr("adaptpipe.solver.comparing.level.LOOK_SHARE", 0)
    found = compare(model(), ["auto", "anneal", "1f1b", "zbv"], time_limit=1)
    assert found.interrupted
    assert calls == ["auto"]
    assert [row.label for row in found.rows][-2:] == ["1F1B", "ZB-V"]
    assert not compare(model(), ["1f1b"]).interrupted


def test_copies_that_are_not_counted_are_no_gain() -> None:
    """A second copy of the parameters is searched only where memory.static says what it takes."""
    data: dict[str, Any] = {
        "pipeline": {"ranks": 2},
        "batch": {"samples": 4},
        "costs": {"forward": 3, "backward_input": 3, "backward_weight": 3},
        "links": {"latency": 1},
    }
    for static, directions, value in ((0, 1, 40), (1, 2, 36)):
        problem = Problem.from_dict(data | {"memory": {"activation": 1, "static": static}})
        own = frontier(problem, compare(problem, ["1f1b", "chimera"]).rows, time_limit=5)[-1]
        assert own.own
        assert own.best.timeline is not None
        assert own.best.timeline.schedule.placement.directions == directions
        assert own.best.value == value


def test_searches_start_from_the_best_known_schedule_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = model()
    rows = compare(problem, ["1f1b", "1f1b-split", "zbh1", "zbh2", "zbv"]).rows
    starts = {}

    def search(place: Problem, *arguments: Any, start: Any = None, **options: Any) -> Result:
        starts[place.placement.name, place.memory.limit[0]] = start
        return solve(place, *arguments, start=start, **options)

    monkeypatch.setattr("adaptpipe.solver.comparing.level.solve", search)
    frontier(problem, rows, time_limit=3)
    known = {row.label: row.timeline for row in rows}
    timeline, start = known["ZB-V"], starts["v", 160 * 10**6]
    assert timeline is not None
    assert start is not None
    assert simulate(timeline.problem, start).makespan <= timeline.makespan


def test_what_is_found_last_is_known_wherever_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem's own limits are searched last, and what is found there may need less than other levels allow."""
    problem = model()
    rows = by_label(compare(problem, ["1f1b", "zbh1", "zbh2"]))
    slow, good = rows["1F1B"].timeline, rows["ZB-H1"].timeline
    assert slow is not None
    assert good is not None

    def search(_: Any, __: Any, known: Sequence[Timeline], limits: Any, ___: float) -> tuple[Result, ...]:
        later = any(timeline is good for timeline in known)
        found = good if later or limits == problem.memory.limit else slow
        return (Result("auto", "makespan", found, 0, 0.0),)

    monkeypatch.setattr("adaptpipe.solver.comparing.front.search_level", search)
    levels = frontier(problem, [rows["1F1B"], rows["ZB-H2"]], time_limit=1)
    assert len(levels) == 2
    assert [level.best.timeline for level in levels] == [good, good]


def test_ctrl_c_between_two_searches_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("adaptpipe.solver.comparing.level._answer", pressed)
    found = compare(model(), ["auto", "anneal", "1f1b", "zbv"], time_limit=1)
    assert found.interrupted
    assert [row.label for row in found.rows] == ["auto on v", "1F1B", "ZB-V"]
    (level,) = found.levels
    assert level.interrupted
    assert level.best.value == min(row.value for row in found.rows if row.value is not None)


def test_ctrl_c_ends_the_look_at_other_placements(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def search(*arguments: Any, **options: Any) -> Result:
        calls.append(arguments[1])
        return replace(solve(*arguments, **options), interrupted=True)

    monkeypatch.setattr("adaptpipe.solver.comparing.level.solve", search)
    monkeypatch.setattr("adaptpipe.solver.comparing.level.PLACEMENTS", 1)
    assert compare(model(), ["auto", "1f1b", "zbv"], time_limit=3).interrupted
    assert calls == ["greedy"]


def test_ctrl_c_while_schedules_are_made_keeps_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was not made in time is not said to be over the limit, and nothing is searched."""

    def made(problem: Problem, name: str, **options: Any) -> Result:
        return replace(solve(problem, name, **options), interrupted=name == "ZB-V")

    monkeypatch.setattr("adaptpipe.solver.comparing.row.solve", made)
    found = compare(model(), ["auto", "1f1b", "zbv", "zbh1"], time_limit=1)
    assert found.interrupted
    assert [row.label for row in found.rows] == ["1F1B", "ZB-H1"]
    assert not found.levels
