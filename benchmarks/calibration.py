"""Costs by formula against measured ones: GPTs on this machine's processor, at sizes that the formulas never saw.

    python -m benchmarks.calibration             # some minutes
    python -m benchmarks.calibration --passes 1

The layers of a few GPTs are measured; `adaptpipe.models.costs.calibrate` fits the formulas to some of them, and the
others, of other widths, lengths of a sample and micro-batch sizes, are priced by formula and compared. The report goes
to `benchmarks/results/DATE-calibration.md`, what was measured beside it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import torch

from adaptpipe.executor import LayerName, measure_layers
from adaptpipe.models import GPTConfig, build_stage, load_text, next_byte_loss, split_text, training_batches
from adaptpipe.models.costs import PROCESSOR, SINGLE, Calibration, architecture_of, calibrate, layers
from adaptpipe.solver import Measurement, Part, Profile

from .solve import RESULTS, machine

BLOCKS = 3
WITHIN, WITHIN_BYTES = 0.25, 0.05
"""Most relative errors of seconds and bytes."""


@dataclass(frozen=True)
class Case:
    """A GPT, and the micro-batch sizes at which it is measured."""

    width: int
    sequence: int
    sizes: tuple[int, ...]

    @property
    def config(self) -> GPTConfig:
        """The model: heads of 32 features, so that all widths have whole ones."""
        return GPTConfig(layers=BLOCKS, width=self.width, heads=self.width // 32, sequence=self.sequence)


FITTED = (Case(128, 64, (1, 2, 4)), Case(256, 192, (1, 2, 4)), Case(384, 64, (1, 4)))
HELD_OUT = (
    Case(192, 64, (3, 6)),
    Case(192, 128, (1, 3)),
    Case(320, 96, (1, 3, 6)),
    Case(320, 160, (2, 3)),
    Case(512, 128, (1, 3)),
)

OPS = ("forward_s", "backward_input_s", "backward_weight_s")
BYTES = ("activation", "retained")


class Results(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured: for each case, by its place in `FITTED + HELD_OUT`, its profile, the fastest of the passes.

    `load` is the number of processes that wanted to run in the last quarter of an hour.
    """

    date: str
    machine: str
    load: float
    passes: int
    profiles: tuple[Profile, ...]


@dataclass(frozen=True)
class Row:
    """One kind of layer, or a whole model, at one size: what was measured, and formula over measured minus 1."""

    case: Case
    what: str
    size: int
    measured: tuple[float, ...]
    seconds: tuple[float, ...]
    held: tuple[float, ...]


def measured(case: Case, rounds: int) -> Profile:
    """Measure a case on one thread of this process."""
    config = case.config
    text = split_text(load_text(), config.sequence)[0]
    names = zip(config.layer_names, config.layer_sorts, config.layer_parameters, strict=True)
    return measure_layers(
        [LayerName(*each) for each in names],
        lambda index: build_stage(config, 0, range(index, index + 1)),
        next_byte_loss,
        lambda samples: next(training_batches(config, text, samples, 0)),
        case.sizes,
        rounds=rounds,
    )


def fastest(one: Profile, other: Profile) -> Profile:
    """The lesser seconds of two measurements of the same layers: what else runs on the machine only adds."""

    def lesser(a: Measurement, b: Measurement) -> Measurement:
        names = (*OPS, "backward_s")
        return replace(a, **{name: min(getattr(a, name), getattr(b, name)) for name in names})

    def both(a: Part, b: Part) -> Part:
        pairs = zip(a.measurements, b.measurements, strict=True)
        return replace(a, measurements=tuple(lesser(*pair) for pair in pairs))

    parts = tuple(both(*pair) for pair in zip(one.parts, other.parts, strict=True))
    return replace(one, parts=parts, op_s=min(one.op_s, other.op_s))


def fitted(results: Results) -> Calibration:
    """The formulas' speeds, by the cases that are for that."""
    pairs = zip(FITTED, results.profiles, strict=False)
    return calibrate([(architecture_of(case.config), case.sequence, profile) for case, profile in pairs], PROCESSOR)


def rows(results: Results, calibration: Calibration) -> Iterator[Row]:
    """Formula against measured, for the cases that were held out."""
    for case, profile in zip(HELD_OUT, results.profiles[len(FITTED) :], strict=True):
        priced, _ = layers(
            architecture_of(case.config),
            PROCESSOR,
            sequence=case.sequence,
            sizes=case.sizes,
            recipe=SINGLE,
            calibration=calibration,
        )
        for at in range(len(case.sizes)):
            for what in ("model", "embedding", "block", "head"):
                yield _row(case, what, at, profile, priced)


