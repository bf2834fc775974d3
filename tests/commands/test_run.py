"""`adaptpipe run` and `profile`, with real processes on a tiny model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import msgspec
import pytest
import torch

from adaptpipe.commands.planning import configure
from adaptpipe.commands.run_file import RunSpec, load_run
from adaptpipe.commands.training import check_resumed
from adaptpipe.models import build_full, next_byte_loss, training_batches
from adaptpipe.solver import InputError, NoAnswerError, Problem, Schedule, check, place
from adaptpipe.solver.traces.reading import load_trace
from tests.commands.cli import call
from tests.nesting import tracks
from tests.solver.pytorch.test_messages import HUNG
from tests.theirs import dump, theirs

TINY = """
ranks = 2
samples = 4
steps = 4
time_limit = 2
out = "{out}"
[model]
kind = "gpt"
layers = 2
width = 16
heads = 2
sequence = 16
"""


SLICED = ("--set", "slices={tokens = [3, 1], work = [2, 1]}", "--set", "memory_limit=none")


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(TINY.format(out=tmp_path / "out"))
    return path


def adaptpipe(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "adaptpipe", *map(str, args)], capture_output=True, text=True, timeout=110, check=False
    )


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["--set", "placement=v", "--set", "baseline={}/zbv.csv", "--set", "microbatch_sizes=[1, 2]"],
        ["--set", "placement=loop", "--set", "stages_per_rank=2", "--set", "method=SVPP", *SLICED],
    ],
    ids=["linear", "v, against PyTorch's", "slices"],
)
def test_run_trains_under_both_schedules_and_writes_them(run_file: Path, tmp_path: Path, settings: list[str]) -> None:
    """pytorch/torchtitan#550: the console showed loss -1.0; here the loss is the owner's, with every placement."""
    dump(theirs("ZBVZeroBubble", 2, 4), tmp_path / "zbv.csv")
    settings = [word.replace("{}", str(tmp_path)) for word in settings]
    done = adaptpipe("run", run_file, "--json", *settings)
    assert done.returncode == 0, done.stderr
    assert ("predicted bytes leave out what slices hold" in done.stderr) == ("method=SVPP" in settings)
    answer = json.loads(done.stdout)
    for row in answer["run"]:
        assert row["gradient_error"] <= 1e-5
        assert 0 < row["last_loss"] < row["first_loss"]
        assert row["measured_step_s"] > 0
        assert row["predicted_step_s"] > 0
        assert len(row["measured_peak_bytes"]) == 2
    problem = Problem.load(tmp_path / "out" / "problem.json")
    for stem in ("baseline", "schedule"):
        assert check(problem, Schedule.load(tmp_path / "out" / f"{stem}.json")) == ()
        assert (tmp_path / "out" / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        file = tmp_path / "out" / f"{stem}.trace.json"
        trace = load_trace(file)
        assert trace.schedule == Schedule.load(tmp_path / "out" / f"{stem}.json")
        assert trace.makespan_ns > 0
        assert {rank for rank, _ in tracks(json.loads(file.read_text())["traceEvents"])} == {0, 1}


@pytest.mark.timeout(240)
def test_training_goes_on_with_other_ranks_and_replicas(run_file: Path, tmp_path: Path) -> None:
    """Then each stage has four: two pipelines, in each of which micro-batches go both ways.

    Rank 0 tells the loss once, and as it is, wherever the last stage is, here with V: pytorch/torchtitan#550."""
    path = tmp_path / "model.pt"
    common = ["model.tied=true", "clip=0.5", "method=zb-v", "placement=v", "steps=3"]
    words = [word for setting in common for word in ("--set", setting)]
    first = adaptpipe("run", run_file, *words, "--set", f"checkpoint={path}")
    assert first.returncode == 0, first.stderr
    losses = single_process(load_run(run_file, common), 6)
    told = re.findall(r"loss, step 1 to 3 +(\d\.\d+) to (\d\.\d+)", first.stdout)
    assert told == [(f"{losses[0]:.3f}", f"{losses[2]:.3f}")], first.stdout
    others = ["placement=bidirectional", "method=dualpipe", "data_parallel=2", f"resume={path}"]
    words += [word for setting in others for word in ("--set", setting)]
    second = adaptpipe("run", run_file, "--json", *words)
    assert second.returncode == 0, second.stderr
    for row in json.loads(second.stdout)["run"]:
        assert (row["first_loss"], row["last_loss"]) == pytest.approx((losses[3], losses[5]), rel=1e-5)
        assert row["gradient_error"] <= 1e-5


def single_process(spec: RunSpec, steps: int) -> list[float]:
    """Losses of the unsplit model."""
    config, _, text = configure(spec)
    model = build_full(config, spec.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.learning_rate)
    losses = []
    for batch, target in islice(training_batches(config, text, spec.samples, spec.seed), steps):
        optimizer.zero_grad()
        loss = next_byte_loss(model(batch), target)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), spec.clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.timeout(120)
