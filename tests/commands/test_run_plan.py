"""`adaptpipe run` with a plan: what the plan decides, what it must agree with, and the way from a profile to a run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from adaptpipe.commands.plan.question import Question
from adaptpipe.commands.plan.subject import subject
from adaptpipe.commands.planned import as_planned
from adaptpipe.commands.planning import configure
from adaptpipe.commands.run_file import load_run
from adaptpipe.models import build, describe_split
from adaptpipe.solver import InputError, Measurement, NoAnswerError, Part, Problem, Profile, Schedule, simulate
from adaptpipe.solver.core.cluster import uniform_cluster
from adaptpipe.solver.core.placement import explicit
from adaptpipe.solver.heuristics import gpipe, zb_v
from adaptpipe.solver.heuristics.one_by_one import one_by_one
from adaptpipe.solver.planning.files.plan_file import PlanFile, load_plan
from adaptpipe.solver.planning.plan import Plan
from adaptpipe.solver.planning.workload import Workload, split_of
from tests.commands.cli import answer, call

GPT = {"kind": "gpt", "layers": 2, "width": 16, "heads": 2, "sequence": 16, "tied": True}
MLP = {"kind": "mlp", "layers": 3, "width": 16, "inputs": 8}
CLUSTER = """
devices_per_node = 4
[[devices]]
device = {name = "cpu", tflops = 0.1, tb_per_s = 0.02, memory_gb = 16, inside_gb_per_s = 1, between_gb_per_s = 1}
count = 2
"""


def workload(model: Mapping[str, Any], ranks: int, samples: int, memory: int | None = None) -> Workload:
    """The layers of a model at 2 ms for each op and sample, and held bytes that no layer's comes near to."""
    keys = {key: value for key, value in model.items() if key != "kind"}
    config = build(model["kind"], **keys)
    sizes = (1, 2)
    costs = tuple(
        Measurement(size, 2e-3 * size, 2e-3 * size, 1e-3, 4e-3, 10**6 * size, 10**6 * size, 99) for size in sizes
    )
    parts = tuple(
        Part(name, 0, costs, kind=sort.partition(",")[0], parameters=count)
        for name, sort, count in zip(config.layer_names, config.layer_sorts, config.layer_parameters, strict=True)
    )
    return Workload(
        "made", Profile("made", parts, 0.0), uniform_cluster("made", ranks, memory, 0.0, 1e9), samples, sizes
    )


def write_plan(
    path: Path,
    model: Mapping[str, Any],
    split: Sequence[int],
    placement: Sequence[int],
    sizes: Sequence[int],
    *,
    method: Callable[[Problem, tuple[int, ...]], Schedule] = gpipe,
    memory: int | None = None,
    says: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
) -> Path:
    """A plan of a model, with the order of a heuristic."""
    work = workload(model, max(placement) + 1, sum(sizes), memory)
    bounds = [sum(split[:stage]) for stage in range(len(split) + 1)]
    problem = work.problem(split_of(bounds), explicit(work.ranks, placement), sizes)
    schedule = method(problem, tuple(sizes))
    plan = Plan(work, split_of(bounds), simulate(problem, schedule), 1, "made", 0.0)
    told = {**model, "sequence": model.get("sequence", 1), "recompute": "none", "global_batch": sum(sizes)}
    PlanFile.of(plan, told if says is None else says, cluster or {}, {"bound": 1}).save(path)
    return path


def write_run(folder: Path, model: Mapping[str, Any] | None = None) -> Path:
    """A run file of few steps."""
    path = folder / "run.json"
    data = {"steps": 3, "out": str(folder / "out")} | ({} if model is None else {"model": model})
    path.write_text(json.dumps(data))
    return path


