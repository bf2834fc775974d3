"""`adaptpipe methods`."""

from __future__ import annotations

from typing import Any

import msgspec

from adaptpipe.solver.core.placement import FAMILIES
from adaptpipe.solver.methods import METHODS
from tests.commands.cli import call


def listed(*words: str) -> list[dict[str, Any]]:
    """The list on stdout."""
    rows: list[dict[str, Any]] = msgspec.json.decode(call("methods", *words, "--json").stdout)
    return rows


def test_every_method_is_listed_in_full() -> None:
    data = listed()
    assert [row["name"] for row in data] == [method.name for method in METHODS]
    for row in data:
        assert row["placement"] in (*FAMILIES, "any")
        assert row["shapes"]
        assert row["source"]
        assert isinstance(row["aliases"], list)
        assert row["searches"] or (row["bubble"] and row["memory"])
    table = call("methods").stdout
    for method in METHODS:
        assert method.name in table
        assert method.source in table


def test_one_method_by_an_alias() -> None:
    text = call("methods", "zbh1").stdout
    assert "ZB-H1" in text
    assert "arXiv 2401.10241, section 2.1" in text
    assert "Rank r warms up as in 1F1B" in text
    assert "Raises" not in text
    assert [row["name"] for row in listed("zbh1")] == ["ZB-H1"]
    assert "updates" not in text
    assert "updates       double: one update a batch without a flush" in call("methods", "2bw").stdout
    assert "cut into slices" in call("methods", "seq1f1b").stdout
    assert "an update after each micro-batch" in call("methods", "pipedream").stdout
    assert "simulated annealing" in call("methods", "annealing").stdout


def test_an_unknown_method() -> None:
    result = call("methods", "magic")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "method: 'magic' is none of auto, cpsat" in result.stderr