def test_run_trains_a_llama_of_transformers(tmp_path: Path) -> None:
    settings = {
        "model.num_hidden_layers": 2,
        "model.hidden_size": 16,
        "model.intermediate_size": 24,
        "model.sequence": 16,
        "model.tie_word_embeddings": "true",  # as the file does not
        "samples": 4,
        "steps": 4,
        "learning_rate": 0.01,
        "method": "ZB-H1",  # a search would take longer than all else here
        "out": tmp_path / "out",
    }
    example = Path(__file__).parents[2] / "examples" / "llama-small.toml"
    done = adaptpipe("run", example, "--json", *(f"--set={key}={value}" for key, value in settings.items()))
    assert done.returncode == 0, done.stderr
    for row in json.loads(done.stdout)["run"]:
        assert row["gradient_error"] <= 1e-5
        assert 0 < row["last_loss"] < row["first_loss"]


def test_a_run_refuses_dropout_which_would_make_gradients_differ() -> None:
    keys = {"kind": "hf", "family": "gpt2", "sequence": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
    with pytest.raises(InputError, match=r"model.resid_pdrop = 0.1: .* set model.resid_pdrop = 0 and model.embd_pdrop"):
        configure(RunSpec(model=keys))
    configure(RunSpec(model={**keys, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}))


@pytest.mark.timeout(120)
def test_profile_writes_a_problem_that_solves(run_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    done = adaptpipe("profile", run_file, "-o", path, "--json", "--set", "profile_sizes=[1, 2]")
    assert done.returncode == 0, done.stderr
    profile = json.loads(done.stdout)
    assert [len(part["measurements"]) for part in profile["parts"]] == [2, 2]
    for part in profile["parts"]:
        small, large = part["measurements"]
        assert large["activation"] > small["activation"] > 0
        assert small["forward_s"] > 0
        assert set(part["fits"]) == {"F", "I", "W", "B"}
        assert all(each["error"] >= 0 for each in part["fits"].values())
        assert part["range_s"] >= 0
        assert part["fused_saving"] < 1
    assert Problem.load(path).stages == 2


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("ranks=0", "ranks: expected `int` >= 1"),
        ("ranks", "write --set key=value"),
        ("rank=2", "contains unknown field `rank`"),
        ("ranks.more=2", "ranks is not a table"),
        ("memory_limit=most", "memory_limit: "),
        ("learning_rate=-1", "learning_rate: "),
    ],
)
def test_a_bad_setting_is_named(run_file: Path, setting: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        load_run(run_file, [setting])
    assert message in str(error.value)


def test_settings_overrule_the_file(run_file: Path) -> None:
    spec = load_run(run_file, ["ranks=4", "model.layers=8", "data=my file.txt", "placement=v"])
    assert isinstance(spec, RunSpec)
    assert spec.ranks == 4
    assert spec.model["layers"] == 8
    assert spec.data == "my file.txt"
    assert spec.place().stage_count == 8


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.layers=0", "model.layers = 0: must be a whole number from 1"),
        ("model.kind=rnn", "model.kind = 'rnn': unknown"),
        ("data=nowhere.txt", "cannot be read"),
        ("placement=ring", "placement: 'ring' is none of"),
        ("model.vocab=64", "model.vocab = 64: the text has the byte"),
        ("baseline=ZB-V", "baseline = 'ZB-V': placement: ZB-V needs placement 'v', and this problem's is 'linear'"),
        ("ranks=9", "stages = 9 and layers = 4"),
        ("baseline=2F2B", "'2F2B' is none of"),
        ("data_parallel=3", "samples = 4: no multiple of data_parallel = 3"),
        ("resume=nothing.pt", "resume = 'nothing.pt': there is no such file"),
        ("resume=/etc/passwd", "resume = '/etc/passwd': is no checkpoint; a run with checkpoint"),
        ("checkpoint=/tmp", "checkpoint = '/tmp': is a folder"),
        ("checkpoint=/dev/null/m.pt", "checkpoint = '/dev/null/m.pt': the folder /dev/null cannot be made"),
        ("out=/dev/null", "out = '/dev/null': the folder /dev/null cannot be made"),
        ("noise=slow_rank=7:2", "noise.slow_rank: there is no rank 7; ranks are 0..1"),
        ("samples=5", "batch.samples: 5 is no sum of the sizes [2]"),
    ],
)
@pytest.mark.timeout(120)
def test_bad_input_of_a_run_exits_with_2(run_file: Path, setting: str, message: str) -> None:
    done = adaptpipe("run", run_file, "--set", setting, "--set", "microbatch_sizes=[2]")
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_baseline_whose_messages_never_end_does_not_start(run_file: Path, tmp_path: Path) -> None:
    """Both ranks sent before they received, and neither ever ended: pytorch/pytorch#172668."""
    (tmp_path / "hung.csv").write_text(HUNG)
    spec = load_run(run_file, [f"baseline={tmp_path}/hung.csv", "placement=loop", "stages_per_rank=2", "samples=3"])
    with pytest.raises(NoAnswerError, match=r"hung\.csv: deadlock where sends block: row 1 \(rank 0\), column 12: 0S"):
        configure(spec)


