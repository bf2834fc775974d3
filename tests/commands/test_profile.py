"""What `adaptpipe profile` shows of a profile; measuring one is tested with real processes elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from adaptpipe.solver import Measurement, Part, Problem, Profile

from .cli import answer, call


def measured(size: int) -> Measurement:
    """F, I, W and B of 3 + size ms each, but for what is said; the second unit frees more than the first."""
    seconds = (3 + size) / 1e3
    return Measurement(
        size,
        seconds,
        seconds,
        seconds,
        1.9 * seconds,
        9 * size,
        6 * size,
        size,
        (seconds / 2,) * 2,
        (2 * size, 4 * size),
    )


PROFILE = Profile("test", tuple(Part(f"stage {s}", 7, (measured(1), measured(2)), 1.0, (1, 3)) for s in (0, 1)), 1e-4)


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("adaptpipe.commands.training.launch", lambda *_, **__: (PROFILE,) * 2)
    path = tmp_path / "run.toml"
    path.write_text('ranks = 2\nsamples = 4\n[model]\nkind = "mlp"\nlayers = 2\nwidth = 8\ninputs = 8\n')
    return path


def test_the_tables(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = call("profile", run_file)
    assert done.exit_code == 0, done.output
    first, second = (
        next(line.split() for line in part.splitlines() if line.lstrip(" │┃").startswith("stage 0"))
        for part in (done.stdout, done.stdout[done.stdout.index("B saves") :])
    )
    assert first[:4] == ["stage", "0", "1", "4.00"]
    assert second == ["stage", "0", "+5.0%", "25%+75%", "0.000", "75/75/75/75%", "0.0/0.0/0.0/0.0%"]
    assert "share of the time at size 1" in done.stdout


def test_one_size_has_no_line(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    single = replace(PROFILE, parts=tuple(replace(part, measurements=(measured(2),)) for part in PROFILE.parts))
    monkeypatch.setattr("adaptpipe.commands.training.launch", lambda *_, **__: (single,) * 2)
    done = call("profile", run_file)
    assert "fit error" not in done.stdout
    assert "25%+75%" in done.stdout


def test_json_and_the_problem_that_follows(run_file: Path, tmp_path: Path) -> None:
    done = call("profile", run_file, "--json", "-o", tmp_path / "problem.json")
    (part, _) = answer(done)["parts"]
    assert part["fits"]["W"] == {"fixed_s": 0.003, "per_sample_s": 0.001, "error": 0.0}
    assert part["fused_saving"] == pytest.approx(0.05)
    assert part["range_s"] == 0.0
    assert part["measurements"][1]["unit_bytes"] == [4, 8]
    problem = Problem.load(tmp_path / "problem.json")
    assert problem.weight_units == ((1000, 3000),) * 2
    assert problem.memory.retained_units == ((2, 4),) * 2
