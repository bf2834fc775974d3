"""Hypothesis strategies: small random problems, and random schedules of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from adaptpipe.solver import Kind, Op, Problem, Schedule

Data = dict[str, Any]
T = TypeVar("T")


FAMILIES = ("linear", "loop", "v", "wave", "bidirectional", "explicit")


@st.composite
def problem_data(
    draw: st.DrawFn,
    max_ranks: int = 4,
    max_samples: int = 6,
    families: tuple[str, ...] = FAMILIES,
    limited: bool | None = None,
    sizes: bool = True,
    units: bool = True,
    slices: bool = False,
) -> Data:
    """The keys of a problem file.

    Parameters
    ----------
    max_ranks, max_samples
        Largest p and batch.
    families
        Placements to draw from.
    limited
        Whether there are memory limits; None: either. Limits may be too small for any schedule.
    sizes
        Whether micro-batch sizes other than 1 may be allowed.
    units
        Whether a stage's weight gradient may have several units.
    slices
        Whether micro-batches are sliced.
    """
    ranks = draw(st.integers(1, max_ranks))
    of_one_direction = tuple(family for family in families if family != "bidirectional")
    pipeline, stages = draw(_pipelines(ranks, draw(st.sampled_from(of_one_direction if slices else families))))
    samples = draw(st.integers(1, max_samples))
    allowed = draw(st.sampled_from([[1], [1], [1, 2], [1, 3], [1, 2, 3]])) if sizes and not slices else [1]
    several = len(allowed) > 1
    ticks, some_bytes = st.integers(0, 12), st.integers(0, 9)
    costs: Data = {
        "forward": draw(_per_stage(ticks, stages, several)),
        "backward_input": draw(_per_stage(ticks, stages, several)),
    }
    if units and draw(st.booleans()):
        rows = st.lists(_cost(ticks, several), min_size=1, max_size=3)
        costs["weight_units"] = draw(st.lists(rows, min_size=stages, max_size=stages))
        costs["overhead"] = draw(st.integers(0, 3))
    else:
        costs["backward_weight"] = draw(_per_stage(ticks, stages, several))
    if draw(st.booleans()):
        costs["backward"] = draw(_per_stage(st.integers(0, 20), stages, several))
    data: Data = {
        "pipeline": pipeline,
        "batch": {"samples": samples, "microbatch_sizes": allowed} | ({"slices": draw(_slices())} if slices else {}),
        "costs": costs,
        "unit": draw(st.sampled_from(["ns", "us", "ms", "s"])),
        "memory": {
            "unit": draw(st.sampled_from(["B", "KB", "MiB"])),
            "activation": draw(_per_stage(some_bytes.map(lambda n: n + 1), stages, several)),
            "retained": draw(_per_stage(some_bytes, stages, several)),
            "static": (static := draw(st.integers(0, 5))),
            "weights": draw(st.integers(0, static)),
            "reserve": draw(st.integers(0, 2)),
        },
        "links": draw(_links(ranks, stages, several)),
    }
    if draw(st.booleans()) if limited is None else limited:
        limit = st.integers(5, 120)
        one = st.none() | limit if limited is None else limit
        data["memory"]["limit"] = draw(limit | st.lists(one, min_size=ranks, max_size=ranks))
    return data


def problems(**options: Any) -> st.SearchStrategy[Problem]:
    """Problems; for the options see `problem_data`."""
    return problem_data(**options).map(Problem.from_dict)


@st.composite
def _pipelines(draw: st.DrawFn, ranks: int, family: str) -> tuple[Data, int]:
    if family == "explicit":
        every = draw(st.permutations(range(ranks)))
        more = draw(st.lists(st.integers(0, ranks - 1), max_size=3))
        row = draw(st.permutations([*every, *more]))
        return {"ranks": ranks, "placement": list(row)}, len(row)
    per_rank = {"v": 2, "wave": 2, "loop": draw(st.integers(1, 2))}.get(family, 1)
    return {"ranks": ranks, "placement": family, "stages_per_rank": per_rank}, ranks * per_rank


@st.composite
def _slices(draw: st.DrawFn) -> Any:
    count, part = draw(st.integers(2, 3)), st.integers(1, 3)
    parts = st.lists(part, min_size=count, max_size=count)
    return draw(st.just(count) | st.fixed_dictionaries({"work": parts}, optional={"tokens": parts}))


def _cost(values: st.SearchStrategy[int], several: bool) -> st.SearchStrategy[Any]:
    affine = st.fixed_dictionaries({"fixed": values, "per_sample": values})
    return affine if several else values | affine


def _per_stage(values: st.SearchStrategy[int], stages: int, several: bool) -> st.SearchStrategy[Any]:
    cost = _cost(values, several)
    return cost | st.lists(cost, min_size=stages, max_size=stages)


@st.composite
def _links(draw: st.DrawFn, ranks: int, stages: int, several: bool) -> Data:
    times = st.integers(0, 6)
    row = st.lists(times, min_size=ranks, max_size=ranks)
    links: Data = {"latency": draw(times | st.lists(row, min_size=ranks, max_size=ranks))}
    if draw(st.booleans()):
        # Bytes per second, so that the messages of every unit take some ticks and not millions.
        links["bandwidth"] = draw(st.sampled_from([1e9, 3e9, 1e10]))
        links["bytes"] = draw(_per_stage(st.integers(0, 9), stages, several))
    return links


@st.composite
def sizes_of(draw: st.DrawFn, problem: Problem) -> tuple[int, ...]:
    """Micro-batch sizes that a problem allows, in any order; size 1 must be among the allowed ones."""
    if problem.slices is not None:
        return problem.default_sizes()
    sizes: list[int] = []
    while (left := problem.samples - sum(sizes)) > 0:
        sizes.append(draw(st.sampled_from([size for size in problem.sizes if size <= left])))
    return tuple(sizes)


@st.composite
def schedules_of(draw: st.DrawFn, problem: Problem) -> Schedule:
    """A valid order: a random topological order of the ops, with fused, split and cut backwards."""
    sizes = draw(sizes_of(problem))
    stages, count = problem.stages, len(sizes)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    needs: dict[Op, list[Op]] = {}
    back: dict[tuple[int, int], Op] = {}
    for j in range(count):
        for s in reversed(range(stages)):
            split = bool(random.integers(2))
            back[s, j] = Op(s, Kind.I if split else Kind.B, j)
            needs[back[s, j]] = [Op(s, Kind.F, j)] + ([back[s + 1, j]] if s + 1 < stages else [])
            needs[Op(s, Kind.F, j)] = [Op(s - 1, Kind.F, j)] if s else []
            if split:
                units = len(problem.weight_units[s])
                cuts = sorted({0, units, *random.integers(0, units + 1, 2).tolist()})
                whole = random.integers(2) or units == 1
                parts = [None] if whole else list(pairwise(cuts))
                for part in parts:
                    needs[Op(s, Kind.W, j, part)] = [back[s, j]]
    for j in (j for j in range(count) if j % problem.slice_count):
        for s in range(stages):
            needs[Op(s, Kind.F, j)].append(Op(s, Kind.F, j - 1))
            needs[back[s, j - 1]].append(back[s, j])
    ops: list[list[Op]] = [[] for _ in range(problem.ranks)]
    done: set[Op] = set()
    waiting = list(needs)
    while waiting:
        ready = [op for op in waiting if all(need in done for need in needs[op])]
        op = ready[int(random.integers(len(ready)))]
        waiting.remove(op)
        done.add(op)
        ops[problem.placement.rank_of(op.stage, op.microbatch, count)].append(op)
    return Schedule(problem.placement, sizes, tuple(tuple(row) for row in ops), problem.slice_count)


def drawn(strategy: st.SearchStrategy[T], count: int, number: int) -> list[T]:
    """The same examples in every run, by the seed `number`: for cases that processes work off together."""
    found: list[T] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(each: T) -> None:
        found.append(each)

    collect()
    return found
