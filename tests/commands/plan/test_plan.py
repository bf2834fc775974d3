"""`adaptpipe plan` from its options to its report, its JSON and its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from adaptpipe.commands.plan import asking, fitting
from adaptpipe.commands.plan.cases import Line, keep_lines
from adaptpipe.commands.plan.question import Question
from adaptpipe.commands.plan.subject import subject
from adaptpipe.solver import NoAnswerError, check, simulate
from adaptpipe.solver.planning.answer import Answer
from adaptpipe.solver.planning.bounds.bound import lower_bound
from adaptpipe.solver.planning.files.plan_file import load_plan
from adaptpipe.solver.planning.judging.robust import robustness
from adaptpipe.solver.planning.rivals.today import todays
from adaptpipe.solver.planning.workload import Workload
from tests.commands.cli import answer, call

from .tiny import TYPES, write_instance

KEYS = {
    "name", "status", "makespan", "unit", "bound", "gap", "gain", "gain_equal_memory", "recommended", "nothing_to_gain",
    "baseline", "instead", "equal_memory", "placement", "placement_name", "split", "microbatch_sizes", "memory",
    "bubble", "memory_kinds", "memory_limit", "todays", "robustness", "parameters", "step_s", "tokens_per_s",
    "samples_per_s", "mfu", "method", "interrupted", "time_s",
}  # fmt: skip

GEMMA = ("--model", "gemma2-9b", "--cluster", "h100x8", "--microbatch-sizes", "1")


def at_once(workload: Workload, **_: Any) -> Answer:
    """An answer without a search: the best of today's schedules as the plan, the second best as what there was."""
    best, *known = todays(workload)
    plan, base = (each.plan(workload, lower_bound(workload)) for each in (best, known[0]))
    return Answer(workload, (plan,), tuple(known), base, robustness(plan, [base], draws=2), 0.0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "answer", at_once)
    monkeypatch.setattr("adaptpipe.commands.plan.command.compiled", lambda: None)


@pytest.mark.usefixtures("quick")
def test_the_report() -> None:
    done = call("plan", *GEMMA)
    assert done.exit_code == 0, done.output
    text = done.stdout
    assert (
        "gemma2-9b on h100x8: 44 layers, 9,241,705,984 parameters; 8 ranks; 32 samples a step, 131,072 tokens" in text
    )
    assert "every one of the 44 layers is in one stage: 44" in text
    assert (
        "917,504,000 of them copies of shared matrices or blocks beyond the model; the model's: 9,241,705,984" in text
    )
    for words in (
        "tokens/s",
        "(MFU)",
        "gap",
        "gain, equal memory",
        "recommended",
        "what binds: rank",
        "not in the step",
    ):
        assert words in text
    assert "10% error, all costs" in text
    assert "lacks" in text, "GPipe does not fit"


@pytest.mark.usefixtures("quick")
def test_every_layer_is_planned_once(tmp_path: Path) -> None:
    """Megatron-LM#1304, #468: layers that do not divide were dropped, and figures used the nominal count."""
    row = answer(call("plan", *GEMMA, "--ranks", 5, "--memory", 300, "--json"))
    assert (sum(row["split"]), len(row["split"]), row["parameters"]) == (44, len(row["placement"]), 9_241_705_984)


@pytest.mark.usefixtures("quick")
def test_json_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    row = answer(call("plan", *GEMMA, "--json", "-o", folder))
    assert set(row) == KEYS
    assert sorted(path.name for path in folder.iterdir()) == [
        "plan.json",
        "problem.json",
        "schedule.json",
        "today.json",
    ]
    found = load_plan(folder / "plan.json")
    assert not check(found.problem, found.schedule)
    timeline = simulate(found.problem, found.schedule)
    assert (timeline.makespan, list(timeline.peak_memory)) == (row["makespan"], row["memory"])
    assert [len(part) for part in found.split] == row["split"]
    assert row["memory"] == [sum(kinds.values()) for kinds in row["memory_kinds"]]
    assert found.model["name"] == "gemma2-9b"
    assert found.figures == row
    assert load_plan(folder / "today.json").figures == {"makespan": row["baseline"]["makespan"]}
    assert call("plan", *GEMMA, "-o", tmp_path / "one.json").exit_code == 0
    assert load_plan(tmp_path / "one.json").figures["split"] == row["split"]


@pytest.mark.timeout(300)
def test_searched(tmp_path: Path) -> None:
    row = answer(call("plan", "--instance", write_instance(tmp_path), "--time-limit", 1, "--json"))
    assert set(row) == KEYS
    assert row["bound"] <= row["makespan"] <= row["baseline"]["makespan"]
    assert 0 <= row["gain_equal_memory"] <= row["gain"]
    assert max(row["equal_memory"]["memory"]) <= max(row["baseline"]["memory"])
    assert sum(row["split"]) == 6
    assert (row["tokens_per_s"], row["mfu"]) == (None, None)
    assert {gain["error"] for gain in row["robustness"]} == {0.0, 0.1, 0.2}