def test_a_baseline_of_another_shape(run_file: Path, tmp_path: Path) -> None:
    Schedule.parse(place("linear", 2), (2, 2), [["0F0", "0B0"], ["1F0", "1B0"]]).save(tmp_path / "s.json")
    spec = load_run(run_file, [f"baseline={tmp_path}/s.json", "placement=loop", "stages_per_rank=2"])
    with pytest.raises(InputError, match=r"^baseline = '.*s\.json': the schedule is for 2 stages on 2 ranks, the p"):
        configure(spec)


def test_no_run_is_without_a_flush(run_file: Path, tmp_path: Path) -> None:
    rows = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]
    Schedule.parse(place("linear", 2), (2, 2), rows, updates="stash").save(tmp_path / "s.json")
    spec = load_run(run_file, [f"baseline={tmp_path}/s.json", "microbatch_sizes=[2]"])
    with pytest.raises(
        InputError, match=r"^baseline = '.*s\.json': an update after each .* with adaptpipe\.executor\.Asy"
    ):
        configure(spec)
    with pytest.raises(
        InputError, match=r"^method = 'PipeDream': an update after each micro-batch, .*\.AsyncPipeline$"
    ):
        configure(load_run(run_file, ["method=PipeDream"]))
    with pytest.raises(InputError, match=r"^baseline = '2BW': one update a batch without a flush, .* as 1F1B"):
        configure(load_run(run_file, ["baseline=2BW"]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            [],
            r'^memory_limit = "baseline": slices also hold the keys and values .* set memory_limit = "none", or bytes',
        ),
        (
            ["model={kind='mlp', layers=4, width=8, inputs=16}"],
            "^slices: stages of a model of kind 'mlp' take whole seq",
        ),
        (
            ["model.sequence=15"],
            r"^model.sequence = 15: .* 1:1 do not divide; use multiples of 2, as 14 or 16, or other",
        ),
        (["slices={}"], "^slices: neither tokens nor work; write the number of slices"),
        (
            ["microbatch_sizes=[1, 2]"],
            "^slices: given while 2 micro-batch sizes .* write one in microbatch_sizes, or leave",
        ),
        (
            ["method=zb-h1"],
            "^method = 'zb-h1': slices: ZB-H1 runs whole micro-batches, and these are cut into 2 slices",
        ),
        (
            ["method=seq1f1b", "placement=loop", "stages_per_rank=2"],
            "^method = 'seq1f1b': placement: Seq1F1B needs placement 'linear'",
        ),
        (["placement=v"], "^baseline = 'GPipe': slices: GPipe runs whole .*; leave slices out, or choose auto"),
    ],
)
def test_slices_that_a_run_cannot_have(run_file: Path, settings: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configure(load_run(run_file, ["slices=2", *settings]))


def test_where_there_is_no_usual_baseline_another_is_named(run_file: Path) -> None:
    odd = ["placement=bidirectional", "ranks=3"]
    with pytest.raises(InputError, match=r"^baseline = 'Chimera': ranks: .* or set another .* baseline = \"greedy\"$"):
        configure(load_run(run_file, odd))
    with pytest.raises(InputError, match=r"^baseline = 'Chimera': ranks: .* nearest: ranks = 2 or 4$"):
        configure(load_run(run_file, [*odd, "baseline=Chimera"]))
    configure(load_run(run_file, [*odd, "baseline=greedy"]))


def test_the_usual_baselines_of_slices() -> None:
    names = {"linear": "Seq1F1B", "loop": "Seq1F1B-I"}
    assert {place: RunSpec(slices=2, placement=place).baseline_name for place in names} == names


def test_a_csv_of_another_shape(run_file: Path, tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("0F0,0B0\n1F0,1B0\n")
    spec = load_run(run_file, [f"baseline={tmp_path}/s.csv", "placement=loop", "stages_per_rank=2", "samples=1"])
    with pytest.raises(
        InputError, match=r"^.*s\.csv: the schedule is for 2 stages on 2 ranks, the problem .* its rows"
    ):
        configure(spec)


def test_a_checkpoint_of_another_model_is_refused_before_the_work(run_file: Path, tmp_path: Path) -> None:
    """And a key that only an emulation reads is not passed over in silence."""
    path = tmp_path / "model.pt"
    torch.save({"model": {"x": torch.ones(1)}, "optimizer": None}, path)
    done = call("run", run_file, "--set", f"resume={path}", "--set", "seconds_per_tick=1e-6")
    assert done.exit_code == 2
    assert re.search(r"model\.pt: has nothing for '.*' of the model; it has 'x'", done.stderr), done.stderr
    assert "seconds_per_tick is for --emulate" in done.stderr
    assert "measuring" not in done.stderr

    spec = load_run(run_file, [f"resume={path}", "model.tied=true"])
    model = build_full(configure(spec)[0], spec.seed)
    torch.save({"model": model.state_dict(), "optimizer": None}, path)
    with pytest.raises(InputError, match="has no state of an optimizer"):
        check_resumed(spec)
    one_name = dict(model.state_dict())
    del one_name[configure(spec)[0].ties[0][1][1]]
    torch.save({"model": one_name, "optimizer": {}}, path)
    check_resumed(spec)
    torch.save({"model": {**one_name, "more": torch.ones(1)}, "optimizer": {}}, path)
    with pytest.raises(InputError, match="no stage has 'more'"):
        check_resumed(spec)


def test_the_documentation_lists_every_key_with_its_default() -> None:
    section = (Path(__file__).parents[2] / "docs" / "files.md").read_text().split("## Run files")[1].split("\n## ")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE))
    assert list(listed) == list(RunSpec.__struct_fields__)
    defaults = {
        field.name: field.default for field in msgspec.structs.fields(RunSpec) if field.default is not msgspec.NODEFAULT
    }
    for key, default in defaults.items():
        if key not in {"stages_per_rank", "seconds_per_tick"}:  # None: what it is follows from other keys
            assert listed[key].strip().strip("`") in (str(default), f'"{default}"', str(default).removesuffix(".0"))