def _row(case: Case, what: str, at: int, profile: Profile, priced: Profile) -> Row:
    chosen = [index for index, part in enumerate(profile.parts) if what in ("model", part.kind)]

    def total(name: str, found: Profile) -> float:
        return float(sum(getattr(found.parts[index].measurements[at], name) for index in chosen))

    def error(name: str) -> float:
        there = total(name, profile)
        return total(name, priced) / there - 1 if there else 0.0

    seconds, errors = tuple(total(name, profile) for name in OPS), tuple(map(error, OPS))
    return Row(case, what, case.sizes[at], seconds, errors, tuple(map(error, BYTES)))


def report(results: Results) -> str:
    """The tables, as Markdown."""
    calibration = fitted(results)
    found = list(rows(results, calibration))
    speeds = calibration.achieved
    lines = [
        "# Costs by formula against measured ones",
        "",
        f"Made by `python -m benchmarks.calibration` on {results.date}: {results.machine}, torch {torch.__version__}, "
        f"one thread; {results.load:.0f} processes wanted to run, in the mean of the last quarter of an hour. GPTs of "
        f"{BLOCKS} blocks in single precision; the layers are measured alone, in seconds of the processor, and of "
        f"{results.passes} passes over all models the fastest counts. Errors are formula over measured, minus 1.",
        "",
        "Fitted to "
        + "; ".join(f"width {c.width}, {c.sequence} tokens, sizes {', '.join(map(str, c.sizes))}" for c in FITTED)
        + ". None of the models below was among them.",
        "",
        f"The fit: products at {speeds.gemm * PROCESSOR.flops / 1e9:.0f} GFLOP/s, attention at "
        f"{speeds.attention_forward * PROCESSOR.flops / 1e9:.0f} in F and "
        f"{speeds.attention_backward * PROCESSOR.flops / 1e9:.0f} in I, elementwise kernels at "
        f"{speeds.elementwise * PROCESSOR.bandwidth / 1e9:.0f} GB/s, before each kind of layer's own factors:",
        "",
        "| layer | factors F, I, W | fixed F, I, W |",
        "|---|---|---|",
        *(
            f"| {each.kind} | {', '.join(f'{factor:.2f}' for factor in each.factors)} "
            f"| {', '.join(f'{s * 1e6:.0f} us' for s in each.fixed_s)} |"
            for each in calibration.corrections
        ),
        "",
        *_largest(found),
        "",
        "| width | tokens | size | layers | F, I, W measured | F | I | W | bytes after F | after I |",
        "|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in found:
        times = " ".join(f"{seconds * 1e3:.2f}" for seconds in row.measured)
        errors = " | ".join(f"{error:+.1%}" for error in row.seconds + row.held)
        lines.append(f"| {row.case.width} | {row.case.sequence} | {row.size} | {row.what} | {times} ms | {errors} |")
    return "\n".join([*lines, ""])


def _largest(found: Sequence[Row]) -> Iterator[str]:
    yield "| largest error | F | I | W | bytes after F | after I |"
    yield "|---|--:|--:|--:|--:|--:|"
    for what in ("model", "block", "head", "embedding"):
        errors = [row.seconds + row.held for row in found if row.what == what]
        largest = [max(column, key=abs) for column in zip(*errors, strict=True)]
        yield f"| {what} | {' | '.join(f'{error:+.1%}' for error in largest)} |"


def within(results: Results) -> bool:
    """Whether F, I and W of all models and of their blocks are near enough, and all bytes."""
    found = list(rows(results, fitted(results)))
    times = [error for row in found if row.what in ("model", "block") for error in row.seconds]
    held = [error for row in found for error in row.held]
    return max(map(abs, times)) <= WITHIN and max(map(abs, held)) <= WITHIN_BYTES


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, and tell by the exit code whether all are near enough."""
    today = datetime.now(tz=UTC).date()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=6, help="passes over all models (6)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each pass (4)")
    parser.add_argument("--results", type=Path, default=RESULTS / f"{today}-calibration.json", help="where to write")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    cases = FITTED + HELD_OUT
    best: list[Profile] = []
    for number in range(options.passes):
        for at, case in enumerate(cases):
            _say(f"pass {number + 1} of {options.passes}: width {case.width}, {case.sequence} tokens")
            found = measured(case, options.rounds)
            if number:
                best[at] = fastest(best[at], found)
            else:
                best.append(found)
    results = Results(str(today), machine(), os.getloadavg()[2], options.passes, tuple(best))
    options.results.write_bytes(msgspec.json.encode(results) + b"\n")
    options.results.with_suffix(".md").write_text(report(results))
    print(report(results))
    _say(f"wrote {options.results} and the table beside it")
    return 0 if within(results) else 1


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