def test_a_model_that_cannot_fit_says_what_would_make_it() -> None:
    """70 billion parameters at 18 bytes on eight devices of 80 GB; remedies can be followed to the letter."""
    done = call("plan", "--model", "llama3-70b", "--cluster", "h100x8", "--json")
    assert done.exit_code == 1
    row = msgspec.json.decode(done.stdout)
    assert (row["status"], row["makespan"], row["lacks"]["bytes"] // 10**9) == ("INFEASIBLE", None, 110)
    assert row["reason"] in done.stderr
    assert "llama3-70b on h100x8 cannot fit into memory: rank" in done.stderr
    assert "above its limit of 71.40 GB" in done.stderr
    assert "tried, and fits: " in done.stderr
    options = done.stderr.split("tried, and fits: ")[1].split(";")[0].strip()
    words = options.partition(" (")[0].split()
    changes: dict[str, Any] = {words[i].removeprefix("--"): int(words[i + 1]) for i in range(0, len(words), 2)}
    fitting.require_room(subject(Question("llama3-70b", "h100x8", **changes)))


def test_nothing_found_in_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: Any, **__: Any) -> Answer:
        raise NoAnswerError("no plan was found")

    monkeypatch.setattr(asking, "answer", found)
    monkeypatch.setattr("adaptpipe.commands.plan.command.compiled", lambda: None)
    done = call("plan", "--instance", write_instance(tmp_path), "--json")
    assert done.exit_code == 1
    row = msgspec.json.decode(done.stdout)
    assert (row["status"], row["lacks"], row["reason"]) == ("UNKNOWN", None, "no plan was found")


@pytest.mark.usefixtures("quick")
def test_layers_that_take_no_time(tmp_path: Path) -> None:
    """Shares and rates of a step of no time are 0 or unknown."""
    types = [TYPES[0] | {"F": 0, "I": 0, "W": 0, "comm_bytes": 0}]
    words = ("plan", "--instance", write_instance(tmp_path, types=types, units=[[0, 4]], aop=0, p=1, speed=[1]))
    row = answer(call(*words, "--json"))
    assert (row["makespan"], row["gain"], row["gain_equal_memory"], row["samples_per_s"]) == (0, 0, 0, None)
    assert "predicted, before the optimizer: –" in call(*words).stdout


def test_a_model_that_nothing_helps() -> None:
    with pytest.raises(
        NoAnswerError, match="tried, and fits: none of recomputing, more replicas or tensor parallelism"
    ):
        fitting.require_room(subject(Question("llama3-70b", "a100-40x2")))


@pytest.mark.usefixtures("quick")
def test_what_if(tmp_path: Path) -> None:
    """One table, kept line by line; a case that cannot fit or be asked says why and does not end the others."""
    words = ("--what-if", "ranks=2,8,99", *GEMMA)
    done = call("plan", *words, "-o", tmp_path / "cases.jsonl")
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.stdout.splitlines()]
    assert next(row for row in rows if row[:1] == ["2"])[1] == "none"
    assert next(row for row in rows if row[:1] == ["8"])[-1] in ("yes", "no")
    assert "ranks=99: 44 layers for 99 ranks" in done.stdout
    again = answer(call("plan", *words, "-o", tmp_path / "cases.jsonl", "--json"))
    assert [row["case"]["ranks"] for row in again["rows"]] == ["2", "8", "99"]
    assert set(again["rows"][1]) == KEYS - {"todays", "robustness", "memory_kinds"} | {"case", "reason"}
    assert "cannot fit" in again["rows"][0]["reason"]
    merged = call("plan", "--merge", tmp_path / "cases.jsonl", "-o", tmp_path / "all.jsonl")
    assert merged.stdout == done.stdout
    assert (tmp_path / "all.jsonl").read_text() == (tmp_path / "cases.jsonl").read_text()


def test_no_case_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptpipe.commands.plan.command.compiled", lambda: None)
    done = call("plan", "--what-if", "ranks=1,2", *GEMMA)
    assert done.exit_code == 1
    assert "none of the 2 cases has a plan; the first: gemma2-9b on h100x8 cannot fit" in done.stderr


def test_an_old_line_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    keep_lines(path, tuple(Line({"ranks": str(ranks)}, str(ranks), None, "does not fit") for ranks in (2, 3, 4)))
    done = call("plan", "--merge", path)
    assert done.exit_code == 0
    assert "ranks=2 and 2 more: does not fit" in done.stdout
    assert done.stdout.count("does not fit") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give --model and --cluster, or --instance with --name"),
        ((*GEMMA, "--jobs", 2), "--jobs: is for the cases of --what-if; add that, or leave it out"),
        ((*GEMMA, "--shard", "1/2"), "--shard: is for the cases of --what-if; add that, or leave it out"),
        ((*GEMMA, "ranks=2"), "ranks=2: is for --what-if or --merge; add one of them, or leave it out"),
        ((*GEMMA, "--what-if", "ranks=2", "--shard", "1/2"), "--shard: write its cases with -o FILE.jsonl"),
        ((*GEMMA[:4], "--microbatch-sizes", "x"), "--microbatch-sizes x: must be whole numbers from 1"),
        (
            (*GEMMA, "-o", "/dev/null/x"),
            "--output: the folder /dev/null/x cannot be made (Not a directory); a file's name ends in .json",
        ),
        (
            (*GEMMA, "--what-if", "ranks=2", "-o", "/dev/null/x"),
            "--output: the folder /dev/null/x cannot be made (Not a directory); a file's name ends in .jsonl",
        ),
        (("--model", "gemma-9b", "--cluster", "h100x8"), "did you mean gemma2-9b"),
        (("--model", "gemma2-9b", "--cluster", "h10x8"), "device 'h10': unknown; did you mean h100?"),
        (("--merge",), "--merge: give the files to merge, as in --merge cases/*.jsonl"),
        (("--merge", "no.jsonl"), "no.jsonl: cannot be read"),
    ],
)
def test_refusals(words: tuple[object, ...], message: str) -> None:
    done = call("plan", *words)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert message in done.stderr
