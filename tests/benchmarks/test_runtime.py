"""The benchmark beside PyTorch's runtime: what it runs, what it counts, and what it says of kept figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.distributed.pipelining.schedules import _Action, _ComputationType

from adaptpipe.models import parameter_count
from adaptpipe.models.stage import build_full
from benchmarks.runtime import __main__ as command
from benchmarks.runtime.memory import peak_bytes
from benchmarks.runtime.raw import ADAPTIVE, OURS, THEIRS, Book, Figures, Measured, Ratios, read, summary, write
from benchmarks.runtime.report import line, text
from benchmarks.runtime.sides import CASES, MODEL, SEED, Case, as_schedule, build

MIB = 1 << 20


def measured(**sides: Figures) -> Measured:
    """A case on two ranks, theirs first."""
    theirs = Figures((1.0, 2.0, 4.0), (1.0, 1.0, 2.0), (4 * MIB, 2 * MIB))
    return Measured("ZBVZeroBubble", 2, True, 0.0, {THEIRS: theirs, **sides})


OURS_FIGURES = Figures((0.5, 1.8, 4.4), (2.0, 1.0, 1.0), (MIB, 3 * MIB))


def test_the_cases_are_those_that_the_targets_are_set_for() -> None:
    assert len({case.name for case in CASES}) == len(CASES) == 8
    assert {case.ranks for case in CASES} == {2, 4}
    assert all(case.split == ("ZeroBubble" in case.schedule) for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_ranks_hold_the_whole_model_once(case: Case) -> None:
    held = [build(case, rank) for rank in range(case.ranks)]
    stages = sorted(stage for each in held for stage in each)
    assert stages == list(range(case.stages))
    whole = parameter_count(build_full(MODEL, SEED))
    assert sum(parameter_count(module) for each in held for module in each.values()) == whole


def test_a_schedule_of_theirs_keeps_its_order_and_nothing_but_compute() -> None:
    kinds = _ComputationType
    row = [_Action(0, kinds.FORWARD, j) for j in range(8)]
    row += [_Action(0, kinds.BACKWARD_INPUT, 0), _Action(0, kinds.SEND_F, 0), _Action(0, kinds.BACKWARD_WEIGHT, 0)]
    row += [_Action(0, kinds.FULL_BACKWARD, j) for j in range(1, 8)]
    schedule = as_schedule(Case("1F1B", 1), {0: [None, *row, _Action(0, kinds.REDUCE_GRAD, None)]})
    assert " ".join(str(op) for op in schedule.ops[0]) == (
        "0F0 0F1 0F2 0F3 0F4 0F5 0F6 0F7 0I0 0W0 0B1 0B2 0B3 0B4 0B5 0B6 0B7"
    )


def test_peak_counts_what_a_step_holds_and_what_the_first_one_kept() -> None:
    kept: list[torch.Tensor] = []

    def step() -> None:
        if not kept:
            kept.append(torch.empty(MIB, dtype=torch.uint8))
            del_me = torch.empty(50 * MIB, dtype=torch.uint8)
            del del_me
        first = torch.empty(2 * MIB, dtype=torch.uint8)
        second = torch.empty(4 * MIB, dtype=torch.uint8)
        del first, second
        third = torch.empty(3 * MIB, dtype=torch.uint8)
        del third

    assert peak_bytes(step) == 7 * MIB


def test_ratios_are_medians_of_pairs_and_of_the_worst_rank() -> None:
    assert measured(ours=OURS_FIGURES).ratios() == Ratios(cpu_ratio=0.9, wall_ratio=1.0, peak_ratio=1.5)


def test_kept_figures_are_read_back_and_reported(tmp_path: Path) -> None:
    fast = Figures((0.8, 1.6, 3.2), (1.0, 1.0, 2.0), (MIB, MIB))
    book = Book("2026-11-30", "a machine", "2.13.0", 3, (measured(ours=OURS_FIGURES, adaptive=fast),))
    write(tmp_path / "a.json", book)
    assert read(tmp_path / "a.json") == book
    ours = {"cpu_ratio": 0.9, "wall_ratio": 1.0, "peak_ratio": 1.5}
    assert [{key: row[key] for key in ours} for row in summary(book)] == [ours]
    floating = summary(book)[0][ADAPTIVE]
    assert json.loads(json.dumps(floating)) == {"cpu_ratio": pytest.approx(0.8), "wall_ratio": 1.0, "peak_ratio": 0.5}
    page = text(book)
    assert "a machine, torch 2.13.0; 3 steps of each side" in page
    assert "| ZBVZeroBubble | 2 | 2.000 s | 1.800 s | **0.900** | 1.000 | 4.00 MiB | 3.00 MiB | **1.500** |" in page
    assert "equal to the bit" in page
    assert line(book.cases[0]) == "ZBVZeroBubble, 2 ranks: CPU 0.900, wall 1.000, peak 1.500"
    assert OURS in book.cases[0].sides


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--only", "GPipe"], "no case is named 'GPipe'; there are 1F1B, 2 ranks;"), (["--pairs", "0"], "0 is below 1")],
)
def test_arguments_out_of_range_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    assert said in capsys.readouterr().err