def adaptpipe(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, which is where what its ranks say can be read."""
    return subprocess.run(
        [sys.executable, "-m", "adaptpipe", *map(str, words)], capture_output=True, text=True, timeout=500, check=False
    )


@pytest.mark.timeout(900)
def test_the_way_from_a_profile_to_a_run(tmp_path: Path) -> None:
    """Layers measured on this machine, planned for two of its ranks, trained as planned."""
    run, cluster = write_run(tmp_path, model=GPT), tmp_path / "cpu.toml"
    cluster.write_text(CLUSTER)
    profile, plan = tmp_path / "profile.json", tmp_path / "plan.json"
    for words in (
        ("profile", run, "--layers", "-o", profile),
        ("plan", "--profile", profile, "--cluster", cluster, "--global-batch", "6", "--time-limit", "3", "-o", plan),
        ("run", run, "--set", f"plan={plan}", "--json"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "adaptpipe", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=550,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    found, planned = json.loads(done.stdout), load_plan(plan)
    for row in found["run"]:
        assert row["gradient_error"] <= 1e-5
    ours = found["run"][-1]
    assert ours["schedule"] == "plan"
    assert ours["predicted_step_s"] == pytest.approx(int(str(planned.figures["makespan"])) / 1e6)
    assert Schedule.load(tmp_path / "out" / "schedule.json") == planned.schedule
    assert f"all stages: {len(planned.layers)} layers, each in one stage" in done.stderr


@pytest.mark.timeout(120)
def test_uneven_stages_of_a_plan_cover_every_layer_once(tmp_path: Path) -> None:
    """Of 30 layers on 4 ranks, 28 were trained in silence: NVIDIA/Megatron-LM#1304. Here 5 in 4 stages, as planned."""
    plan = write_plan(
        tmp_path / "plan.json", MLP, (2, 1, 1, 1), (0, 1, 2, 0), (2, 2, 1), method=one_by_one, memory=9 * 10**6
    )
    done = adaptpipe("run", write_run(tmp_path), "--set", f"plan={plan}", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (row,) = found["run"]  # GPipe holds more than the plan's limit
    assert found["ratio"] is None
    assert "GPipe cannot run on the plan's stages (" in done.stderr
    assert row["gradient_error"] <= 1e-5
    assert row["predicted_step_s"] == pytest.approx(simulate_s(plan))
    config, split = build("mlp", **{key: value for key, value in MLP.items() if key != "kind"}), load_plan(plan).split
    for line in describe_split(config, split):
        assert line in done.stderr
    assert f"all stages: 5 layers, each in one stage, {sum(config.layer_parameters):,} parameters" in done.stderr


def simulate_s(plan: Path) -> float:
    """Seconds of a plan's step."""
    found = load_plan(plan)
    return simulate(found.problem, found.schedule).makespan / 1e6


@pytest.mark.timeout(120)
def test_a_method_solves_the_order_of_a_plans_stages_again(tmp_path: Path) -> None:
    """At the costs measured, within the plan's limits."""
    plan = write_plan(tmp_path / "plan.json", GPT, (1, 1, 2), (0, 1, 1), (2, 1), memory=10**9)
    done = call("run", write_run(tmp_path), "--set", f"plan={plan}", "--set", "method=gpipe", "--json")
    assert done.exit_code == 0, done.stderr
    found = answer(done)
    assert [row["schedule"] for row in found["run"]] == ["GPipe", "GPipe"]
    assert all(row["gradient_error"] <= 1e-5 for row in found["run"])
    problem = Problem.load(tmp_path / "out" / "problem.json")
    assert problem.placement.stages == ((0, 1, 1),)
    assert problem.sizes == (1, 2)
    assert problem.memory.limit == (10**9, 10**9)
    assert problem.forward != load_plan(plan).problem.forward


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["ranks=3"], r"ranks = 3: plan = '.*plan\.json' is for 2 ranks; leave ranks out, or plan again"),
        (["placement=linear"], r"placement = 'linear': plan = .* has the placement v with 4 stages; leave placement"),
        (["placement=wave", "stages_per_rank=4"], r"placement = 'wave': .* has the placement v with 4 stages"),
        (["placement=[0, 1, 0, 1]"], r"placement = \[0, 1, 0, 1\]: .* has the placement v with 4 stages"),
        (["placement=v", "stages_per_rank=1"], "placement = 'v': "),
        (["data_parallel=2"], r"data_parallel = 2: .* is for 1 replicas"),
        (["samples=8"], r"samples = 8: .* is for 3 samples a step"),
        (["microbatch_sizes=[1, 3]"], r"microbatch_sizes = \[1, 3\]: .* has micro-batches of \[1, 2\]"),
        (["slices=2"], r"slices = 2: .* has whole micro-batches; leave slices out, or plan again"),
        (["memory_limit=none"], r"memory_limit = 'none': .* has the limits \[1000000000, 1000000000\]"),
        (["memory_limit=baseline"], r"memory_limit = 'baseline': .* has the limits"),
        (["problem=p.toml"], r"problem = 'p\.toml': .* has a problem of its own"),
        (["method=zb-v", "baseline=1F1B"], r"baseline = '1F1B': placement: 1F1B needs placement 'linear'"),
        (["model.layers=1"], r"has 4 layers, embedding to head, and the model 3, embedding to head; give the model"),
        (["model.width=32"], r"layer 0, embedding, has 4,352 parameters, and the model's 8,704; give the model"),
        (["model.sequence=8"], r"model\.sequence = 8: .* is for samples of 16 tokens; use as many"),
        (
            ["model={kind = 'mlp', layers = 2, width = 8, inputs = 8}"],
            r"embedding, is of kind embedding, .* kind entry",
        ),
    ],
)
def test_what_contradicts_a_plan_is_refused(tmp_path: Path, settings: list[str], message: str) -> None:
    plan = write_plan(tmp_path / "plan.json", GPT, (1, 1, 1, 1), (0, 1, 1, 0), (2, 1), memory=10**9)
    with pytest.raises(InputError, match=message):
        configure(load_run(write_run(tmp_path, model=GPT), [f"plan={plan}", *settings]))


