"""Problem files: TOML or JSON in, JSON out. Every complaint names file, key and remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from ..core.errors import InputError
from ..core.granularity import total
from ..core.placement import Placement, explicit, place
from ..core.problem import BYTES, Affine, Cost, Links, Memory, Problem
from ..core.slices import MOST_SLICES, Slices
from .reading import convert, read_struct, write_text

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
RankCount = Annotated[int, msgspec.Meta(ge=1, le=4096)]
LayerCount = Annotated[int, msgspec.Meta(ge=1, le=1024)]  # `compare` tries every number of stages that divides them
"""A pipeline of more ranks than that is a mistyped number; matrices of links grow with its square."""
StagesPerRank = Annotated[int, msgspec.Meta(ge=1, le=1024)]


class AffineSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`{fixed = a, per_sample = b}`."""

    fixed: Natural = 0
    per_sample: Natural = 0


CostSpec = Natural | AffineSpec
PerStage = CostSpec | list[CostSpec]
Units = list[CostSpec | list[CostSpec]]


class PipelineSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[pipeline]`."""

    ranks: RankCount
    placement: str | list[int | list[int]] = "linear"
    stages_per_rank: StagesPerRank | None = None
    layers_per_stage: LayerCount | list[LayerCount] | None = None


class SlicesSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`{tokens = [a, b], work = [c, d]}`, relative; without one of them, that one is equal for all."""

    tokens: list[Positive] | None = None
    work: list[Positive] | None = None


class BatchSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[batch]`."""

    samples: Annotated[int, msgspec.Meta(ge=1, le=10**6)]
    microbatch_sizes: list[Positive] = msgspec.field(default_factory=lambda: [1])
    slices: Annotated[int, msgspec.Meta(ge=1, le=MOST_SLICES)] | SlicesSpec = 1


class CostsSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[costs]`."""

    forward: PerStage
    backward_input: PerStage
    backward_weight: PerStage | None = None
    weight_units: Units | None = None
    backward: PerStage | None = None
    overhead: Natural | list[Natural] = 0


class MemorySpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[memory]`."""

    unit: str = "B"
    activation: PerStage | None = None
    retained: PerStage | None = None
    retained_units: Units | None = None
    static: Natural | list[Natural] = 0
    weights: Natural | list[Natural] = 0
    reserve: Natural | list[Natural] = 0
    limit: Natural | list[Natural | None] | None = None


class LinksSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[links]`."""

    latency: Natural | list[list[Natural]] = 0
    bandwidth: float | list[list[float]] | None = None
    bytes: PerStage | None = None


class ProblemSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A problem file."""

    pipeline: PipelineSpec
    batch: BatchSpec
    costs: CostsSpec
    name: str | None = None
    unit: str = "us"
    memory: MemorySpec = MemorySpec()
    links: LinksSpec = LinksSpec()


def load_problem(path: str | Path) -> Problem:
    """Read a problem file, TOML or JSON by its ending.

    Raises
    ------
    InputError
        With file, key (or line) and remedy.
    """
    spec = read_struct(path, ProblemSpec)
    try:
        return problem_from_spec(spec, Path(path).stem)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def problem_from_dict(data: Mapping[str, object]) -> Problem:
    """Build a problem from a mapping with the keys of a file."""
    return problem_from_spec(convert("problem", dict(data), ProblemSpec))


def problem_from_spec(spec: ProblemSpec, default_name: str = "") -> Problem:
    """Build the problem that a file describes."""
    placement = _placement(spec.pipeline)
    stages, ranks = placement.stage_count, placement.ranks
    costs, memory = spec.costs, spec.memory
    if memory.unit not in BYTES:
        raise InputError(f"memory.unit: {memory.unit!r} is none of {', '.join(BYTES)}")
    scale = BYTES[memory.unit]
    for key, value in (("retained", memory.retained), ("retained_units", memory.retained_units)):
        if value is not None and memory.activation is None and value != 0:
            raise InputError(f"memory.{key}: given without memory.activation; say what F holds")
    if memory.retained is not None and memory.retained_units is not None:
        raise InputError("memory.retained: given beside memory.retained_units; leave one out")
    activation = _per_stage("memory.activation", memory.activation or 0, stages, scale)
    retained_units = _units("memory.retained_units", memory.retained_units, stages, scale)
    if memory.retained is not None:
        retained = _per_stage("memory.retained", memory.retained, stages, scale)
    elif retained_units is not None:
        retained = tuple(total(units) for units in retained_units)
    else:
        retained = activation
    weights = _integers("memory.weights", memory.weights, stages, scale)
    limit = memory.limit
    limits = [limit] * ranks if limit is None or isinstance(limit, int) else limit
    return Problem(
        name=default_name if spec.name is None else spec.name,
        unit=spec.unit,
        placement=placement,
        samples=spec.batch.samples,
        sizes=tuple(spec.batch.microbatch_sizes),
        forward=_per_stage("costs.forward", costs.forward, stages),
        backward_input=_per_stage("costs.backward_input", costs.backward_input, stages),
        weight_units=_weight_units(costs, stages),
        backward=None if costs.backward is None else _per_stage("costs.backward", costs.backward, stages),
        overhead=_integers("costs.overhead", costs.overhead, stages),
        layers=_layers(spec.pipeline, stages),
        memory=Memory(
            activation=activation,
            retained=retained,
            retained_units=retained_units,
            static=_integers("memory.static", memory.static, stages, scale),
            reserve=_integers("memory.reserve", memory.reserve, ranks, scale),
            limit=tuple(None if value is None else value * scale for value in limits),
            unit=memory.unit,
            weights=weights if any(weights) else (),
        ),
        links=_links(spec.links, ranks, stages),
        slices=slices_from(spec.batch.slices),
    )


