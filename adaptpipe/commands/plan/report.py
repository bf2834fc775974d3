"""The report of a plan, for people."""

from __future__ import annotations

from collections.abc import Mapping

from adaptpipe.solver.evaluate.holdings import holdings
from adaptpipe.solver.planning.answer import NEAR, Answer
from adaptpipe.solver.planning.judging.jury import JUDGED
from adaptpipe.solver.planning.judging.robust import EXECUTIONS, Execution, Gain
from adaptpipe.solver.planning.plan import Plan, saved
from adaptpipe.solver.planning.rivals.today import Today

from ..common import pairs, sizes_text, table
from .advice import binds, gb, left_out, ms
from .figures import best_of_each, layer_names, mfu, rate, seconds
from .subject import Subject

WHO_RUNS: Mapping[Execution, str] = {
    "fixed": "both in their order",
    "adaptive": "both adaptively",
    "adaptive over fixed": "plan adaptively, today's in its order",
}
"""How plan and today's best are run, for people."""


def print_report(subject: Subject, answer: Answer) -> None:
    """Everything that an engineer needs to act on a plan, or to leave it."""
    print(_headline(subject, answer))
    print()
    pairs([*_outcome(subject, answer), *_verdict(answer)])
    _split(subject, answer.plan)
    _memory(answer.plan)
    _today(answer)
    _robustness(answer)
    print()
    for line in (*binds(subject, answer), *left_out(subject, answer.plan)):
        print(line)


def _headline(subject: Subject, answer: Answer) -> str:
    workload, question = answer.workload, subject.question
    text = f"{workload.name}: {workload.layers} layers"
    if subject.parameters is not None:
        text += f", {subject.parameters:,} parameters"
    text += f"; {workload.ranks} ranks"
    if question.tp * question.dp > 1:
        text += f" of {question.tp} devices, {question.dp} replica{'s' * (question.dp > 1)}"
    text += f"; {workload.samples * question.dp} samples a step"
    if subject.tokens is not None:
        text += f", {subject.tokens:,} tokens"
    return text


def _outcome(subject: Subject, answer: Answer) -> list[tuple[str, str]]:
    plan, timeline = answer.plan, answer.plan.timeline
    step_s = seconds(timeline)
    tokens, samples = rate(subject.tokens, step_s), rate(answer.workload.samples * subject.question.dp, step_s)
    speed = "–" if samples is None else f"{samples:,.1f} samples/s"
    if tokens is not None:
        speed = f"{tokens:,.0f} tokens/s"
    share = mfu(subject, step_s)
    if share is not None:
        speed += f", {share:.1%} of the devices' published FLOP/s (MFU)"
    rows = [
        ("step", f"{ms(plan.makespan)} predicted, before the optimizer: {speed}"),
        ("bound", f"{ms(plan.bound)} for every split, placement, division and order: gap {plan.gap:.2%}"),
        (
            "placement",
            f"{timeline.schedule.placement.name}, {len(plan.split)} stages on {answer.workload.ranks} ranks",
        ),
        ("micro-batches", f"{len(plan.division)}, of size {sizes_text(plan.division)}"),
        ("backwards", f"{timeline.schedule.fused_share:.0%} fused"),
        ("bubble", f"{timeline.bubble:.2%} of the step, by the busiest rank"),
        ("found by", f"{plan.method}; {answer.time_s:.1f} s in all"),
    ]
    base, equal = answer.base, answer.equal
    if base is None or equal is None:
        return [*rows, ("today's best", "none of today's schedules fits")]
    assert answer.gain is not None
    assert answer.gain_equal_memory is not None
    use = max(base.timeline.peak_memory)
    return [
        *rows,
        ("today's best", f"{ms(base.makespan)}: {base.name}, micro-batches of {sizes_text(base.division)}"),
        ("gain", f"{answer.gain:.2%} within the memory that there is"),
        (
            "gain, equal memory",
            f"{answer.gain_equal_memory:.2%} with every rank within {gb(use)} GB, the most that today's best uses",
        ),
    ]


def _verdict(answer: Answer) -> list[tuple[str, str]]:
    """Whether to use the plan, and what to use instead."""
    base = answer.base
    if base is None:
        return [("recommended", "yes: nothing of today's fits")]
    rows = []
    if answer.nothing_to_gain:
        more = base.makespan / answer.plan.bound - 1 if answer.plan.bound else 0.0
        rows.append(
            ("nothing to gain", f"today's best is within {more:.2%} of the bound (below {NEAR:.0%}): keep what you run")
        )
    verdict = _why(answer)
    if answer.recommended or answer.instead is None:
        return [*rows, ("recommended", f"yes: {verdict}")]
    return [*rows, ("recommended", f"no: {verdict}"), ("instead", f"run {_recipe(answer.instead)}")]


def _why(answer: Answer) -> str:
    """What the recommendation rests on."""
    if not answer.gain:
        return "nothing faster was found"
    gain, rival = answer.judged, answer.instead
    if gain is None or rival is None:
        return "interrupted before it was judged"
    low, high = gain.interval
    return (
        f"with costs {JUDGED:.0%} off it gains {gain.mean:.2%} on average (95 % confidence {low:.2%} to {high:.2%}) "
        f"over {rival.name}, {WHO_RUNS[gain.execution]}"
    )