def test_what_agrees_with_a_plan_may_stand_in_the_run_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = write_plan(tmp_path / "plan.json", GPT, (1, 1, 1, 1), (0, 1, 1, 0), (2, 1), memory=10**9)
    same = [
        "ranks=2",
        "placement=v",
        "samples=3",
        "microbatch_sizes=[1, 2, 4]",
        f"memory_limit={10**9}",
        "time_limit=3",
    ]
    spec = load_run(write_run(tmp_path), [f"plan={plan}", *same])  # and the model is the plan's own
    config, parts, _ = configure(spec)
    assert config == build("gpt", **{key: value for key, value in GPT.items() if key != "kind"})
    assert parts == load_plan(plan).split
    assert spec.place() == load_plan(plan).schedule.placement
    assert spec.baseline_name == "ZB-V"
    assert spec.as_planned
    assert "time_limit: the plan's own schedule is run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("says", "cluster", "message"),
    [
        ({}, {"tp": 8}, "was made with --tp 8; a run does not divide layers among devices, so plan with --tp 1"),
        ({}, {"ep": 2}, "was made with --ep 2; a run does not divide experts"),
        ({"recompute": "full"}, {}, "was made with --recompute full; stages of a run keep what they compute"),
        ({}, {"dp": 2, "zero": 1}, "was made with --dp 2 --zero 1; .* so plan with --zero 0"),
        ({"name": "llama2-7b"}, {}, "model: missing, and plan = .* has only a name, 'llama2-7b'; give a "),
        ({"instance": "some.json", "name": "a"}, {}, "model: missing, and plan = .* has only a name, 'a'; give a "),
        ({"name": "nowhere/config.json", "sequence": 16}, {}, r"nowhere/config\.json"),
    ],
)
def test_a_plan_that_a_run_cannot_follow(
    tmp_path: Path, says: dict[str, Any], cluster: dict[str, Any], message: str
) -> None:
    plan = write_plan(tmp_path / "plan.json", GPT, (1, 3), (0, 1), (1, 1), says=says, cluster=cluster)
    with pytest.raises(InputError, match=message):
        configure(load_run(write_run(tmp_path), [f"plan={plan}"]))


