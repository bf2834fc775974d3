"""`adaptpipe run`: profile, plan, solve and train, and hold the prediction against what was measured."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zipfile import is_zipfile

import typer

from adaptpipe.solver import InputError, Result

from .common import compiled, emit, json_option, make_folder, say, table
from .run_file import RunSpec, load_run, out_folder

if TYPE_CHECKING:
    from .learning import Trained
    from .training import Outcome

TOLERANCE = 1e-5
"""Largest relative error of a float32 gradient that counts as equal."""


def run(
    file: Annotated[Path, typer.Argument(metavar="RUN.toml", help="Run file; see examples/gpt-text.toml.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Overrule a key of the file; may be repeated."),
    ] = None,
    emulated: Annotated[
        bool, typer.Option("--emulate", help="Do not train: ops sleep for their planned time, messages are real.")
    ] = False,
    json: json_option = False,
) -> None:
    """Profile a model, solve its schedule, train under it and under a baseline, and compare with the prediction."""
    spec = load_run(file, settings or [])
    require_torch()
    from adaptpipe.solver.methods import find_method

    if is_first_process():
        out_folder(spec)  # one that cannot be is refused before the work, and not after it
        if not spec.plan and find_method(spec.method).build is None:
            compiled()  # not within the time of the search
    if emulated:
        _emulate(spec, json)
        return
    if spec.problem:
        raise InputError(f"problem = {spec.problem!r}: has no model to train; add --emulate, or leave the key out")
    if spec.seconds_per_tick is not None:
        say("seconds_per_tick is for --emulate: without it, ops take what they take")
    _check_files(spec)
    from .training import check_resumed, launch_ranks, run_rank

    check_resumed(spec)
    cores = os.cpu_count() or 1
    if spec.processes > cores and "WORLD_SIZE" not in os.environ:
        say(f"{spec.processes} ranks share {cores} cores: measured times will show the sharing more than the schedule")
    results = launch_ranks(run_rank, spec)
    outcome = results[0]
    if isinstance(outcome, Exception):
        raise outcome
    assert outcome is not None
    if is_first_process():
        folder = _write(spec, outcome)
        rows = [_row(result, trained) for result, trained in zip(outcome.results, outcome.trained, strict=True)]
        if json:
            emit(
                {
                    "run": [row.as_dict() for row in rows],
                    "ratio": rows[-1].measured_s / rows[0].measured_s if len(rows) > 1 else None,
                    "result": outcome.ours.row(),
                    "worth": None if outcome.worth is None else asdict(outcome.worth),
                    "out": str(folder),
                }
            )
        else:
            _tell(spec, outcome, rows, folder)
        bad = [row for row in rows if row.gradient_error > TOLERANCE]
        if bad:
            print(
                f"the first step's gradients differ from the unsplit model's under {bad[0].name}: relative error "
                f"{bad[0].gradient_error:.2g}, above {TOLERANCE:g}",
                file=sys.stderr,
            )
            raise typer.Exit(1)


def _emulate(spec: RunSpec, json: bool) -> None:
    from .emulate import emulate_run

    found = emulate_run(spec)
    if not is_first_process():
        return
    if json:
        emit(found.as_dict())
    else:
        found.tell()


def require_torch() -> None:
    """Say how to get torch where it is missing.

    Raises
    ------
    InputError
        When torch cannot be imported.
    """
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise InputError("torch is not installed, and running a schedule needs it; pip install 'adaptpipe[torch]'")


def _check_files(spec: RunSpec) -> None:
    """Refuse checkpoints that cannot be, before the work is done."""
    if spec.resume and not Path(spec.resume).is_file():
        raise InputError(f"resume = {spec.resume!r}: there is no such file; a run with checkpoint = FILE writes one")
    if spec.resume and not is_zipfile(spec.resume):
        raise InputError(f"resume = {spec.resume!r}: is no checkpoint; a run with checkpoint = FILE writes one")
    if spec.checkpoint and is_first_process():
        if Path(spec.checkpoint).is_dir():
            raise InputError(f"checkpoint = {spec.checkpoint!r}: is a folder; give the name of a file")
        make_folder(Path(spec.checkpoint).parent, f"checkpoint = {spec.checkpoint!r}")


@dataclass(frozen=True, slots=True)
class Row:
    """One schedule's figures, predicted and measured."""

    name: str
    predicted_s: float
    measured_s: float
    spread_s: tuple[float, float]
    call_s: float
    bubble: float
    predicted_peaks: tuple[int, ...]
    measured_peaks: tuple[int, ...]
    received: tuple[int, ...]
    first_loss: float
    last_loss: float
    gradient_error: float

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "schedule": self.name,
            "predicted_step_s": self.predicted_s,
            "measured_step_s": self.measured_s,
            "measured_over_predicted": self.measured_s / self.predicted_s,
            "measured_call_s": self.call_s,
            "bubble": self.bubble,
            "predicted_peak_bytes": list(self.predicted_peaks),
            "measured_peak_bytes": list(self.measured_peaks),
            "measured_received_bytes": list(self.received),
            "first_loss": self.first_loss,
            "last_loss": self.last_loss,
            "gradient_error": self.gradient_error,
        }


