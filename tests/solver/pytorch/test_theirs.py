"""PyTorch's own schedules: every one is read, with and without messages, and lowered as they lower it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from adaptpipe.solver import InputError, NoAnswerError, Problem, place
from adaptpipe.solver.core.method import Heuristic
from adaptpipe.solver.heuristics import dualpipe_v, gpipe, interleaved, looped_bfs, one_f_one_b
from adaptpipe.solver.pytorch import import_csv
from adaptpipe.solver.pytorch.lowering import lower
from tests.theirs import LINEAR, LOOP, V, dump, theirs

FAMILY = dict.fromkeys(LINEAR, "linear") | dict.fromkeys(LOOP, "loop") | dict.fromkeys(V, "v")
EVERY = [
    (name, ranks, count)
    for name, family in FAMILY.items()
    for ranks in (2, 3, 4)
    for count in (1, 2, 3, 4, 5, 7, 8, 10, 11)
    if not (name == "1F1B" and count < ranks)
    and not (name == "DualPipeV" and count < 2 * ranks)
    and not (name.startswith("Interleaved") and count % max(1, count // ranks))
]
"""All that PyTorch makes of these numbers: interleaved ones need m to be divisible by the rounds, m // p."""


def test_every_schedule_of_theirs_is_read(tmp_path: Path) -> None:
    """Interleaved ones of m not divisible by p too, which were refused at first: pytorch PR#137783."""
    assert {("Interleaved1F1B", 4, count) for count in (3, 5, 7, 10)} <= set(EVERY)
    for name, ranks, count in EVERY:
        schedule = import_csv(dump(theirs(name, ranks, count), tmp_path / "s.csv")).schedule
        assert schedule.placement.name == FAMILY[name]
        assert schedule.sizes == (1,) * count
        for stage in range(schedule.placement.stage_count):
            ops = [str(op) for row in schedule.ops for op in row if op.stage == stage]
            assert sum("F" in op for op in ops) == count
            assert sum("I" in op or "B" in op for op in ops) == count


def test_messages_of_theirs_are_proved_and_ours_are_the_same(tmp_path: Path) -> None:
    for name, ranks, count in EVERY:
        if name in LINEAR:
            continue
        made = theirs(name, ranks, count)
        alone = import_csv(dump(made, tmp_path / "s.csv")).schedule
        assert import_csv(dump(made, tmp_path / "s.csv", messages=True)).schedule == alone
        if name != "DualPipeV":  # its overlapped pairs take one turn, and are two ops here
            ours = [[str(action) for action in row] for row in lower(alone)]
            assert ours == [list(map(str, made.pipeline_order_with_comms[rank])) for rank in range(ranks)]


@pytest.mark.parametrize("name", [*LOOP, *V])
def test_their_deferred_receives_do_not_end_where_sends_block(name: str, tmp_path: Path) -> None:
    """Receives put off to their ops, by rank parity where ranks send to each other: pytorch PR#178815, #172668."""
    path = dump(theirs(name, 4, 8, defer_pp_recv=True), tmp_path / "s.csv", messages=True)
    with pytest.raises(NoAnswerError, match=r"s\.csv: deadlock where sends block: row \d \(rank \d\), column \d+: \dS"):
        import_csv(path)


def test_pairs_that_overlap_are_two_ops(tmp_path: Path) -> None:
    path = dump(theirs("DualPipeV", 2, 4), tmp_path / "s.csv")
    pairs = path.read_text().count("OVERLAP_F_B")
    assert pairs > 2
    found = import_csv(path)
    assert f"{pairs} overlapped pairs are their ops, one after the other" in found.notes
    assert sum(map(len, found.schedule.ops)) > pairs


@pytest.mark.parametrize(
    ("name", "family", "ours"),
    [("DualPipeV", "v", dualpipe_v), ("LoopedBFS", "loop", looped_bfs), ("Interleaved1F1B", "loop", interleaved)],
)
def test_their_schedules_of_two_stages_are_ours(name: str, family: str, ours: Heuristic, tmp_path: Path) -> None:
    for ranks in (2, 3, 4):
        for count in (2 * ranks, 4 * ranks):
            problem = Problem.from_dict(
                {
                    "pipeline": {"ranks": ranks, "placement": family, "stages_per_rank": 2},
                    "batch": {"samples": count},
                    "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
                }
            )
            found = import_csv(dump(theirs(name, ranks, count), tmp_path / "s.csv"), problem)
            assert found.schedule == ours(problem, None)


@pytest.mark.parametrize(("name", "ours"), [("GPipe", gpipe), ("1F1B", one_f_one_b)])
def test_their_schedules_of_one_stage_are_ours(name: str, ours: Heuristic, tmp_path: Path) -> None:
    """The last stage's forwards are numbered from 1 in `Schedule1F1B.pipeline_order`, torch 2.13."""
    for ranks in (1, 2, 3, 4):
        problem = Problem.from_dict(
            {
                "pipeline": {"ranks": ranks},
                "batch": {"samples": 10, "microbatch_sizes": [2]},
                "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
            }
        )
        path = dump(theirs(name, ranks, 5), tmp_path / "s.csv")
        found = import_csv(path, problem)
        assert found.schedule == ours(problem, None)
        assert any("from 1, as Schedule1F1B" in note for note in found.notes) == (name == "1F1B")


def test_a_v_schedule_is_not_for_a_looped_placement(tmp_path: Path) -> None:
    """A V schedule ran with looped stages and failed deep inside the step: pytorch/torchtitan#774."""
    problem = Problem.from_dict(
        {
            "pipeline": {"ranks": 2, "placement": "loop", "stages_per_rank": 2},
            "batch": {"samples": 4},
            "costs": {"forward": 1, "backward_input": 1, "backward_weight": 1},
        }
    )
    path = dump(theirs("ZBVZeroBubble", 2, 4), tmp_path / "s.csv")
    assert import_csv(path).schedule.placement == place("v", 2, 2)
    with pytest.raises(InputError, match=r"stage 2 \(direction 0\) is on rank 1 in the schedule and on rank 0 in the"):
        import_csv(path, problem)
