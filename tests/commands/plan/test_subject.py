"""From questions to workloads: which ranks, which batch, and what the figures are measured against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adaptpipe.commands.plan.question import Question
from adaptpipe.commands.plan.subject import subject
from adaptpipe.solver import InputError

from .tiny import write_instance


def test_a_model_on_a_cluster() -> None:
    found = subject(Question("gemma2-9b", "h100x8"))
    workload = found.workload
    assert (workload.layers, workload.ranks, workload.samples, workload.sizes) == (44, 8, 32, (1, 2, 3, 4))
    assert (found.parameters, found.shared, found.tokens) == (9_241_705_984, 256_000 * 3584, 32 * 4096)
    assert (found.devices, found.device_flops) == (8, 8 * 989e12)
    assert sum(part.parameters for part in workload.profile.parts) - found.shared == found.parameters
    assert len(workload.ties) == 1


def test_replicas_divide_the_batch_and_the_optimizer() -> None:
    one, two = (subject(Question("llama2-7b", "h100x16", dp=dp)) for dp in (1, 2))
    assert (one.workload.ranks, two.workload.ranks) == (16, 8)
    assert (one.workload.samples, two.workload.samples) == (64, 32)
    assert one.tokens == two.tokens
    bytes_each = [found.workload.profile.parts[1] for found in (one, two)]
    assert [part.static / part.parameters for part in bytes_each] == [18, 12]


def test_ranks_of_several_devices() -> None:
    """Eight H100s a rank in nodes of eight: every link leaves the node, as in the published studies of 70B."""
    found = subject(Question("llama3-70b", "h100x64", tp=8, sequence=8192)).workload
    assert (found.ranks, found.cluster.bandwidth[0][1], found.cluster.latency_s[0][1]) == (8, 40e9, 30e-6)


def test_other_ranks_memory_and_links() -> None:
    found = subject(Question("llama2-7b", "h100x8", ranks=4, memory=141.0, links=0.5)).workload
    assert (found.ranks, found.samples) == (4, 16)
    assert found.cluster.memory == (128_130_000_000,) * 4
    assert found.cluster.bandwidth[0][1] == 175e9


def test_layers_cut_in_two() -> None:
    found = subject(Question("llama2-7b", "h100x8", split_layers=True)).workload
    assert found.layers == 66


def test_fewer_positions_than_usual() -> None:
    assert subject(Question("gpt3-small", "h100x4")).tokens == 16 * 2048
    with pytest.raises(InputError, match="--sequence 4096: gpt3-small has 2048 positions"):
        subject(Question("gpt3-small", "h100x4", sequence=4096))


def test_an_instance_of_a_file(tmp_path: Path) -> None:
    path = write_instance(tmp_path)
    found = subject(Question(instance=path, ranks=4, memory=0.05, links=2.0, global_batch=3)).workload
    assert (found.name, found.ranks, found.samples, found.sizes) == ("tiny", 4, 3, (1, 2, 3))
    assert found.cluster.memory == (50_000_000,) * 4
    assert found.cluster.bandwidth[0][1] == 2e9
    assert subject(Question(instance=path, ranks=1)).workload.cluster.bandwidth == ((1e9,),)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dp": 2, "global_batch": 3}, "--global-batch 3: does not divide among 2 replicas; make it a multiple of 2"),
        ({"global_batch": 2, "microbatch_sizes": (3,)}, r"--microbatch-sizes \[3\]: none is within the 2 samples"),
        ({"recompute": "some"}, "--recompute some: must be one of none, selective, full"),
        ({"tp": 3}, "h100x8: 8 devices are not a multiple of 3"),
    ],
)
def test_what_does_not_fit_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        subject(Question("llama2-7b", "h100x8", **options))


def test_an_instance_that_cannot_grow(tmp_path: Path) -> None:
    path = write_instance(tmp_path, speed=[1.0, 0.5])
    with pytest.raises(InputError, match="--ranks 3: the instance has 2 ranks that are not all alike; ask for fewer"):
        subject(Question(instance=path, ranks=3))
    with pytest.raises(InputError, match=r"--global-batch 1: no micro-batch size of \[2\] is as small"):
        subject(Question(instance=path, microbatch_sizes=(2,), global_batch=1))
