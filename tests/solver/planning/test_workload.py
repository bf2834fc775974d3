"""The problem of a split: every layer once, sums that are rounded once, what is tied counted once on one rank."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.solver.core.cluster import uniform_cluster
from adaptpipe.solver.core.errors import InputError
from adaptpipe.solver.core.placement import Placement, place
from adaptpipe.solver.core.problem import price
from adaptpipe.solver.core.profile import Measurement, Part, Profile
from adaptpipe.solver.planning.splits.partition import balanced
from adaptpipe.solver.planning.workload import Split, Tie, Workload, split_of, stage_ticks
from tests.solver.planning.shapes import placements, splits, workload, workloads

BLOCK = (2.0, 3.0, 1.0, 4, 2, 7)


@settings(max_examples=60)
@given(workloads(max_layers=5), st.data())
def test_a_stage_costs_the_sum_of_its_layers_rounded_up_once(work: Workload, data: st.DataObject) -> None:
    stages = data.draw(st.integers(work.ranks, work.layers))
    split = data.draw(st.sampled_from(list(splits(work.layers, stages))))
    placement = data.draw(st.sampled_from(list(placements(work.ranks, stages))))
    division = data.draw(st.sampled_from(work.divisions))
    problem, row, parts = work.problem(split, placement, division), placement.stages[0], work.profile.parts
    assert (problem.unit, problem.samples, problem.sizes) == ("us", work.samples, tuple(sorted(set(division))))
    for size in problem.sizes:
        at = [next(m for m in part.measurements if m.size == size) for part in parts]
        for stage, layers in enumerate(split):

            def ticks(field: str, layers: range = layers, stage: int = stage, at: list[Measurement] = at) -> int:
                seconds = sum(Fraction(repr(getattr(at[layer], field))) for layer in layers)
                speed = Fraction(repr(work.cluster.speed[row[stage]]))
                return ceil((seconds + Fraction(repr(work.profile.op_s))) * 10**6 / speed)

            held = [sum(getattr(at[layer], field) for layer in layers) for field in ("activation", "retained")]
            assert price(problem.forward[stage], size) == ticks("forward_s")
            assert price(problem.backward_input[stage], size) == ticks("backward_input_s")
            assert price(problem.weight_units[stage][0], size) == ticks("backward_weight_s")
            assert problem.backward is not None
            assert price(problem.backward[stage], size) == ticks("backward_s")
            assert price(problem.memory.activation[stage], size) == held[0]
            assert price(problem.memory.retained[stage], size) == held[1]
            assert price(problem.links.message[stage], size) == at[layers[-1]].message
    largest = max(m.transient for part in parts for m in part.measurements if m.size == max(division))
    assert problem.memory.reserve == (largest,) * work.ranks
    assert problem.memory.limit == work.cluster.memory
    assert problem.links.bandwidth == work.cluster.bandwidth
    for r in range(work.ranks):
        for q in range(work.ranks):
            assert problem.links.latency[r][q] == ceil(Fraction(repr(work.cluster.latency_s[r][q])) * 10**6)


@settings(max_examples=60)
@given(workloads(max_layers=5))
def test_what_is_tied_counts_once_on_one_rank(work: Workload) -> None:
    """The embedding and the head may share a weight: under V one rank holds both (NVIDIA/Megatron-LM issue 656)."""
    for split in splits(work.layers, work.ranks):
        for placement in placements(work.ranks, work.ranks):
            whole = [sum(work.profile.parts[layer].static for layer in layers) for layers in split]
            home = {layer: placement.stages[0][stage] for stage, layers in enumerate(split) for layer in layers}
            saved = sum(tie.static for tie in work.ties if home[tie.layers[0]] == home[tie.layers[1]])
            assert sum(work.stage_static(split, placement)) == sum(whole) - saved


def test_a_tie_saves_bytes_where_its_layers_share_a_rank_only() -> None:
    work = workload([BLOCK] * 4, 2, ties=(Tie((0, 3), 5),))
    quarters, halves = split_of([0, 1, 2, 3, 4]), split_of([0, 2, 4])
    assert work.stage_static(quarters, place("v", 2, 2)) == (7, 7, 7, 2)
    assert work.stage_static(quarters, place("loop", 2, 2)) == (7, 7, 7, 7)
    assert work.stage_static(halves, place("linear", 2)) == (14, 14)
    assert work.stage_static((range(4),), Placement(1, ((0,),))) == (23,)


@pytest.mark.parametrize(
    ("layers", "ranks", "family", "per_rank"),
    [(30, 4, "linear", 1), (80, 16, "loop", 2), (10, 4, "loop", 2), (30, 4, "v", 2), (33, 4, "wave", 4)],
)
def test_no_layer_is_lost_where_stages_do_not_divide_them(layers: int, ranks: int, family: str, per_rank: int) -> None:
    """30 layers on 4 ranks trained 28, without a word (NVIDIA/Megatron-LM issues 1304 and 468)."""
    work = workload([BLOCK] * layers, ranks)
    placement = place(family, ranks, per_rank)
    split = balanced(work, placement, work.divisions[0])
    assert split is not None
    assert [layer for part in split for layer in part] == list(range(layers))
    problem = work.problem(split, placement, work.divisions[0])
    assert sum(problem.memory.static) == 7 * layers
    assert sum(price(cost, 1) for cost in problem.forward) == 2 * layers


@settings(max_examples=100)
@given(st.integers(1, 60), st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True))
def test_divisions_are_near_uniform_and_differ(samples: int, sizes: list[int]) -> None:
    divisions = workload([BLOCK] * 2, 2, samples, tuple(sorted(sizes))).divisions
    assert len(set(divisions)) == len(divisions) <= len(sizes)
    for division in divisions:
        assert sum(division) == samples
        assert max(division) - min(division) <= 1
        assert any(len(division) == -(-samples // size) for size in sizes)


def test_a_size_that_was_not_measured_is_on_the_line_and_its_bytes_are_not_below() -> None:
    def at(size: int, seconds: float, count: int) -> Measurement:
        return Measurement(size, seconds, seconds, seconds, 2 * seconds, count, count, count)

    part = Part("layer", 3, (at(1, 3e-6, 100), at(3, 7e-6, 350)))
    work = Workload("", Profile("", (part,), 0.0), uniform_cluster("", 1, None, 0.0, 1e9), 4, (2,))
    prices = work.prices(2)
    assert prices.forward.tolist() == [5000]
    assert prices.backward.tolist() == [10000]
    assert prices.activation.tolist() >= [225]
    assert work.prices(3).activation.tolist() == [350]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"samples": 0}, "samples = 0: must be from 1 to 65536"),
        ({"samples": 10**12}, "samples = 1000000000000: must be from 1 to 65536, all of one pipeline"),
        ({"sizes": ()}, r"microbatch sizes = \[\]: must be distinct, at least 1 and in ascending order"),
        ({"sizes": (2, 1)}, r"microbatch sizes = \[2, 1\]"),
        ({"sizes": (1, 1)}, r"microbatch sizes = \[1, 1\]"),
        ({"sizes": (0, 1)}, r"microbatch sizes = \[0, 1\]"),
        (
            {"cluster": uniform_cluster("", 4, None, 0.0, 1e9)},
            "3 layers for 4 ranks: each rank needs one at least; use at most 3 ranks, or cut layers",
        ),
    ],
)
def test_a_workload_that_cannot_be_planned_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(workload([BLOCK] * 3, 2), **changed)


@pytest.mark.parametrize(
    ("split", "placement", "message"),
    [
        (split_of([0, 3]), place("bidirectional", 2), "placement: a plan has one direction; use linear, loop, v, wave"),
        (split_of([0, 1, 2, 3]), place("linear", 3), "placement: 3 ranks, and the cluster has 2"),
        (split_of([0, 3]), place("linear", 2), "split: 1 stages, and the placement has 2"),
        (split_of([0, 1, 1]), place("linear", 2), "split: stage 1 has layers 1 to 0, and layer 1 comes next"),
        ((range(2), range(1, 3)), place("linear", 2), "split: stage 1 has layers 1 to 2, and layer 2 comes next"),
        ((range(1), range(1, 3, 2)), place("linear", 2), "split: stage 1 has layers 1 to 2, and layer 1 comes next"),
        (split_of([0, 1, 2]), place("linear", 2), "split: ends before layer 2, and there are 3; every layer must be"),
    ],
)
def test_a_split_that_does_not_cover_the_layers_is_refused(split: Split, placement: Placement, message: str) -> None:
    with pytest.raises(InputError, match=message):
        workload([BLOCK] * 3, 2).problem(split, placement, (1, 1, 1, 1))


def test_half_ticks_add_up_before_they_are_rounded() -> None:
    work = workload([(0.5, 0.5, 0.5, 0, 0, 0)] * 4, 1)
    problem = work.problem((range(4),), Placement(1, ((0,),)), (1,) * 4)
    assert [price(problem.forward[0], 1), price(problem.weight_units[0][0], 1)] == [2, 2]
    assert stage_ticks(1, 1.0) == 1