def test_replicas_of_a_plan_share_the_batch_out(tmp_path: Path) -> None:
    plan = write_plan(tmp_path / "plan.json", GPT, (1, 3), (0, 1), (2, 2), cluster={"dp": 2, "zero": 0})
    spec = load_run(write_run(tmp_path), [f"plan={plan}", "data_parallel=2"])
    assert (spec.processes, spec.samples, spec.pipeline_samples) == (4, 8, 4)


def test_a_baseline_that_was_asked_for_must_fit(tmp_path: Path) -> None:
    plan = write_plan(tmp_path / "plan.json", MLP, (2, 3), (0, 1), (2, 2), method=one_by_one, memory=7 * 10**6)
    spec = load_run(write_run(tmp_path), [f"plan={plan}", "baseline=gpipe"])
    with pytest.raises(NoAnswerError, match=r"baseline gpipe: .*; choose another, or leave it out"):
        as_planned(spec)
    Schedule.parse(spec.place(), (2, 2), [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]).save(
        tmp_path / "base.json"
    )
    with pytest.raises(NoAnswerError, match=r"base\.json: .*; choose another, or leave it out"):
        as_planned(load_run(write_run(tmp_path), [f"plan={plan}", f"baseline={tmp_path}/base.json"]))


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "model",
    [
        GPT,
        {
            "kind": "hf", "family": "llama", "sequence": 16, "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 256,
        },
    ],
    ids=["gpt", "llama"],
)  # fmt: skip
def test_attention_and_mlp_of_a_block_on_different_ranks(tmp_path: Path, model: dict[str, Any]) -> None:
    """As plans of --split-layers have it: the run file's model is that of whole blocks, and so are the gradients'."""
    plan = write_plan(
        tmp_path / "plan.json", {**model, "split_blocks": True}, (2, 2, 1, 1), (0, 1, 1, 0), (2, 1), method=zb_v
    )
    run = write_run(tmp_path, model=model)
    halves, parts, _ = configure(load_run(run, [f"plan={plan}"]))
    assert halves.layer_names[2:4] == ("mlp 0", "attention 1")
    assert parts[1] == range(2, 4)
    done = call("run", run, "--set", f"plan={plan}", "--set", "steps=1", "--json")
    assert done.exit_code == 0, done.stderr
    assert all(row["gradient_error"] <= 1e-5 for row in answer(done)["run"])
    with pytest.raises(InputError, match="has 6 layers, embedding to head, and the model 4"):
        configure(load_run(run, [f"plan={plan}", "model.split_blocks=false"]))


def test_the_schedule_of_a_plan_needs_a_plan(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="method = 'plan': is the schedule of a plan; give plan = FILE too"):
        load_run(write_run(tmp_path), ["method=plan"])


@pytest.mark.timeout(120)
def test_a_plan_is_emulated_without_a_model(tmp_path: Path) -> None:
    plan = write_plan(tmp_path / "plan.json", MLP, (2, 3), (0, 1), (1, 1), says={"name": "llama2-7b"})
    done = call("run", write_run(tmp_path), "--emulate", "--set", f"plan={plan}", "--set", "steps=1", "--json")
    assert done.exit_code == 0, done.stderr
    assert [row["schedule"] for row in answer(done)["emulated"]] == ["1F1B", "1F1B", "plan", "plan"]


def test_a_run_file_may_name_the_plan_that_is_made_of_it(tmp_path: Path) -> None:
    run, cluster = tmp_path / "run.toml", tmp_path / "cpu.toml"
    run.write_text(
        'plan = "not there yet.json"\n[model]\nkind = "gpt"\nlayers = 2\nwidth = 16\nheads = 2\nsequence = 16'
    )
    cluster.write_text(CLUSTER)
    assert subject(Question(model=str(run), cluster=str(cluster))).workload.layers == 4
    with pytest.raises(InputError, match=r"not there yet\.json: cannot be read"):
        load_run(run)
