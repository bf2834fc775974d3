"""Export and import: round trips, what is written beside, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver import InputError, NoAnswerError, Problem, Schedule, check, place, simulate
from adaptpipe.solver.pytorch import export_csv, import_csv
from adaptpipe.solver.pytorch.lowering import lower
from tests.strategies import problems, schedules_of

SPLIT = [["0F0", "0F1", "0I0", "0W0", "0B1"], ["1F0", "1I0", "1F1", "1W0", "1B1"]]


def problem_of(samples: int = 2, sizes: Sequence[int] = (1,), units: int = 1, **other: Any) -> Problem:
    cost = {"fixed": 1, "per_sample": 2}
    data: dict[str, Any] = {
        "name": "tiny",
        "unit": "ms",
        "pipeline": {"ranks": 2},
        "batch": {"samples": samples, "microbatch_sizes": list(sizes)},
        "costs": {"forward": cost, "backward_input": cost, "weight_units": [cost] * units},
    }
    return Problem.from_dict(data | other)


@settings(max_examples=25)
@given(st.data())
def test_what_is_exported_is_imported(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Apart from the numbers of micro-batches, which follow the order of the losses."""
    families = ("linear", "loop", "v", "wave", "explicit")
    problem = data.draw(problems(families=families, sizes=False, units=False, limited=False))
    schedule = data.draw(schedules_of(problem))
    path = tmp_path_factory.getbasetemp() / "round.csv"
    last = problem.stages - 1
    plain = Schedule.parse(schedule.placement, schedule.sizes, [map(str, row) for row in schedule.ops])
    for messages in (False, True):
        exported = export_csv(problem, schedule, path, messages=messages)
        for known in (None, problem):
            again = import_csv(path, known)
            assert again.schedule == exported.schedule
            assert again.problem == problem.name
        order = [
            op.microbatch for row in exported.schedule.ops for op in row if (op.stage, op.kind.name) == (last, "F")
        ]
        assert order == list(range(schedule.microbatches))
        assert not check(problem, exported.schedule)
        moved = exported.schedule != plain
        assert moved == bool(exported.notes)
        assert simulate(problem, exported.schedule).makespan == simulate(problem, schedule).makespan


def test_files(tmp_path: Path) -> None:
    problem = problem_of(6, (3,))
    schedule = Schedule.parse(problem.placement, (3, 3), SPLIT)
    exported = export_csv(problem, schedule, tmp_path / "s.csv")
    assert exported.files == (tmp_path / "s.csv", tmp_path / "s.csv.json")
    assert (tmp_path / "s.csv").read_text() == "0F0,0F1,0I0,0W0,0B1\n1F0,1I0,1F1,1W0,1B1\n"
    assert msgspec.json.decode((tmp_path / "s.csv.json").read_bytes()) == {
        "format": "adaptpipe-csv",
        "version": 1,
        "problem": "tiny",
        "placement": [0, 1],
        "sizes": [3, 3],
        "unit": "ms",
        "starts": [[start for _, start, _ in simulate(problem, schedule).of(rank)] for rank in range(2)],
    }
    found = import_csv(tmp_path / "s.csv")
    assert (found.schedule, found.problem) == (schedule, "tiny")
    assert found.notes == (f"sizes are those of {tmp_path / 's.csv.json'}",)


