"""Models of a question: presets, config.json, run files, and layers that were measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adaptpipe.commands.plan.costing import costs_of
from adaptpipe.commands.plan.question import Question
from adaptpipe.commands.plan.subject import subject
from adaptpipe.models import GPTConfig
from adaptpipe.models.clusters import DEVICES
from adaptpipe.models.costs import HALF, PROCESSOR, SINGLE, Recipe, architecture_of, layers
from adaptpipe.solver import InputError
from adaptpipe.solver.planning.files.profile_file import LayerProfile

GPT: dict[str, Any] = {"kind": "gpt", "layers": 4, "width": 32, "heads": 2, "sequence": 16}
CONFIG = GPTConfig(layers=4, width=32, heads=2, sequence=16)
RUN = """
[model]
kind = "gpt"
layers = 4
width = 32
heads = 2
sequence = 16
"""


def profiled(folder: Path, model: dict[str, Any] | None = GPT, slower: float = 1.0, recipe: Recipe = SINGLE) -> str:
    """A file of measured layers: those of the formulas on a slower processor, at two sizes."""
    slow = replace(PROCESSOR, flops=PROCESSOR.flops / slower, bandwidth=PROCESSOR.bandwidth / slower)
    profile, ties = layers(architecture_of(CONFIG), slow, sequence=16, sizes=(1, 4), recipe=recipe)
    parts = tuple(
        replace(part, unit_work=(1,), measurements=tuple(replace(m, unit_bytes=()) for m in part.measurements))
        for part in profile.parts
    )
    path = folder / "layers.json"
    LayerProfile({16: replace(profile, parts=parts)}, ties, model).save(path)
    return str(path)


def run_file(folder: Path, text: str = RUN) -> str:
    """A run file."""
    path = folder / "gpt.toml"
    path.write_text(text)
    return str(path)


def test_a_run_files_model(tmp_path: Path) -> None:
    found = subject(Question(run_file(tmp_path), "h100x2"))
    assert (found.workload.name, found.workload.layers, found.tokens) == ("gpt on h100x2", 6, 8 * 16)
    assert found.model["kind"] == "gpt"
    part = found.workload.profile.parts[1]
    assert part.static == 16 * part.parameters, "single precision with Adam, as run trains"


def test_a_config_of_transformers(tmp_path: Path) -> None:
    data = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "vocab_size": 100,
    }
    (tmp_path / "config.json").write_text(json.dumps(data))
    one, other = (
        costs_of(Question(str(path), "h100x2"), DEVICES["h100"], (1,)) for path in (tmp_path, tmp_path / "config.json")
    )
    assert one.parameters == other.parameters == 2 * (4 * 64**2 + 3 * 64 * 96 + 2 * 64) + 2 * 100 * 64 + 64


def test_measured_layers_are_planned_as_they_are(tmp_path: Path) -> None:
    question = Question(cluster="h100x2", profile=profiled(tmp_path, slower=3.0))
    found = subject(question)
    times = {m.size: m.forward_s for m in found.workload.profile.parts[1].measurements}
    fast, _ = layers(architecture_of(CONFIG), PROCESSOR, sequence=16, sizes=(1, 4), recipe=SINGLE)
    assert times[4] > 1.5 * fast.parts[1].measurements[1].forward_s
    assert (found.measured, found.workload.name, found.tokens) == (True, "layers on h100x2", 8 * 16)
    assert found.flops is not None


def test_formulas_agree_with_what_was_measured(tmp_path: Path) -> None:
    """The model asked for has twice the layers of the one that was measured; its blocks cost what those did."""
    measured = profiled(tmp_path, slower=3.0)
    model = run_file(tmp_path, RUN.replace("layers = 4", "layers = 8"))
    found = costs_of(Question(model, "h100x2", measured), PROCESSOR, (1, 4))
    as_measured = costs_of(Question(cluster="h100x2", profile=measured), PROCESSOR, (1, 4))
    ours, theirs = (each.profile.parts[2].measurements[1] for each in (found, as_measured))
    assert ours.forward_s == pytest.approx(theirs.forward_s, rel=0.05)
    assert (found.measured, len(found.profile.parts), len(as_measured.profile.parts)) == (True, 10, 6)


@pytest.mark.parametrize("recipe", [SINGLE, HALF])
def test_bytes_do_not_depend_on_the_numbers_that_were_measured_with(tmp_path: Path, recipe: Recipe) -> None:
    """A profile in bf16 has half the bytes, which is not for the formulas to agree with."""
    found = costs_of(Question(run_file(tmp_path), "h100x2", profiled(tmp_path, recipe=recipe)), PROCESSOR, (1,))
    exact, _ = layers(architecture_of(CONFIG), PROCESSOR, sequence=16, sizes=(1,), recipe=SINGLE)
    for ours, theirs in zip(found.profile.parts, exact.parts, strict=True):
        assert ours.measurements[0].activation == pytest.approx(theirs.measurements[0].activation, rel=0.01)
        assert ours.measurements[0].retained == pytest.approx(theirs.measurements[0].retained, rel=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tp": 2}, "--tp: the layers of .*layers.json are as they were measured; leave it out, or give --model too"),
        ({"recompute": "full"}, "--recompute: the layers of .*layers.json are as they were measured"),
        ({"split_layers": True}, "--split-layers: the layers of .*layers.json are as they were measured"),
        ({"sequence": 99}, "sequence = 99: the profile holds 16; choose one of them"),
        ({"instance": "x"}, "--cluster: an instance of a file has its own"),
    ],
)
def test_what_measured_layers_are_not_for(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        subject(Question(cluster="h100x4", profile=profiled(tmp_path), **options))


def test_profiles_and_run_files_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--profile: says of no model that it was measured with; measure it with"):
        costs_of(Question("llama2-7b", "h100x2", profiled(tmp_path, None)), PROCESSOR, (1,))
    with pytest.raises(InputError, match=r"model.kind: missing; the table needs the kind of the model and its keys"):
        costs_of(Question(run_file(tmp_path, "ranks = 2"), "h100x2"), PROCESSOR, (1,))


def test_layers_that_nobody_can_count(tmp_path: Path) -> None:
    """An MLP is no decoder: its layers are planned, but there is no MFU."""
    found = subject(
        Question(cluster="h100x2", profile=profiled(tmp_path, {"kind": "mlp", "layers": 1, "width": 8, "inputs": 8}))
    )
    assert (found.flops, found.shared) == (None, 0)
