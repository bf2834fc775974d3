"""The command line is frozen: a change of a name, option, default or exit code is a change of this test's file."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from adaptpipe.commands import common
from adaptpipe.commands.app import app
from tests.commands.cli import answer, call, write_problem, write_schedule

GOLDEN = Path(__file__).parent / "command_line.json"

RESULT_KEYS = {
    "status", "method", "found_by", "objective", "makespan", "span", "bound", "gap", "bubble", "span_bubble",
    "utilisation", "peak_memory", "messages", "message_bytes", "time_s", "unit", "proven_for", "reason",
    "granularity", "microbatch_sizes", "fused", "cut", "updates", "weight_copies", "steady_microbatch", "steady_bubble",
}  # fmt: skip


def describe() -> dict[str, Any]:
    """Names, metavars and defaults as the commands' signatures state them, whatever typer's version makes of it."""
    table: dict[str, Any] = {}
    for command in app.registered_commands:
        callback = command.callback
        assert callback is not None
        arguments, options = [], {}
        for parameter in inspect.signature(callback, eval_str=True).parameters.values():
            kind, info = parameter.annotation.__args__[0], parameter.annotation.__metadata__[0]
            if isinstance(info, typer.models.ArgumentInfo):
                arguments.append(info.metavar)
            else:
                default = getattr(parameter.default, "value", parameter.default)
                if default is parameter.empty:
                    default = "required"
                # In an Annotated type the first name stands in the place of the default.
                names = [info.default, *info.param_decls]
                options[" ".join(names)] = {"value": kind is not bool, "default": default}
        table[command.name or callback.__name__] = {"arguments": arguments, "options": options}
    codes = {
        "done": 0,
        "no": common.NO,
        "usage": common.USAGE,
        "rank failed": common.RANK_FAILED,
        "interrupted": common.INTERRUPTED,
    }
    return {"commands": table, "exit codes": codes}


def test_names_options_defaults_and_exit_codes() -> None:
    found = msgspec.json.format(msgspec.json.encode(describe()), indent=1).decode() + "\n"
    assert found == GOLDEN.read_text(), "the command line changed; if that is meant, write the new text to the file"


def test_every_command_has_help() -> None:
    for name in describe()["commands"]:
        result = call(name, "--help")
        assert result.exit_code == 0
        assert f"Usage: adaptpipe {name} " in result.stdout


def test_version() -> None:
    from importlib.metadata import version

    result = call("--version")
    assert (result.exit_code, result.stdout) == (0, f"adaptpipe {version('adaptpipe')}\n")


def test_json_keys(tmp_path: Path) -> None:
    problem, schedule = write_problem(tmp_path), write_schedule(tmp_path)
    assert set(answer(call("solve", problem, "--json"))) == RESULT_KEYS | {"problem"}
    simulated = answer(call("simulate", problem, schedule, "--json"))
    assert set(simulated) == RESULT_KEYS - {"found_by", "proven_for", "reason", "granularity"} | {
        "problem",
        "over_limit",
        "execution",
        "under_noise",
    }
    assert set(answer(call("check", problem, schedule, "--json"))) == {"problem", "valid", "violations"}
    compared = answer(call("compare", problem, "--methods", "1f1b,zb-v", "--json"))
    assert set(compared) == {"problem", "rows", "front", "notes"}
    more = {
        "label", "fits", "placement", "stages_per_rank", "slices", "parameter_copies", "weight_versions",
        "gap_over_placements", "under_noise",
    }  # fmt: skip
    assert [set(row) for row in compared["rows"]] == [RESULT_KEYS | more] * 2
    shown = answer(call("show", problem, schedule, "--json", "-o", tmp_path / "x.svg"))
    assert {"problem", "output", "makespan", "span", "bubble", "span_bubble", "peak_memory", "unit"} <= set(shown)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["solve"], "Missing argument 'PROBLEM'"),
        (["fly"], "No such command 'fly'"),
        (["solve", "p.toml", "--fast"], "No such option: --fast"),
        (["solve", "p.toml", "--time-limit", "soon"], "Invalid value for '--time-limit'"),
        (["solve", "p.toml", "--time-limit", "0"], "0.0 is not a positive number of seconds"),
        (["solve", "p.toml", "--time-limit", "nan"], "nan is not a positive number of seconds"),
        (["solve", "p.toml", "--workers", "0"], "Invalid value for '--workers'"),
        (["solve", "p.toml", "--seed", "-1"], "Invalid value for '--seed'"),
        (["solve", "p.toml", "--granularity", "fused,unit"], "'unit' is none of fused, units, sizes, all, none"),
        (["solve", "p.toml", "--objective", "money"], "Invalid value for '--objective'"),
    ],
)
def test_usage_errors(words: list[str], message: str) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
