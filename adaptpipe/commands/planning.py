"""From a run file to schedules: what is trained on what, the problem by its profile, the baseline and ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from adaptpipe.executor import message_reserve, reserve_for
from adaptpipe.executor.feeding.sequences import require_divisible
from adaptpipe.models import (
    AnyConfig,
    GPTConfig,
    MLPConfig,
    load_text,
    split_layers,
    split_text,
    training_batches,
)
from adaptpipe.models.hf import DecoderConfig
from adaptpipe.solver import (
    Granularity,
    InputError,
    NoAnswerError,
    Problem,
    Profile,
    Result,
    bare_problem,
    check,
    simulate,
)
from adaptpipe.solver.core.granularity import NONE
from adaptpipe.solver.core.problem import SECONDS
from adaptpipe.solver.evaluate.noise import Noise
from adaptpipe.solver.methods import find_method
from adaptpipe.solver.planning.files.plan_file import load_plan
from adaptpipe.solver.solving import solve

from .baseline import check_methods, find_baseline
from .common import say
from .planned import as_planned, build_model, planned_model
from .run_file import RunSpec
from .worth import Worth, choices, worth

WORTH_S = 20.0
"""Most seconds of each search with fewer choices: the other ranks wait for it."""


def configure(spec: RunSpec) -> tuple[AnyConfig, tuple[range, ...], bytes]:
    """Model, layers of each stage, and training text of a run file.

    Raises
    ------
    InputError
        When the methods, the batch, the model's keys, the split or the text do not fit.
    """
    Granularity.parse(spec.granularity)
    Noise.parse(spec.noise).require_ranks(spec.ranks)
    check_methods(spec, _bare(spec))
    config, parts = _staged(spec)
    _require_sliceable(spec, config)
    if isinstance(config, DecoderConfig) and config.dropouts:
        key, value = next(iter(config.dropouts.items()))
        raise InputError(
            f"model.{key} = {value}: a run compares the first gradients with the unsplit model's, and chance would "
            f"make them differ; set {' and '.join(f'model.{each} = 0' for each in config.dropouts)}"
        )
    text = load_text(spec.data or None)
    length = config.inputs if isinstance(config, MLPConfig) else config.sequence
    train = split_text(text, length)[0]
    training_batches(config, train, spec.samples, spec.seed)  # refuses a text that the model cannot take
    return config, parts, train


def _bare(spec: RunSpec) -> Problem:
    """The problem before its prices are known."""
    bare = bare_problem(spec.place(), spec.pipeline_samples, spec.microbatch_sizes)
    try:
        return replace(bare, slices=spec.sequence_slices)
    except InputError as error:
        raise InputError(str(error).replace("batch.", "")) from None


def _require_sliceable(spec: RunSpec, config: AnyConfig) -> None:
    """Refuse slices of what cannot be cut, and a limit that they would pass."""
    slices = spec.sequence_slices
    if slices is None:
        return
    if not isinstance(config, GPTConfig):
        raise InputError(
            f"slices: stages of a model of kind {spec.model.get('kind')!r} take whole sequences only; use a gpt, or "
            "leave slices out"
        )
    require_divisible(f"model.sequence = {config.sequence}: is a length", config.sequence, slices.tokens)
    if spec.memory_limit == "baseline":
        raise InputError(
            'memory_limit = "baseline": slices also hold the keys and values of the slices before them, which the '
            'profile of whole sequences does not tell; set memory_limit = "none", or bytes'
        )


def _staged(spec: RunSpec) -> tuple[AnyConfig, tuple[range, ...]]:
    """Model, and layers of each stage."""
    if spec.plan:
        return planned_model(spec)
    config = build_model(dict(spec.model))
    # A lookup of embeddings costs next to nothing; every other layer costs about its parameters.
    first = config.layer_parameters[0] if isinstance(config, MLPConfig) else 0
    weights = [first, *config.layer_parameters[1:]]
    return config, split_layers(len(weights), spec.place().stage_count, weights)


def priced(spec: RunSpec, profile: Profile) -> tuple[Problem, Result]:
    """Problem, and the baseline that its memory limits are set by.

    Raises
    ------
    NoAnswerError
        When there is no baseline.
    """
    placement = spec.place()
    reserve = message_reserve(profile, placement)
    whole = profile.problem(
        placement, spec.pipeline_samples, spec.microbatch_sizes, reserve=reserve, name=Path(spec.out).name
    )
    free = replace(whole, slices=spec.sequence_slices)
    baseline = find_baseline(spec, free)
    if baseline.timeline is None:
        raise NoAnswerError(f"baseline {spec.baseline_name}: {baseline.reason}")
    wide = reserve_for(free, baseline.schedule)
    if wide != reserve:  # its messages need more than the usual windows
        free = replace(free, memory=replace(free.memory, reserve=wide))
        baseline = replace(baseline, timeline=simulate(free, baseline.schedule))
    assert baseline.timeline is not None
    limits: tuple[int | None, ...]
    if spec.plan:
        limits = load_plan(spec.plan).problem.memory.limit
    elif spec.memory_limit == "baseline":
        limits = (max(baseline.timeline.peak_memory),) * placement.ranks
    else:
        limits = (None if spec.memory_limit == "none" else spec.memory_limit,) * placement.ranks
    problem = replace(free, memory=replace(free.memory, limit=limits))
    return problem, baseline


def plan(spec: RunSpec, profile: Profile | None) -> tuple[Problem, Result | None, Result, Worth | None]:
    """Problem, baseline, our schedule, and what its choices are worth; without a profile, as a plan has them.

    Raises
    ------
    NoAnswerError
        When either has no schedule.
    """
    if profile is None:
        return *as_planned(spec), None
    problem, baseline = priced(spec, profile)
    if problem.slices is not None:
        say(
            "predicted bytes leave out what slices hold of those before them: measured peaks are higher, and may pass "
            "a memory_limit that the schedule is planned to fit"
        )
    say(f"solving for at most {spec.time_limit:g} s")
    granularity = Granularity.parse(spec.granularity)
    over = check(problem, baseline.schedule)
    searches = find_method(spec.method).build is None
    ours = solve(
        problem,
        spec.method,
        objective=spec.objective,
        time_limit=spec.time_limit,
        granularity=granularity,
        start=baseline.schedule if searches and not over else None,
    )
    if ours.found_by == "start":
        ours = replace(ours, found_by=baseline.found_by or baseline.method)
    if ours.timeline is None:
        raise NoAnswerError(f"{ours.method}: {ours.reason}; choose another method, or raise memory_limit")
    if over:
        raise NoAnswerError(f"baseline {spec.baseline_name}: {over[0].message}; raise memory_limit")
    if granularity == NONE or not searches:
        return problem, baseline, ours, None
    again = min(spec.time_limit, WORTH_S)
    kinds = len(choices(problem, granularity))
    say(f"solving with fewer choices, {1 + kinds * (kinds > 1)} times for at most {again:g} s: what are they worth?")
    found = worth(
        problem,
        ours,
        lambda fewer: solve(problem, spec.method, objective=spec.objective, time_limit=again, granularity=fewer),
    )
    return problem, baseline, ours, found


def predicted_s(result: Result) -> float:
    """Makespan of a result in seconds."""
    assert result.timeline is not None
    return float(result.timeline.makespan * SECONDS[result.timeline.problem.unit])
