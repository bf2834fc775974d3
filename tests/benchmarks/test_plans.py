"""The benchmark of plans: its figures and its table."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from adaptpipe.solver.planning.files.instance_file import InstanceFile
from benchmarks import plans
from benchmarks.instances import WORKLOADS


def test_every_workload_has_a_known_step() -> None:
    assert set(plans.KNOWN) == set(msgspec.json.decode(WORKLOADS.read_bytes(), type=InstanceFile).instances)


def test_a_row_is_planned_kept_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "plans.json"
    arguments = ["--time-limit", "1.5", "--results", str(kept)]
    monkeypatch.setattr(plans, "KNOWN", {"llama2-7b-p4": 6000})
    assert plans.main([*arguments, "--only", "llama*"]) == 0
    monkeypatch.setattr(plans, "KNOWN", {"llama2-7b-p4": 3000})
    (row,) = msgspec.json.decode(kept.read_bytes(), type=plans.Results).rows.values()
    assert row.bound <= row.makespan < 6000
    assert row.base is not None
    assert row.known_s is not None
    assert sum(row.split) == 34
    table = kept.with_suffix(".md").read_text(encoding="utf-8")
    assert (
        f"| llama2-7b-p4 | {row.makespan:.1f} | 6000 | {row.makespan / 6000 - 1:+.2%} | {row.known_s:.0f} s |" in table
    )
    assert plans.main([*arguments, "--only", "llama*"]) == 1
