"""`adaptpipe export` and `adaptpipe import`."""

from __future__ import annotations

from pathlib import Path

from adaptpipe.solver import Schedule
from tests.commands.cli import answer, call, write_problem, write_schedule
from tests.solver.pytorch.test_messages import HUNG


def test_there_and_back(tmp_path: Path) -> None:
    problem, schedule = write_problem(tmp_path), write_schedule(tmp_path)
    table, again = tmp_path / "s.csv", tmp_path / "again.json"
    result = call("export", problem, schedule, "-o", table)
    assert result.exit_code == 0
    assert result.stdout == f"written to {table}, and what a CSV cannot hold to {table}.json\n"
    assert table.read_text() == "0F0,0F1,0B0,0I1,0W1\n1F0,1B0,1F1,1B1\n"
    result = call("import", table, "--problem", problem, "-o", again)
    assert result.exit_code == 0
    assert f"sizes are those of {table}.json\n" in result.stderr
    assert result.stdout == (f"valid: 9 ops of 2 stages (linear) and 2 micro-batches on 2 ranks; written to {again}\n")
    assert again.read_bytes() == schedule.read_bytes()
    assert call("check", problem, again).exit_code == 0


def test_json_and_messages(tmp_path: Path) -> None:
    problem, schedule = write_problem(tmp_path), write_schedule(tmp_path)
    table = tmp_path / "s.csv"
    exported = answer(call("export", problem, schedule, "-o", table, "--format", "comms", "--json"))
    assert exported == {"problem": "tiny", "format": "comms", "files": [str(table), f"{table}.json"], "notes": []}
    assert table.read_text().startswith("0UNSHARD,0F0,0SEND_F0,")
    Path(f"{table}.json").unlink()
    result = call("import", table, "--json")
    imported = answer(result)
    assert (
        result.stderr.splitlines()
        == imported.pop("notes")
        == [
            "8 message cells are proved and left out: they are made anew",
            "6 cells UNSHARD, RESHARD and REDUCE_GRAD are left out",
            "a CSV does not say how large micro-batches are: 1 sample each; --problem says it",
        ]
    )
    assert imported == {"problem": "", "output": None, "placement": [0, 1], "microbatch_sizes": [1, 1]}


def test_refusals(tmp_path: Path) -> None:
    """Exit 2 for what is no table, 1 for a table that does not run, and no file either way."""
    problem, schedule = write_problem(tmp_path), write_schedule(tmp_path, [["0F0"], ["1F0"]])
    table, out = tmp_path / "s.csv", tmp_path / "out.json"
    result = call("export", problem, schedule, "-o", schedule)
    assert (result.exit_code, result.stderr) == (2, f"adaptpipe: {schedule}: the ending is not .csv\n")
    result = call("export", problem, schedule, "-o", table)
    assert (result.exit_code, table.exists()) == (1, False)
    assert result.stderr == "adaptpipe: the schedule is not valid: rank 0: 0B0, or 0I0 and 0W0, is missing\n"
    table.write_text("0F0,0B0\n1F0,1BW0\n")
    result = call("import", table, "-o", out)
    assert (result.exit_code, out.exists()) == (2, False)
    assert result.stderr.startswith(f"adaptpipe: {table}: row 2 (rank 1), column 2: '1BW0' is no cell of PyTorch's")
    table.write_text(HUNG)
    result = call("import", table, "-o", out)
    assert (result.exit_code, out.exists()) == (1, False)
    assert result.stderr.startswith(f"adaptpipe: {table}: deadlock where sends block: row 1 (rank 0), column 12: 0SEND")
    assert call("import", table, "-o", tmp_path / "no" / "s.json").exit_code == 2


def test_a_schedule_without_prices_is_written(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n")
    assert call("import", tmp_path / "s.csv", "-o", tmp_path / "s.json").exit_code == 0
    assert Schedule.load(tmp_path / "s.json").placement.name == "v"
