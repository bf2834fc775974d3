"""A run file that names a plan: what the plan decides, and in what the two must agree."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from adaptpipe.models import AnyConfig, build
from adaptpipe.solver import InputError, NoAnswerError, Placement, Problem, Result, check, place, simulate
from adaptpipe.solver.planning.files.plan_file import PlanFile, load_plan

from .baseline import find_baseline
from .common import say
from .run_file import PLANNED, RunSpec

_SOLVING = ("granularity", "time_limit", "profile_sizes", "weight_units")
"""Keys that count where something is measured and solved."""


def with_plan(spec: RunSpec, given: Collection[str]) -> RunSpec:
    """A run file with all that its plan decides; of `given`, the keys that it has itself, nothing may contradict.

    Raises
    ------
    InputError
        Naming both, or what a run cannot do.
    """
    planned = load_plan(spec.plan)
    _require_runnable(spec, planned)
    problem, placement = planned.problem, planned.schedule.placement
    replicas = planned.cluster.get("dp", 1)
    assert isinstance(replicas, int)
    sizes = sorted(set(planned.schedule.sizes))
    limits = list(problem.memory.limit)
    samples, most = problem.samples * replicas, spec.memory_limit
    for key, fits, has in (
        ("problem", False, "has a problem of its own"),
        ("ranks", spec.ranks == problem.ranks, f"is for {problem.ranks} ranks"),
        ("placement", _is_placed(spec, placement), f"has the placement {_named(placement)}"),
        ("stages_per_rank", _is_placed(spec, placement), f"has the placement {_named(placement)}"),
        ("data_parallel", spec.data_parallel == replicas, f"is for {replicas} replicas"),
        ("samples", spec.samples == samples, f"is for {samples} samples a step"),
        ("microbatch_sizes", set(sizes) <= set(spec.microbatch_sizes), f"has micro-batches of {sizes}"),
        ("slices", spec.sequence_slices is None, "has whole micro-batches"),
        ("memory_limit", limits == [None if most == "none" else most] * len(limits), f"has the limits {limits}"),
    ):
        if key in given and not fits:
            raise InputError(f"{key} = {getattr(spec, key)!r}: {_of(spec)} {has}; leave {key} out, or plan again")
    method = spec.method if "method" in given else PLANNED
    idle = [key for key in _SOLVING if key in given]
    if idle and method.casefold() == PLANNED:
        say(
            f'{", ".join(idle)}: the plan\'s own schedule is run; with a method, as method = "auto", it is solved again'
        )
    return msgspec.structs.replace(
        spec,
        ranks=problem.ranks,
        placement=list(placement.stages[0]),
        stages_per_rank=None,
        data_parallel=replicas,
        samples=samples,
        microbatch_sizes=sizes,
        method=method,
    )


def _of(spec: RunSpec) -> str:
    return f"plan = {spec.plan!r}"


def _require_runnable(spec: RunSpec, planned: PlanFile) -> None:
    """Refuse a plan that was made for more than a run does."""
    for options, key, usual, why, remedy in (
        (planned.cluster, "tp", 1, "a run does not divide layers among devices", "--tp 1"),
        (planned.cluster, "ep", 1, "a run does not divide experts among devices", "--ep 1"),
        (planned.model, "recompute", "none", "stages of a run keep what they compute", "--recompute none"),
    ):
        if options.get(key, usual) != usual:
            raise InputError(f"{_of(spec)}: was made with --{key} {options[key]}; {why}, so plan with {remedy}")
    if planned.cluster.get("dp", 1) != 1 and planned.cluster.get("zero") == 1:
        raise InputError(
            f"{_of(spec)}: was made with --dp {planned.cluster['dp']} --zero 1; in a run each replica keeps all of the "
            "optimizer's state, so plan with --zero 0"
        )


def _is_placed(spec: RunSpec, placement: Placement) -> bool:
    """Whether the run file asks for this placement."""
    if isinstance(spec.placement, list):
        return tuple(spec.placement) == placement.stages[0]
    each, rest = divmod(placement.stage_count, placement.ranks)
    try:
        return not rest and place(spec.placement, placement.ranks, spec.stages_per_rank or each) == placement
    except InputError:
        return False


def _named(placement: Placement) -> str:
    each = f" with {placement.stage_count} stages"
    return f"{placement.name}{each}" if placement.name != "explicit" else str(list(placement.stages[0]))


def planned_model(spec: RunSpec) -> tuple[AnyConfig, tuple[range, ...]]:
    """Model of a run with a plan, and the layers of each stage.

    Raises
    ------
    InputError
        When there is no model to build, or its layers are not the plan's.
    """
    planned = load_plan(spec.plan)
    keys = dict(spec.model) or _own_model(spec, planned)
    length = planned.model.get("sequence")
    if "sequence" in keys and length is not None and keys["sequence"] != length:
        raise InputError(
            f"model.sequence = {keys['sequence']}: {_of(spec)} is for samples of {length} tokens; "
            "use as many, or plan again"
        )
    if any(layer.kind == "attention" for layer in planned.layers) and keys.get("kind") in ("gpt", "hf"):
        keys.setdefault("split_blocks", True)
    config = build_model(keys)
    _require_layers(spec, config, planned)
    return config, planned.split


def build_model(keys: dict[str, object]) -> AnyConfig:
    """Configuration of a model from the `[model]` of a run file.

    Raises
    ------
    InputError
        When a key does not fit.
    """
    kind = keys.pop("kind", None)
    if not isinstance(kind, str):
        raise InputError('model.kind: missing; write kind = "gpt", "mlp" or "hf"')
    return build(kind, **keys)


_QUESTION = ("name", "instance", "global_batch", "split_layers", "recompute")
"""What a plan says of how its model is used, beside the keys of the model."""


def _own_model(spec: RunSpec, planned: PlanFile) -> dict[str, object]:
    """Keys of the model that was planned."""
    keys = {key: value for key, value in planned.model.items() if key not in _QUESTION}
    if "kind" in keys:
        if keys["kind"] == "mlp":
            keys.pop("sequence", None)
        return keys
    name = planned.model.get("name", "")
    file = Path(str(name))
    if file.is_dir():
        file /= "config.json"
    if file.suffix != ".json" or "instance" in planned.model:
        raise InputError(
            f'model: missing, and {_of(spec)} has only a name, {name!r}; give a [model], as kind = "hf" with the '
            "config.json of that model"
        )
    return {"kind": "hf", "config": str(file), **keys}


def _require_layers(spec: RunSpec, config: AnyConfig, planned: PlanFile) -> None:
    """Refuse a model whose layers are not those that were planned."""
    names, remedy = config.layer_names, "give the model that was planned, or plan again"
    if len(names) != len(planned.layers):
        raise InputError(
            f"{_of(spec)}: has {len(planned.layers)} layers, {planned.layers[0].name} to {planned.layers[-1].name}, "
            f"and the model {len(names)}, {names[0]} to {names[-1]}; {remedy}"
        )
    for index, (layer, sort, count) in enumerate(
        zip(planned.layers, config.layer_sorts, config.layer_parameters, strict=True)
    ):
        kind = sort.partition(",")[0]
        if layer.kind and layer.kind != kind:
            raise InputError(
                f"{_of(spec)}: layer {index}, {layer.name}, is of kind {layer.kind}, and the model's, {names[index]}, "
                f"of kind {kind}; {remedy}"
            )
        if layer.parameters and layer.parameters != count:
            raise InputError(
                f"{_of(spec)}: layer {index}, {layer.name}, has {layer.parameters:,} parameters, and the model's "
                f"{count:,}; {remedy}"
            )


def as_planned(spec: RunSpec) -> tuple[Problem, Result | None, Result]:
    """The plan's problem, a baseline on its stages, and its schedule; no baseline where the usual one does not fit.

    Raises
    ------
    NoAnswerError
        When a baseline that was asked for does not fit.
    """
    planned = load_plan(spec.plan)
    problem, bound = planned.problem, planned.figures.get("bound", 0)
    assert isinstance(bound, int)
    ours = Result(
        PLANNED, spec.objective, simulate(problem, planned.schedule), bound * (spec.objective == "makespan"), 0.0
    )
    baseline = find_baseline(spec, problem)
    lack = baseline.reason
    if baseline.timeline is not None:
        over = check(problem, baseline.schedule)
        if not over:
            return problem, baseline, ours
        lack = over[0].message
    if spec.baseline:
        raise NoAnswerError(f"baseline {spec.baseline}: {lack}; choose another, or leave it out")
    say(f"{spec.baseline_name} cannot run on the plan's stages ({lack}), so there is nothing to compare with")
    return problem, None, ours
