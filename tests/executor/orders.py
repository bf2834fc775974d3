"""Valid schedules of many kinds, made by running ready ops in an order of preference."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from adaptpipe.solver import Kind, Op, Placement, Problem, Schedule
from adaptpipe.solver.core.precedence import ROW, SLICE_RULES, predecessors

POLICIES = ("gpipe", "1f1b", "zb", "late-w", "random")


def problem_for(placement: Placement, sizes: Sequence[int], units: int = 1, tokens: Sequence[int] = (1,)) -> Problem:
    """A problem that these sizes fit, one for each slice where there are several parts of tokens."""
    batch: dict[str, object] = {"samples": sum(sizes) // len(tokens), "microbatch_sizes": sorted(set(sizes))}
    if len(tokens) > 1:
        batch["slices"] = {"tokens": list(tokens)}
    return Problem.from_dict(
        {
            "pipeline": {"ranks": placement.ranks, "placement": [list(row) for row in placement.stages]},
            "batch": batch,
            "costs": {
                "forward": {"fixed": 1, "per_sample": 1},
                "backward_input": {"fixed": 1, "per_sample": 1},
                "weight_units": [{"fixed": 1, "per_sample": 1}] * units,
            },
        }
    )


def schedule_for(placement: Placement, sizes: Sequence[int], policy: str, seed: int = 0, slices: int = 1) -> Schedule:
    """Let ranks take turns, each running its most wanted op of those that are ready."""
    stages, count = placement.stage_count, len(sizes)
    chance = random.Random(seed)
    split = {
        (s, j): policy in ("zb", "late-w") or (policy == "random" and chance.random() < 0.6)
        for s in range(stages)
        for j in range(count)
    }
    todo: list[list[Op]] = [[] for _ in range(placement.ranks)]
    for (s, j), two in split.items():
        kinds = (Kind.F, Kind.I, Kind.W) if two else (Kind.F, Kind.B)
        todo[placement.rank_of(s, j, count)] += [Op(s, kind, j) for kind in kinds]
    done: set[tuple[int, int, int]] = set()
    rows: list[list[Op]] = [[] for _ in range(placement.ranks)]
    wanted = _wanted(policy, chance)

    def is_ready(op: Op) -> bool:
        row, j = ROW[op.kind], op.microbatch
        other = j + SLICE_RULES[row]
        in_turn = other == j or other // slices != j // slices or (row, op.stage, other) in done
        return in_turn and all((before, s, j) in done for before, s in predecessors(op, stages))

    while any(todo):
        ranks = list(range(placement.ranks))
        if policy == "random":
            chance.shuffle(ranks)
        for rank in ranks:
            ready = [op for op in todo[rank] if is_ready(op)]
            if ready:
                op = min(ready, key=wanted)
                rows[rank].append(op)
                todo[rank].remove(op)
                if op.kind is not Kind.W:
                    done.add((ROW[op.kind], op.stage, op.microbatch))
    return Schedule(placement, tuple(sizes), tuple(tuple(row) for row in rows), slices)


def in_units(schedule: Schedule, units: int) -> Schedule:
    """The last unit of each W by itself, and first."""
    parts = (units - 1, units), (0, units - 1)
    rows = (
        tuple(
            each for op in row for each in ([replace(op, units=part) for part in parts] if op.kind is Kind.W else [op])
        )
        for row in schedule.ops
    )
    return replace(schedule, ops=tuple(rows))


def stage_by_stage(placement: Placement, count: int) -> Schedule:
    """All forwards of each stage before those of the next, and so the backwards."""
    rows: list[list[Op]] = [[] for _ in range(placement.ranks)]
    stages = range(placement.stage_count)
    for kind, order in ((Kind.F, stages), (Kind.B, reversed(stages))):
        for stage in order:
            for j in range(count):
                rows[placement.rank_of(stage, j, count)].append(Op(stage, kind, j))
    return Schedule(placement, (1,) * count, tuple(tuple(row) for row in rows))


def _wanted(policy: str, chance: random.Random) -> Callable[[Op], tuple[float, ...]]:
    order = {
        "gpipe": {Kind.F: 0, Kind.B: 1, Kind.I: 1, Kind.W: 1},
        "1f1b": {Kind.B: 0, Kind.I: 0, Kind.F: 1, Kind.W: 2},
        "zb": {Kind.I: 0, Kind.B: 0, Kind.F: 1, Kind.W: 2},
        "late-w": {Kind.F: 0, Kind.I: 1, Kind.B: 1, Kind.W: 2},
    }
    if policy == "random":
        return lambda op: (chance.random(),)
    return lambda op: (order[policy][op.kind], op.microbatch, op.stage if op.kind is Kind.F else -op.stage)