def test_without_what_is_beside(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("\n".join(map(",".join, SPLIT)))
    found = import_csv(tmp_path / "s.csv")
    assert found.schedule == Schedule.parse(place("linear", 2), (1, 1), SPLIT)
    assert found.notes == ("a CSV does not say how large micro-batches are: 1 sample each; --problem says it",)
    found = import_csv(tmp_path / "s.csv", problem_of(5, (2, 3)))
    assert found.schedule == Schedule.parse(place("linear", 2), (2, 3), SPLIT)
    assert (found.problem, found.notes) == ("tiny", ())
    with pytest.raises(
        InputError, match=r"s.csv: 2 micro-batches, and the problem's 5 samples are no sum of 2 near-eq"
    ):
        import_csv(tmp_path / "s.csv", problem_of(5, (1,)))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"format": "x"}, "format: 'x' is not 'adaptpipe-csv'"),
        ({"version": 2}, "version: 2 is not 1"),
        ({"placement": [0]}, r"placement: 1 stages, and .*s.csv has 2; correct one of the two, or remove .*s.csv.json"),
        ({"placement": [1, 0]}, r"placement\[0\]: stage 0 on rank 1, and on rank 0 in .*s.csv; correct one of the two"),
        ({"sizes": [1, 1, 1]}, r"sizes: 3 micro-batches, and .*s.csv has 2; correct one"),
        ({"sizes": [1, 0]}, r"sizes\[1\]: 0 is below 1"),
        ({"sizes": [1, "1"]}, r"sizes\[1\]: expected `int`, got `str`"),
        ({"size": 1}, "contains unknown field `size`"),
    ],
)
def test_what_is_beside_must_agree(other: dict[str, Any], message: str, tmp_path: Path) -> None:
    export_csv(problem_of(), Schedule.parse(place("linear", 2), (1, 1), SPLIT), tmp_path / "s.csv")
    beside = tmp_path / "s.csv.json"
    beside.write_bytes(msgspec.json.encode(msgspec.json.decode(beside.read_bytes()) | other))
    with pytest.raises(InputError, match=f"^{re.escape(str(beside))}: .*{message}"):
        import_csv(tmp_path / "s.csv")


def test_a_schedule_of_another_shape_than_its_problem(tmp_path: Path) -> None:
    export_csv(problem_of(), Schedule.parse(place("linear", 2), (1, 1), SPLIT), tmp_path / "s.csv")
    with pytest.raises(InputError, match=r"s\.csv\.json: sizes: 2 samples in all, and the batch has 6$"):
        import_csv(tmp_path / "s.csv", problem_of(6, (3,)))
    three = problem_of(pipeline={"ranks": 3})
    with pytest.raises(InputError, match=r"s\.csv: the schedule is for 2 stages on 2 ranks, .*; its rows are the"):
        import_csv(tmp_path / "s.csv", three)


