"""`adaptpipe compare --trace`: where the time of a run went, beside its plan."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from adaptpipe.solver import InputError, Problem

from .common import compilation_notice, emit, patience, table

if TYPE_CHECKING:
    from adaptpipe.solver.traces.attribution import Attribution, Charge
    from adaptpipe.solver.traces.usage import Usage

ENDING = ".trace.json"
MOST = 5
"""Single charges that are printed."""


def run_beside_plan(problem: Problem, run: Path, json: bool) -> None:
    """Print, for each trace of a run, what made its makespan differ from the plan's.

    Raises
    ------
    InputError
        When there is no trace, or it is of another problem.
    """
    with patience(compilation_notice()):
        from adaptpipe.solver.traces.attribution import attribute
        from adaptpipe.solver.traces.reading import load_trace
        from adaptpipe.solver.traces.usage import usages

        found = []
        for file in _files(run):
            trace = load_trace(file)
            try:
                found.append((file.name.removesuffix(ENDING), attribute(problem, trace), usages(problem, trace)))
            except InputError as error:
                raise InputError(f"{file}: {error}") from None
    if json:
        emit({"problem": problem.name, "runs": [_data(*each) for each in found]})
        return
    for each in found:
        _print(*each)


def _files(run: Path) -> list[Path]:
    if not run.is_dir():
        return [run]
    files = sorted(run.glob(f"*{ENDING}"))
    if not files:
        raise InputError(f"{run}: holds no {ENDING} file; give the folder that adaptpipe run has written, or a trace")
    return files


def _data(name: str, found: Attribution, ranks: tuple[Usage, ...]) -> dict[str, object]:
    return {
        "name": name,
        "planned_s": _s(found.planned_ns),
        "measured_s": _s(found.measured_ns),
        "difference_s": _s(found.total()),
        "causes_s": _causes(found, None),
        "ranks": [
            {
                "rank": rank,
                "difference_s": _s(found.total(rank)),
                "causes_s": _causes(found, rank),
                "planned_work_s": _s(usage.planned_ns),
                "work_s": _s(usage.work_ns),
                "filled_s": _s(usage.filled_ns),
                "wait_s": _s(usage.wait_ns),
                "overhead_s": _s(usage.overhead_ns),
                "after_s": _s(usage.after_ns),
            }
            for rank, usage in enumerate(ranks)
        ],
        "charges": [
            {"rank": each.rank, "op": str(each.op), "cause": each.cause.value, "s": _s(each.ns)}
            for each in found.charges
        ],
        "path": [{"rank": rank, "op": str(op)} for rank, op in found.path],
    }


def _causes(found: Attribution, rank: int | None) -> dict[str, float]:
    from adaptpipe.solver.traces.attribution import Cause

    return {cause.value: _s(found.total(rank, cause)) for cause in Cause}


def _s(ns: Fraction | int) -> float:
    return float(Fraction(ns) / 10**9)


def _print(name: str, found: Attribution, ranks: tuple[Usage, ...]) -> None:
    from adaptpipe.solver.traces.attribution import Cause

    ms = _printer(found)
    print(
        f"{name}: planned {ms(found.planned_ns)} ms, measured {ms(found.measured_ns)} ms: "
        f"{ms(abs(found.total()))} ms {'more' if found.total() >= 0 else 'less'}"
    )
    rows = [
        [label, *(ms(found.total(rank, cause)) for cause in Cause), ms(found.total(rank))]
        for label, rank in [*((f"rank {rank}", rank) for rank in range(len(ranks))), ("all", None)]
    ]
    title = "ms beyond the plan along the measured critical path"
    table(["", *(cause.value for cause in Cause), "sum"], rows, title)
    for charge in sorted(found.charges, key=lambda each: -abs(each.ns))[:MOST]:
        print(_tell(charge, ms))
    table(
        ["", "work, planned", "work", "of it in waits", "waiting", "overhead", "after its end"],
        [
            [
                f"rank {rank}",
                ms(u.planned_ns),
                *(ms(each) for each in (u.work_ns, u.filled_ns, u.wait_ns, u.overhead_ns, u.after_ns)),
            ]
            for rank, u in enumerate(ranks)
        ],
        "ms of each rank, from the first start to the last end",
    )


def _printer(found: Attribution) -> Callable[[Fraction | int], str]:
    """How to write nanoseconds as milliseconds: with as many digits as show a thousandth of the makespan."""
    digits = next((digits for digits in range(2, 6) if found.measured_ns * 10**digits >= 10**9), 6)
    return lambda ns: f"{round(float(Fraction(ns) / 10**6), digits) + 0.0:,.{digits}f}"  # + 0.0: no "-0.00"


def _tell(charge: Charge, ms: Callable[[Fraction | int], str]) -> str:
    from adaptpipe.solver.traces.attribution import Cause

    amount = ms(abs(charge.ns))
    more = charge.ns >= 0
    text = {
        Cause.compute: f"{charge.op} took {amount} ms {'longer' if more else 'less'}",
        Cause.message: f"the message for {charge.op} took {amount} ms {'longer' if more else 'less'}",
        Cause.overhead: f"{amount} ms passed before {charge.op}, which could have started",
        Cause.filling: f"weight gradients that the plan has elsewhere took {amount} ms, up to {charge.op}",
        Cause.elsewhere: f"weight gradients planned next to {charge.op} ran elsewhere: {amount} ms less",
        Cause.slack: f"{amount} ms in which the plan idles next to {charge.op} were used up",
    }[charge.cause]
    return f"  rank {charge.rank}: {text}"