def _row(result: Result, trained: Trained) -> Row:
    from .planning import predicted_s

    timeline = result.timeline
    assert timeline is not None
    static = timeline.static.tolist()
    return Row(
        name=result.found_by or result.method,
        predicted_s=predicted_s(result),
        measured_s=trained.step_s,
        spread_s=trained.spread_s,
        call_s=trained.call_s,
        bubble=timeline.bubble,
        predicted_peaks=tuple(peak - fixed for peak, fixed in zip(timeline.peak_memory, static, strict=True)),
        measured_peaks=trained.peaks,
        received=trained.received,
        first_loss=trained.losses[0],
        last_loss=trained.losses[-1],
        gradient_error=trained.gradient_error,
    )


def _write(spec: RunSpec, outcome: Outcome) -> Path:
    from adaptpipe.executor.report import as_trace
    from adaptpipe.solver.core.problem import SECONDS
    from adaptpipe.solver.evaluate.chart import save_chart
    from adaptpipe.solver.traces.writing import save_trace

    folder = out_folder(spec)
    outcome.problem.save(folder / "problem.json")
    stems = ("baseline", "schedule")[-len(outcome.results) :]
    for result, trained, stem in zip(outcome.results, outcome.trained, stems, strict=True):
        assert result.timeline is not None
        result.schedule.save(folder / f"{stem}.json", outcome.problem.name)
        save_chart(result.timeline, folder / f"{stem}.png")
        trace = as_trace(result.schedule, trained.records, float(SECONDS[outcome.problem.unit]))
        save_trace(trace, folder / f"{stem}.trace.json")
    return folder


def _tell(spec: RunSpec, outcome: Outcome, rows: list[Row], folder: Path) -> None:
    from .worth import lines

    first = outcome.trained[0].first_step
    table(
        ["", *(row.name for row in rows)],
        [
            ["makespan of a step, predicted", *(f"{row.predicted_s * 1e3:.1f} ms" for row in rows)],
            ["makespan, measured (median)", *(f"{row.measured_s * 1e3:.1f} ms" for row in rows)],
            ["  shortest to longest", *(f"{a * 1e3:.1f} to {b * 1e3:.1f} ms" for a, b in (r.spread_s for r in rows))],
            ["measured / predicted", *(f"{row.measured_s / row.predicted_s:.3f}" for row in rows)],
            ["call of step, measured (median)", *(f"{row.call_s * 1e3:.1f} ms" for row in rows)],
            ["makespan bubble, predicted", *(f"{row.bubble:.1%}" for row in rows)],
            ["peak of live activations by rank, predicted", *(_mib(row.predicted_peaks) for row in rows)],
            ["peak of live activations by rank, measured", *(_mib(row.measured_peaks) for row in rows)],
            ["messages not yet taken by rank, measured", *(_mib(row.received) for row in rows)],
            [
                f"loss, step {first} to {first + spec.steps - 1}",
                *(f"{row.first_loss:.3f} to {row.last_loss:.3f}" for row in rows),
            ],
            ["gradients = unsplit model's", *(_equal(row.gradient_error) for row in rows)],
        ],
    )
    prices = "the plan's prices" if outcome.profile is None else "the prices measured"
    if len(rows) > 1:
        predicted = rows[1].predicted_s / rows[0].predicted_s
        measured = rows[1].measured_s / rows[0].measured_s
        print(f"ours / {rows[0].name}: {predicted:.3f} predicted, {measured:.3f} measured")
    print(f"ours is {outcome.ours.standing} at {prices}")
    if outcome.profile is not None:
        deferred = ", ".join(f"{part.deferred:.0%}" for part in outcome.profile.parts)
        print(f"share of the parameters whose gradient W computes, by stage: {deferred}; the others' is part of I")
    for line in lines(outcome.ours, outcome.worth):
        print(line)
    low, high = rows[-1].spread_s
    if len(rows) > 1 and abs(measured - predicted) * rows[0].measured_s > (high - low) / 2:
        print("the two ratios differ by more than half the spread of the steps: other load, or costs that have changed")
    print(f"written to {folder}: problem.json; baseline and schedule .json, .png and .trace.json (open in Perfetto)")
    if spec.checkpoint:
        print(f"what {rows[-1].name} has trained is in {spec.checkpoint}; go on with --set resume={spec.checkpoint}")
    others = (
        "placement=v, --set memory_limit=none" if not spec.plan else "method=auto" if spec.as_planned else "method=plan"
    )
    print(f"next: --set {others}, --set data=FILE, adaptpipe compare {folder}/problem.json")


def _mib(peaks: tuple[int, ...]) -> str:
    return ", ".join(f"{peak / 2**20:.3g}" for peak in peaks) + " MiB"


def _equal(error: float) -> str:
    return f"{'yes' if error <= TOLERANCE else 'NO'} (relative error {error:.1e})"


def is_first_process() -> bool:
    """Whether this is the process that tells and writes: the only one, or torchrun's first."""
    return os.environ.get("RANK", "0") == "0"
