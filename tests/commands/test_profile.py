"""What `adaptpipe profile` shows of a profile; measuring one is tested with real processes elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from adaptpipe.commands import layers
from adaptpipe.commands.layers import Bench
from adaptpipe.commands.links import Measured
from adaptpipe.commands.run_file import RunSpec
from adaptpipe.executor import MeasuredDevice, MeasuredLinks
from adaptpipe.models.clusters import load_fleet
from adaptpipe.solver import Measurement, Part, Problem, Profile
from adaptpipe.solver.planning.files.profile_file import load_profile
from adaptpipe.solver.planning.workload import Tie

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


LAYER = Part("block 0", 2**20, (measured(1), measured(2)), 1.0, (1, 3), "block", 1234, 0.25)


@pytest.fixture
def gpt_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GPT with tied matrices, whose layers seem to be measured."""

    def launch(function: object, ranks: int, bench: Bench, preload: object) -> list[dict[int, Profile]]:
        assert ranks == 2
        names = [name for config, _ in bench.models().values() for name in config.layer_names]
        parts = tuple(replace(LAYER, name=name) for name in names[:4])
        return [{sequence: Profile("test", parts, 0.0, op_s=5e-5) for sequence in bench.models()}]

    monkeypatch.setattr("adaptpipe.commands.layers.launch", launch)
    path = tmp_path / "run.toml"
    path.write_text(
        'ranks = 2\nsamples = 4\n[model]\nkind = "gpt"\nlayers = 2\nwidth = 8\nheads = 2\nsequence = 16\ntied = true\n'
    )
    return path


def test_layers_are_shown_and_written(gpt_file: Path, tmp_path: Path) -> None:
    done = call("profile", gpt_file, "--layers", "--sequences", "32,8", "-o", tmp_path / "p.json")
    assert done.exit_code == 0, done.output
    (row, *_) = (line.split() for line in done.stdout.splitlines() if line.lstrip(" │┃").startswith("embedding … head"))
    assert row[3:9] == ["1,234", "1", "4.000", "4.000", "4.000", "7.600"]
    assert "samples of 8 tokens" in done.stdout
    assert "equal layers lie 25.0% apart at most; every op of a stage takes 50 us" in done.stdout
    found = load_profile(tmp_path / "p.json")
    assert sorted(found.lengths) == [8, 32]
    assert found.ties == (Tie((0, 3), 4 * 4 * 256 * 8),)
    assert found.model is not None
    assert found.model["kind"] == "gpt"
    assert found.at(32).parts[1] == replace(LAYER, name="block 0")


def test_layers_as_json_are_the_file(gpt_file: Path, tmp_path: Path) -> None:
    done = call("profile", gpt_file, "--layers", "--json", "-o", tmp_path / "p.json")
    assert answer(done) == msgspec.json.decode((tmp_path / "p.json").read_bytes())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sequences", "8"], "--sequences: goes with --layers"),
        (["--links", "--sequences", "8"], "--sequences: goes with --layers"),
        (["--dtype", "bfloat16"], "--dtype: goes with --layers or --links"),
        (["--device", "cuda"], "--device: goes with --layers or --links"),
        (["--links", "--layers"], "--layers and --links: give one of them"),
        (["--links", "--device", "cuda"], "--device cuda: torch sees no GPU here"),
        (["--links", "--set", "ranks=1"], "ranks = 1: one rank has no links"),
        (["--links", "-o", "cluster.toml"], "--output cluster.toml: a cluster file is known by its name"),
        (["--layers", "--sequences", "8,x"], "'x' is not a length"),
        (["--layers", "--device", "cuda"], "--device cuda: torch sees no GPU here"),
    ],
)
def test_refusals(gpt_file: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = call("profile", gpt_file, *words)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_vectors_have_no_sequence(run_file: Path) -> None:
    done = call("profile", run_file, "--layers", "--sequences", "8")
    assert done.exit_code == 2
    assert '--sequences: a model of kind "mlp" takes vectors' in done.stderr


def test_a_models_layers_are_built_and_measured(one_thread: None) -> None:
    """What a rank does: two lengths, in the numbers that were asked for."""
    model = {"kind": "gpt", "layers": 1, "width": 8, "heads": 2, "sequence": 16}
    bench = Bench(RunSpec(model=model, samples=2, microbatch_sizes=[1, 2]), (4, 8), "cpu", "bfloat16")
    found = layers._measure(0, 1, bench)
    assert list(found) == [4, 8]
    for sequence, profile in found.items():
        assert [part.kind for part in profile.parts] == ["embedding", "block", "head"]
        assert [m.message for m in profile.parts[1].measurements] == [2 * 8 * sequence, 2 * 2 * 8 * sequence]


LINKS = MeasuredLinks(((0.0, 2e-4), (2e-4, 0.0)), ((0.0, 3e9), (1.5e9, 0.0)))
FOUND = Measured(LINKS, MeasuredDevice("this", 2e11, 1e10, 8 * 10**9))


def test_links_become_a_cluster_file(run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adaptpipe.commands.links.launch", lambda *_, **__: (FOUND,) * 2)
    done = call("profile", run_file, "--links", "-o", tmp_path / "cluster.json")
    assert done.exit_code == 0, done.output
    assert "200 us, 1.5 GB/s" in done.stdout
    assert "0.2 TFLOP/s in large matrix products, 10 GB/s when a tensor is copied, 8 GB for each rank" in done.stdout
    device, cluster = load_fleet(str(tmp_path / "cluster.json")).cluster()
    assert cluster.ranks == 2
    assert cluster.latency_s[0][1] == cluster.latency_s[1][0] == pytest.approx(2e-4)
    assert (cluster.bandwidth[0][1], cluster.bandwidth[1][0]) == pytest.approx((3e9, 1.5e9))
    assert cluster.memory == (8 * 10**9,) * 2
    assert device.flops * device.achieved.gemm == pytest.approx(2e11)
    same = call("profile", run_file, "--links", "--json")
    assert answer(same)["links"] == msgspec.json.decode((tmp_path / "cluster.json").read_bytes())["links"]


def test_ranks_that_differ(run_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slightly different figures are chance; half the speed, or half the memory, is not."""
    devices = [("a", 2.0, 8), ("a", 1.8, 8), ("b", 1.0, 4)]
    rows = tuple(tuple(0.0 if a == b else 1e9 for b in range(3)) for a in range(3))
    late = tuple(tuple(each / 1e13 for each in row) for row in rows)
    found = [Measured(MeasuredLinks(late, rows), MeasuredDevice(n, f * 1e11, 1e10, m * 10**9)) for n, f, m in devices]
    monkeypatch.setattr("adaptpipe.commands.links.launch", lambda *_, **__: found)
    done = call("profile", run_file, "--links", "-o", tmp_path / "cluster.json")
    assert "that is rank 0; rank 2 0.50 times as fast" in done.stdout
    _, cluster = load_fleet(str(tmp_path / "cluster.json")).cluster()
    assert cluster.speed == (1.0, 1.0, 0.5)
    assert cluster.memory == (8 * 10**9, 8 * 10**9, 4 * 10**9)


@pytest.mark.timeout(120)
def test_links_are_measured(run_file: Path) -> None:
    done = call("profile", run_file, "--links", "--json")
    assert done.exit_code == 0, done.output
    found = answer(done)
    (latency, back), (speed, _) = found["links"]["latency_us"][0], found["links"]["gb_per_s"][1]
    assert latency == 0
    assert back > 0
    assert speed > 0
    assert found["devices"][0]["device"]["tflops"] > 0