def slices_from(spec: int | SlicesSpec) -> Slices | None:
    """What `batch.slices` says.

    Raises
    ------
    InputError
        When it says nothing, or what cannot be.

    Examples
    --------
    >>> slices_from(SlicesSpec(work=[3, 4]))
    Slices(tokens=(1, 1), work=(3, 4))
    """
    if isinstance(spec, int):
        return None if spec == 1 else Slices.equal(spec)
    if spec.tokens is None and spec.work is None:
        raise InputError("batch.slices: neither tokens nor work; write the number of slices, or one of the two")
    tokens, work = spec.tokens, spec.work
    equal = (1,) * len(tokens or work or ())
    return Slices(equal if tokens is None else tuple(tokens), equal if work is None else tuple(work))


def _placement(spec: PipelineSpec) -> Placement:
    if isinstance(spec.placement, str):
        default = 2 if spec.placement in ("v", "wave") else 1
        return place(spec.placement, spec.ranks, spec.stages_per_rank or default)
    if spec.stages_per_rank is not None:
        raise InputError("pipeline.stages_per_rank: the list in pipeline.placement says it already; leave it out")
    rows = spec.placement
    _refuse_mixture("pipeline.placement", rows)
    if rows and isinstance(rows[0], list):
        directions = tuple(tuple(row) for row in rows if isinstance(row, list))
        if len(directions) > 2:
            raise InputError(f"pipeline.placement: {len(directions)} directions; there are one or two")
        if len(directions) == 1:
            return explicit(spec.ranks, directions[0])
        mirror = place("bidirectional", spec.ranks)
        return mirror if directions == mirror.stages else Placement(spec.ranks, directions)
    return explicit(spec.ranks, [rank for rank in rows if isinstance(rank, int)])


def _layers(spec: PipelineSpec, stages: int) -> tuple[int, ...]:
    """Layers of each stage; none where no stage has several."""
    row = _integers("pipeline.layers_per_stage", 1 if spec.layers_per_stage is None else spec.layers_per_stage, stages)
    return row if max(row) > 1 else ()


def _refuse_mixture(key: str, row: Sequence[object]) -> None:
    """Lists all, or none: a number among lists would be dropped."""
    lists = [isinstance(value, list) for value in row]
    if any(lists) and not all(lists):
        raise InputError(f"{key}[{lists.index(False)}]: not a list, and others are; write lists only, or none")


def _cost(spec: CostSpec, scale: int = 1) -> Cost:
    if isinstance(spec, AffineSpec):
        return Affine(spec.fixed * scale, spec.per_sample * scale)
    return spec * scale


def _per_stage(key: str, spec: PerStage, stages: int, scale: int = 1) -> tuple[Cost, ...]:
    row = spec if isinstance(spec, list) else [spec] * stages
    if len(row) != stages:
        raise InputError(f"{key}: {len(row)} values for {stages} stages; give one number, or one for each stage")
    return tuple(_cost(cost, scale) for cost in row)


def _integers(key: str, spec: int | list[int], count: int, scale: int = 1) -> tuple[int, ...]:
    row = spec if isinstance(spec, list) else [spec] * count
    if len(row) != count:
        raise InputError(f"{key}: {len(row)} values, {count} are needed; give one number for all, or one for each")
    return tuple(value * scale for value in row)


