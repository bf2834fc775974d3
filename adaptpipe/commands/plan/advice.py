"""What an engineer should know beside a plan's figures: what binds, and what is not in them."""

from __future__ import annotations

from adaptpipe.solver.planning.answer import Answer
from adaptpipe.solver.planning.binding import binding
from adaptpipe.solver.planning.plan import Plan

from .subject import Subject


def binds(subject: Subject, answer: Answer) -> list[str]:
    """What keeps the plan from being faster, and what would help."""
    found, plan = binding(answer.plan.timeline), answer.plan
    text = (
        f"what binds: rank {found.rank} computes {found.work:.1%} of the step, the ranks on average {found.mean:.1%}; "
        f"it waits {found.fill:.1%} for its first micro-batch, {found.waits:.1%} in between and {found.drain:.1%} at "
        "the end"
    )
    lines = [text]
    speed = plan.workload.cluster.speed
    even = sum(work * each for work, each in zip(plan.timeline.work, speed, strict=True)) / sum(speed)
    if even:
        lines.append(
            f"shared out evenly and without any wait, this work would take {ms(round(even))}; the step takes "
            f"{_over(plan.makespan, even)} more, of which {_over(plan.bound, even)} are proven for every plan"
        )
    if found.work - found.mean > 0.02:
        heaviest = _heaviest(plan)
        lines.append(
            f"whole layers: the load cannot be divided evenly; the heaviest layer is {heaviest}, and a rank has "
            f"{plan.workload.layers / plan.workload.ranks:.1f} layers{_cut(subject)}"
        )
    if found.full:
        ranks = ", ".join(map(str, found.full))
        lines.append(f"memory: rank{'s' * (len(found.full) > 1)} {ranks} could not take one more micro-batch")
    return lines


def _over(ticks: int, least: float) -> str:
    return f"{max(0.0, ticks / least - 1):.1%}"


def _cut(subject: Subject) -> str:
    """What to do about layers that are large beside a rank's share."""
    question = subject.question
    return ": cut them (--split-layers), or use fewer ranks" * (
        question.model is not None and not question.split_layers
    )


def _heaviest(plan: Plan) -> str:
    prices = plan.workload.prices(max(plan.division))
    work = prices.forward + prices.backward_input + prices.backward_weight
    layer = int(work.argmax())
    share = work[layer] / (work.sum() / plan.workload.ranks)
    return f"{plan.workload.profile.parts[layer].name}, {share:.0%} of a rank's even share"


def left_out(subject: Subject, plan: Plan) -> list[str]:
    """What is not in the step, and what its figures rest on."""
    lines = ["not in the step: the optimizer"]
    if subject.question.dp > 1:
        parts, home = plan.workload.profile.parts, plan.placement.stages[0]
        held = [0] * plan.workload.ranks
        for stage, layers in enumerate(plan.split):
            held[home[stage]] += sum(parts[layer].parameters for layer in layers)
        rank = max(range(len(held)), key=lambda each: held[each])
        exchange = ms(round(subject.exchange_s * held[rank] * 1e6))
        lines[0] += f", and the replicas' exchange of gradients: {exchange} on rank {rank}, where nothing covers it"
    if not subject.measured and subject.question.instance is None:
        lines.append(
            "costs are computed, not measured: shares of the published speeds that kernels reach are assumed "
            "(docs/planning.md)"
        )
    return lines


def ms(ticks: int) -> str:
    """Ticks as milliseconds."""
    return f"{ticks / 1e3:,.1f} ms" if ticks >= 10**5 else f"{ticks / 1e3:.4g} ms"


def gb(count: int) -> str:
    """Bytes as 10^9 bytes."""
    return f"{count / 1e9:,.2f}"