@pytest.mark.parametrize(
    ("problem", "sizes", "rows", "message"),
    [
        (
            problem_of(3, (1, 2)),
            (1, 2),
            SPLIT,
            "micro-batch 1 has 2 samples and micro-batch 0 has 1, and PyTorch cuts a batch into equal parts",
        ),
        (
            problem_of(units=2),
            (1, 1),
            [["0F0", "0F1", "0I0", "0W0[0:1]", "0B1", "0W0[1:2]"], SPLIT[1]],
            r"rank 0, position 5: 0W0\[1:2\] is one of several parts of 0W0, and PyTorch computes .* --granularity",
        ),
        (problem_of(), (1, 1), [SPLIT[0][:-1], SPLIT[1]], "the schedule is not valid: rank 0: 0B1, or 0I1 and 0W1, is"),
        (
            problem_of(memory={"activation": {"per_sample": 1}, "limit": 1}),
            (1, 1),
            SPLIT,
            "the schedule is not valid: rank 0, position 1: .*limit",
        ),
    ],
)
def test_what_pytorch_cannot_run_is_not_exported(
    problem: Problem, sizes: tuple[int, ...], rows: list[list[str]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(NoAnswerError, match=message):
        export_csv(problem, Schedule.parse(place("linear", 2), sizes, rows), tmp_path / "s.csv")
    assert not list(tmp_path.iterdir())


def test_updates_without_a_flush_are_not_exported(tmp_path: Path) -> None:
    schedule = replace(Schedule.parse(place("linear", 2), (1, 1), SPLIT), updates="stash")
    with pytest.raises(NoAnswerError, match="updates are 'stash', and PyTorch updates weights once a step, after"):
        export_csv(problem_of(), schedule, tmp_path / "s.csv")


def test_a_stage_with_two_replicas_is_not_exported(tmp_path: Path) -> None:
    problem = problem_of(pipeline={"ranks": 2, "placement": "bidirectional"})
    rows = [["0F0", "1F1", "1B1", "0B0"], ["0F1", "1F0", "1B0", "0B1"]]
    with pytest.raises(NoAnswerError, match="the placement is bidirectional, and PyTorch runs a stage on one rank"):
        export_csv(problem, Schedule.parse(problem.placement, (1, 1), rows), tmp_path / "s.csv")


def test_slices_are_neither_exported_nor_imported(tmp_path: Path) -> None:
    problem = problem_of(batch={"samples": 1, "slices": 2})
    rows = [["0F0", "0F1", "0B1", "0B0"], ["1F0", "1F1", "1B1", "1B0"]]
    with pytest.raises(NoAnswerError, match="micro-batches are cut into 2 slices along their sequence, and PyTorch"):
        export_csv(problem, Schedule.parse(problem.placement, (1, 1), rows, 2), tmp_path / "s.csv")
    export_csv(problem_of(), Schedule.parse(problem.placement, (1, 1), rows), tmp_path / "s.csv")
    with pytest.raises(InputError, match="the schedule cuts a micro-batch into 1 slices, and the problem into 2"):
        import_csv(tmp_path / "s.csv", problem)


def test_a_range_of_all_units_is_a_whole_weight_gradient(tmp_path: Path) -> None:
    rows = [["0F0", "0F1", "0I0", "0W0[0:2]", "0B1"], SPLIT[1]]
    exported = export_csv(problem_of(units=2), Schedule.parse(place("linear", 2), (1, 1), rows), tmp_path / "s.csv")
    assert exported.schedule == Schedule.parse(place("linear", 2), (1, 1), SPLIT)
    assert import_csv(tmp_path / "s.csv", problem_of(units=2)).schedule == exported.schedule


def test_micro_batches_are_numbered_as_pytorch_finds_their_losses(tmp_path: Path) -> None:
    """`_PipelineScheduleRuntime` keeps losses in the order of the forwards, and takes micro-batch j's from place j."""
    rows = [["0F1", "0F0", "0B1", "0B0"], ["1F1", "1B1", "1F0", "1B0"]]
    exported = export_csv(problem_of(), Schedule.parse(place("linear", 2), (1, 1), rows), tmp_path / "s.csv")
    assert (tmp_path / "s.csv").read_text() == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    assert "numbered anew" in exported.notes[0]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("0F0,0B0,0B1\n1F0,1B0,1F1,1B1", NoAnswerError, "rank 0: 0F1 is missing"),
        ("0F0,0F0,0B0\n1F0,1B0", NoAnswerError, "rank 0, position 1: 0F0 is there twice, first at position 0"),
        ("0F0,0B0\n1B0,1F0", NoAnswerError, "deadlock: rank 1, position 0: 1B0 waits for 1F0"),
        ("0F0,0W0,0I0\n1F0,1B0", NoAnswerError, "deadlock: rank 0, position 1: 0W0 waits for 0I0"),
        ("0F0,0B0\n1F0,1B0,1F999999999", InputError, "1F999999999 is there, and micro-batch 1 is not; they are numb"),
        ("0UNSHARD\n1UNSHARD", InputError, "no cell holds an op"),
        ("0F0\n0B0", InputError, r"row 2 \(rank 1\), column 1: 0B0: stage 0 is on rank 0"),
    ],
)
def test_what_is_no_schedule(text: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(error, match=rf"^{re.escape(str(tmp_path))}.s\.csv: {message}"):
        import_csv(tmp_path / "s.csv")


def test_a_schedule_over_the_limit_of_its_problem(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("\n".join(map(",".join, SPLIT)))
    problem = problem_of(memory={"activation": {"per_sample": 1}, "limit": 1})
    with pytest.raises(NoAnswerError, match=r"s\.csv: rank 0, position 1: .*limit"):
        import_csv(tmp_path / "s.csv", problem)


LETTERS = '0123FIWBSENDRCVUA_(); ,\n"-'


@settings(max_examples=60)
@given(st.data())
def test_a_random_edit_is_read_or_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "edited.csv"
    rows = lower(Schedule.parse(place("linear", 2), (1, 1), SPLIT)) if data.draw(st.booleans()) else SPLIT
    text = "\n".join(",".join(map(str, row)) for row in rows)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(start + 5, len(text))))
        text = text[:start] + data.draw(st.text(LETTERS, max_size=3)) + text[stop:]
    path.write_text(text)
    message = f"{path}: "
    try:
        assert len(import_csv(path).schedule.ops) == len(text.strip().splitlines())
    except (InputError, NoAnswerError) as error:
        message = str(error)
    assert message.startswith(f"{path}: "), message