def _units(key: str, spec: Units | None, stages: int, scale: int = 1) -> tuple[tuple[Cost, ...], ...] | None:
    if spec is None:
        return None
    rows = [unit for unit in spec if isinstance(unit, list)]
    _refuse_mixture(key, spec)
    if not rows:
        one = tuple(_cost(unit, scale) for unit in spec if not isinstance(unit, list))
        return (one,) * stages
    if len(rows) != stages:
        raise InputError(f"{key}: {len(rows)} lists for {stages} stages; give one list for all, or one for each stage")
    return tuple(tuple(_cost(unit, scale) for unit in row) for row in rows)


def _weight_units(costs: CostsSpec, stages: int) -> tuple[tuple[Cost, ...], ...]:
    units = _units("costs.weight_units", costs.weight_units, stages)
    if (units is None) == (costs.backward_weight is None):
        problem = "both given" if units is not None else "neither given"
        raise InputError(f"costs.backward_weight and costs.weight_units: {problem}; give one of them")
    if units is not None:
        return units
    assert costs.backward_weight is not None
    return tuple((cost,) for cost in _per_stage("costs.backward_weight", costs.backward_weight, stages))


def _links(spec: LinksSpec, ranks: int, stages: int) -> Links:
    latency = spec.latency if isinstance(spec.latency, list) else [[spec.latency] * ranks] * ranks
    bandwidth = spec.bandwidth
    if isinstance(bandwidth, float | int):
        bandwidth = [[bandwidth] * ranks] * ranks
    return Links(
        latency=tuple(tuple(row) for row in latency),
        bandwidth=None if bandwidth is None else tuple(tuple(float(v) for v in row) for row in bandwidth),
        message=() if spec.bytes is None else _per_stage("links.bytes", spec.bytes, stages),
    )


def problem_to_spec(problem: Problem) -> ProblemSpec:
    """What a file says of a problem; `problem_from_spec` undoes it."""
    memory, links, placement = problem.memory, problem.links, problem.placement
    scale = BYTES[memory.unit]
    parts = [memory.activation, memory.retained, memory.static, memory.weights, memory.reserve]
    whole = [
        value
        for row in parts
        for cost in row
        for value in ((cost.fixed, cost.per_sample) if isinstance(cost, Affine) else (cost,))
    ]
    whole += [value for value in memory.limit if value is not None]
    for row in memory.retained_units or ():
        whole += [v for cost in row for v in ((cost.fixed, cost.per_sample) if isinstance(cost, Affine) else (cost,))]
    unit = memory.unit if all(value % scale == 0 for value in whole) else "B"
    scale = BYTES[unit]
    directions = placement.stages
    stages: list[int | list[int]] = list(directions[0]) if len(directions) == 1 else [list(row) for row in directions]
    return ProblemSpec(
        name=problem.name,
        unit=problem.unit,
        pipeline=PipelineSpec(placement.ranks, stages, layers_per_stage=list(problem.layers) or None),
        batch=BatchSpec(problem.samples, list(problem.sizes), _slices_out(problem.slices)),
        costs=CostsSpec(
            forward=_out(problem.forward),
            backward_input=_out(problem.backward_input),
            weight_units=[_out(units) for units in problem.weight_units],
            backward=None if problem.backward is None else _out(problem.backward),
            overhead=list(problem.overhead) or [0] * problem.stages,
        ),
        memory=MemorySpec(
            unit=unit,
            activation=_out(memory.activation, scale),
            retained=None if memory.retained_units is not None else _out(memory.retained, scale),
            retained_units=None if memory.retained_units is None else [_out(u, scale) for u in memory.retained_units],
            static=[value // scale for value in memory.static],
            weights=[value // scale for value in memory.weights] or 0,
            reserve=[value // scale for value in memory.reserve],
            limit=[None if value is None else value // scale for value in memory.limit],
        ),
        links=LinksSpec(
            latency=[list(row) for row in links.latency],
            bandwidth=None if links.bandwidth is None else [list(row) for row in links.bandwidth],
            bytes=_out(links.message) if links.message else None,
        ),
    )


def _slices_out(slices: Slices | None) -> int | SlicesSpec:
    if slices is None or slices == Slices.equal(slices.count):
        return 1 if slices is None else slices.count
    return SlicesSpec(list(slices.tokens), list(slices.work))


def _out(costs: tuple[Cost, ...], scale: int = 1) -> list[CostSpec]:
    return [AffineSpec(c.fixed // scale, c.per_sample // scale) if isinstance(c, Affine) else c // scale for c in costs]


def save_problem(problem: Problem, path: str | Path) -> None:
    """Write a problem as JSON.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    encoded = msgspec.json.encode(problem_to_spec(problem))
    write_text(path, msgspec.json.format(encoded, indent=1).decode() + "\n")
