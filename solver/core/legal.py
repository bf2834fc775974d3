"""What a problem must be like: lists of the right lengths, and numbers that can be meant."""

from __future__ import annotations

from .errors import InputError
from .problem import LARGEST, SECONDS, Affine, Cost, Problem


def require_legal(problem: Problem) -> None:
    """Refuse what cannot be meant.

    Raises
    ------
    InputError
        With the key of a problem file, the value and a remedy.
    """
    if problem.unit not in SECONDS:
        raise InputError(f"unit: {problem.unit!r} is none of {', '.join(SECONDS)}")
    if problem.samples < 1:
        raise InputError(f"batch.samples: {problem.samples} is below 1")
    if not problem.sizes or list(problem.sizes) != sorted(set(problem.sizes)) or problem.sizes[0] < 1:
        raise InputError(
            f"batch.microbatch_sizes: {list(problem.sizes)} must be distinct sizes of at least 1, in ascending order"
        )
    if problem.slices is not None:
        _check_slices(problem)
    _check_costs(problem)
    problem.default_sizes()


def _check_slices(problem: Problem) -> None:
    if len(problem.sizes) > 1:
        raise InputError(
            f"batch.slices: given while {len(problem.sizes)} micro-batch sizes are allowed; micro-batches that are "
            "sliced are of one size: write one in batch.microbatch_sizes, or leave batch.slices out"
        )
    if problem.placement.directions > 1:
        raise InputError(
            "batch.slices: given while stages have replicas in two directions; choose a placement of one "
            "direction, or leave batch.slices out"
        )


def _check_costs(problem: Problem) -> None:
    stages, ranks = problem.stages, problem.ranks
    per_stage: dict[str, tuple[Cost, ...]] = {
        "costs.forward": problem.forward,
        "costs.backward_input": problem.backward_input,
        "costs.backward": problem.backward if problem.backward is not None else (0,) * stages,
        "costs.overhead": problem.overhead or (0,) * stages,
        "pipeline.layers_per_stage": problem.layers or (1,) * stages,
        "memory.activation": problem.memory.activation,
        "memory.retained": problem.memory.retained,
        "memory.static": problem.memory.static,
        "memory.weights": problem.memory.weights or (0,) * stages,
        "links.bytes": problem.links.message or (0,) * stages,
    }
    fixed_size = {"costs.overhead", "pipeline.layers_per_stage", "memory.static", "memory.weights", "links.bytes"}
    for key, row in per_stage.items():
        if len(row) != stages:
            raise InputError(f"{key}: {len(row)} values for {stages} stages; give one number, or one for each stage")
        for stage, cost in enumerate(row):
            _check_cost(
                problem, f"{key}[{stage}]", cost, plain=key in fixed_size or not isinstance(cost, int) or cost == 0
            )
    for stage, count in enumerate(problem.layers):
        if count < 1:
            raise InputError(f"pipeline.layers_per_stage[{stage}]: {count} is below 1; a stage has a layer or more")
    for stage, (part, whole) in enumerate(zip(problem.memory.weights, problem.memory.static, strict=False)):
        if part > whole:
            raise InputError(
                f"memory.weights[{stage}]: {part} B are more than memory.static[{stage}], {whole} B, of which they "
                "are a part; raise memory.static"
            )
    nested = {"costs.weight_units": problem.weight_units}
    if problem.memory.retained_units is not None:
        nested["memory.retained_units"] = problem.memory.retained_units
    for key, rows in nested.items():
        if len(rows) != stages:
            raise InputError(f"{key}: {len(rows)} lists for {stages} stages; give one list for all, or one for each")
        for stage, units in enumerate(rows):
            if not units:
                raise InputError(f"{key}[{stage}]: the list is empty; a stage has at least one unit")
            if len(units) != len(problem.weight_units[stage]):
                raise InputError(
                    f"{key}[{stage}]: {len(units)} units, and costs.weight_units[{stage}] has "
                    f"{len(problem.weight_units[stage])}"
                )
            for unit, cost in enumerate(units):
                _check_cost(problem, f"{key}[{stage}][{unit}]", cost, plain=not isinstance(cost, int) or cost == 0)
    for key, values in {"memory.reserve": problem.memory.reserve, "memory.limit": problem.memory.limit}.items():
        if len(values) != ranks:
            raise InputError(f"{key}: {len(values)} values for {ranks} ranks; give one number, or one for each rank")
        for rank, value in enumerate(values):
            if value is not None:
                _check_cost(problem, f"{key}[{rank}]", value, plain=True)
    _check_links(problem)


def _check_cost(problem: Problem, key: str, cost: Cost, plain: bool) -> None:
    parts = (cost.fixed, cost.per_sample) if isinstance(cost, Affine) else (cost,)
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, int):
            raise InputError(f"{key}: {part!r} is not an integer; durations are whole ticks, memory whole units")
        if not 0 <= part <= LARGEST:
            raise InputError(f"{key}: {part} is not within 0..{LARGEST}; choose a coarser unit")
    if len(problem.sizes) > 1 and not plain:
        raise InputError(
            f"{key}: a plain number while {len(problem.sizes)} micro-batch sizes are allowed; "
            "write {fixed = a, per_sample = b}"
        )


def _check_links(problem: Problem) -> None:
    tables: dict[str, tuple[tuple[float, ...], ...]] = {"links.latency": problem.links.latency}
    if problem.links.bandwidth is not None:
        tables["links.bandwidth"] = problem.links.bandwidth
        if not problem.links.message:
            raise InputError("links.bandwidth: given without links.bytes; say how large the messages are")
    for key, table in tables.items():
        if len(table) != problem.ranks or any(len(row) != problem.ranks for row in table):
            raise InputError(
                f"{key}: not a {problem.ranks} x {problem.ranks} matrix [from][to]; give one number, or that"
            )
    for source, row in enumerate(problem.links.latency):
        for target, value in enumerate(row):
            _check_cost(problem, f"links.latency[{source}][{target}]", value, plain=True)
    for source, speeds in enumerate(problem.links.bandwidth or ()):
        for target, speed in enumerate(speeds):
            if source != target and not 0 < speed < float("inf"):
                raise InputError(f"links.bandwidth[{source}][{target}]: {speed} is not a positive number")
