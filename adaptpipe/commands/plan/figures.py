"""The figures of an answer, as plain data: the command's JSON, a line of `--what-if`, and what a plan's file keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby

from adaptpipe.solver import NoAnswerError, Part, Timeline
from adaptpipe.solver.core.problem import SECONDS
from adaptpipe.solver.evaluate.holdings import holdings
from adaptpipe.solver.planning.answer import Answer
from adaptpipe.solver.planning.judging.robust import Robustness
from adaptpipe.solver.planning.rivals.today import Today
from adaptpipe.solver.planning.workload import Split

from .fitting import NoRoomError
from .question import Question
from .subject import Subject


def row(subject: Subject, answer: Answer) -> dict[str, object]:
    """The answer for JSON: shares as fractions, memory in bytes, and times in `unit` where they do not end in _s."""
    plan, timeline = answer.plan, answer.plan.timeline
    step_s = seconds(timeline)
    return {
        "name": answer.workload.name,
        "status": "OPTIMAL" if plan.makespan == plan.bound else "FEASIBLE",
        "makespan": plan.makespan,
        "unit": timeline.problem.unit,
        "bound": plan.bound,
        "gap": plan.gap,
        "gain": answer.gain,
        "gain_equal_memory": answer.gain_equal_memory,
        "recommended": answer.recommended,
        "nothing_to_gain": answer.nothing_to_gain,
        "baseline": None if answer.base is None else today_row(answer.base),
        "instead": None if answer.recommended or answer.instead is None else today_row(answer.instead),
        "equal_memory": None if answer.equal is None else schedule_row(answer.equal.timeline, answer.equal.split),
        **schedule_row(timeline, plan.split),
        "memory_kinds": [asdict(each) for each in holdings(timeline)],
        "memory_limit": list(timeline.problem.memory.limit),
        "todays": [today_row(each) for each in best_of_each(answer.todays)],
        "robustness": None if answer.robustness is None else robustness_rows(answer.robustness),
        "parameters": subject.parameters,
        "step_s": step_s,
        "tokens_per_s": rate(subject.tokens, step_s),
        "samples_per_s": rate(answer.workload.samples * subject.question.dp, step_s),
        "mfu": mfu(subject, step_s),
        "method": plan.method,
        "interrupted": answer.interrupted,
        "time_s": round(answer.time_s, 3),
    }


def refused(question: Question, error: NoAnswerError) -> dict[str, object]:
    """What JSON says where there is no plan: whether there can be none, and why."""
    lack = error.lack if isinstance(error, NoRoomError) else None
    return {
        "name": question.title,
        "status": "UNKNOWN" if lack is None else "INFEASIBLE",
        "makespan": None,
        "lacks": None if lack is None else {"rank": lack.rank, "bytes": lack.lacks},
        "reason": str(error),
    }


def schedule_row(timeline: Timeline, split: Split) -> dict[str, object]:
    """A schedule and its split."""
    placement = timeline.schedule.placement
    return {
        "makespan": timeline.makespan,
        "placement": list(placement.stages[0]),
        "placement_name": placement.name,
        "split": [len(part) for part in split],
        "microbatch_sizes": list(timeline.schedule.sizes),
        "memory": list(timeline.peak_memory),
        "bubble": round(timeline.bubble, 6),
    }


def today_row(today: Today) -> dict[str, object]:
    """One of today's schedules; `makespan` is what it would take where it does not fit."""
    lack = today.overflow
    return {
        "method": today.method,
        "rule": today.rule,
        **schedule_row(today.timeline, today.split),
        "fits": today.fits,
        "lacks": None if lack is None else {"rank": lack.rank, "bytes": lack.missing},
    }


def robustness_rows(robust: Robustness) -> list[dict[str, object]]:
    """Gains where costs are wrong; those as planned once, as all sources of error are the same there."""
    return [gain.row() for gain in robust.gains if gain.error or gain.source == "all"]


def best_of_each(todays: Sequence[Today]) -> list[Today]:
    """The best of each method; those come in the order of their best."""
    found: dict[str, Today] = {}
    for today in todays:
        found.setdefault(today.method, today)
    return list(found.values())


def seconds(timeline: Timeline) -> float:
    """Seconds of a step."""
    return float(timeline.makespan * SECONDS[timeline.problem.unit])


def rate(count: float | None, step_s: float) -> float | None:
    """So many in a second; None where the number is unknown, or a step takes no time."""
    return None if count is None or not step_s else count / step_s


def mfu(subject: Subject, step_s: float) -> float | None:
    """Share of the devices' published operations that the model's own are; None: unknown."""
    flops = rate(subject.flops, step_s)
    return None if flops is None or subject.device_flops is None else flops / subject.device_flops


def layer_names(parts: Sequence[Part]) -> str:
    """Names of layers in order, runs of one kind by their ends.

    Examples
    --------
    >>> parts = [Part(f"{kind} {i}", 0, (), kind=kind) for i, kind in enumerate(["embed", "block", "block", "block"])]
    >>> layer_names(parts)
    'embed 0, block 1 … block 3'
    """
    runs = [list(run) for _, run in groupby(parts, key=lambda part: part.kind)]
    return ", ".join(run[0].name if len(run) == 1 else f"{run[0].name} … {run[-1].name}" for run in runs)