def _recipe(today: Today) -> str:
    """How to run one of today's schedules."""
    sizes = [len(part) for part in today.split]
    return (
        f"{today.name}: {len(sizes)} stages of {', '.join(map(str, sizes))} layers, {len(today.division)} "
        f"micro-batches of {sizes_text(today.division)}; {ms(today.makespan)} a step"
    )


def _split(subject: Subject, plan: Plan) -> None:
    parts = plan.workload.profile.parts
    problem, size = plan.timeline.problem, plan.division[-1]
    instance = problem.instance(plan.division)
    last = len(plan.division) - 1
    rows = []
    for stage, layers in enumerate(plan.split):
        own = [parts[layer] for layer in layers]
        times = (instance.forward, instance.backward_input, instance.backward_weight)
        count = sum(part.parameters for part in own)
        rows.append(
            [
                str(stage),
                str(plan.placement.stages[0][stage]),
                str(len(own)),
                layer_names(own),
                f"{count:,}" if count else "–",
                *(f"{each[stage, last] / 1e3:,.2f}" for each in times),
            ]
        )
    print(f"\nsplit, with times of a micro-batch of {size}")
    table(["stage", "rank", "count", "layers", "parameters", "F ms", "I ms", "W ms"], rows)
    total = sum(part.parameters for part in parts)
    print(f"every one of the {len(parts)} layers is in one stage: {sum(map(len, plan.split))}")
    if subject.parameters is not None:
        shared = f", {subject.shared:,} of them copies of shared matrices or blocks beyond the model" * bool(
            subject.shared
        )
        print(f"parameters in sum: {total:,}{shared}; the model's: {total - subject.shared:,}")


def _memory(plan: Plan) -> None:
    rows = []
    limits = plan.timeline.problem.memory.limit
    for rank, (held, limit) in enumerate(zip(holdings(plan.timeline), limits, strict=True)):
        rows.append(
            [
                str(rank),
                *(gb(each) for each in (held.static, held.activations, held.retained, held.total)),
                "–" if limit is None else gb(limit),
                "–" if limit is None else gb(limit - held.total),
            ]
        )
    aside = max(plan.timeline.problem.memory.reserve)
    more = f"; the first column has {gb(aside)} beside, for what one op holds for itself" if aside else ""
    print(f"\nmemory in GB (10^9 bytes), at the moment when each rank holds most{more}")
    table(
        ["rank", "weights, gradients, optimizer", "activations", "kept for W", "peak", "limit", "free"],
        rows,
    )


def _today(answer: Answer) -> None:
    rows = []
    for today in best_of_each(answer.todays):
        cells = [today.method, today.rule, f"{len(today.division)} of {sizes_text(today.division, 1)}"]
        if today.overflow is not None:
            lack = f"lacks {gb(today.overflow.missing)} GB on rank {today.overflow.rank}"
            rows.append([*cells, "–", lack, "–", "–"])
            continue
        equal = "–" if answer.equal is None else f"{saved(answer.equal.makespan, today.makespan):.1%}"
        rows.append(
            [
                *cells,
                ms(today.makespan),
                gb(max(today.timeline.peak_memory)),
                f"{saved(answer.plan.makespan, today.makespan):.1%}",
                equal,
            ]
        )
    print("\ntoday's schedules, each at its best split rule and micro-batch size")
    table(
        ["today's", "split", "micro-batches", "step", "most GB", "the plan gains", "at equal memory"],
        rows,
    )
    print("at equal memory: the best plan in which no rank holds more than any does in the best of today's schedules")


def _robustness(answer: Answer) -> None:
    robust = answer.robustness
    if robust is None:
        return
    print("\ngain where costs are wrong, over the one of today's that does best then: mean, 5th to 95th percentile")
    found: dict[tuple[float, str], dict[str, Gain]] = {}
    for gain in robust.gains:
        if gain.source == "all" or gain.error == JUDGED:  # at no error all sources are the same
            found.setdefault((gain.error, gain.source), {})[gain.execution] = gain
    rows = []
    for (error, source), gains in found.items():
        what = "all costs" if source == "all" else f"{source} alone"
        rows.append([f"{error:.0%} error, {what}" if error else "as planned", *_gains(gains)])
    table(["costs", *(WHO_RUNS[execution] for execution in EXECUTIONS)], rows)
    if robust.reason:
        print(f"not run adaptively: {robust.reason}")


def _gains(gains: Mapping[str, Gain]) -> list[str]:
    cells = []
    for execution in EXECUTIONS:
        gain = gains.get(execution)
        if gain is None:
            cells.append("–")
        elif gain.error:
            low, high = gain.spread
            cells.append(f"{gain.mean:.1%} ({low:.1%} to {high:.1%})")
        else:
            cells.append(f"{gain.mean:.1%}")
    return cells
