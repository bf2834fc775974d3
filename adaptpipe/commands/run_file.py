"""Run files: what `adaptpipe run` and `adaptpipe profile` train, on how many ranks, under which schedules."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from adaptpipe.solver import InputError, Placement, place
from adaptpipe.solver.core.placement import explicit
from adaptpipe.solver.core.slices import MOST_SLICES, Slices
from adaptpipe.solver.files.problem_file import SlicesSpec, slices_from
from adaptpipe.solver.files.reading import convert, read_data

from .common import make_folder

Count = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86400)]


MEASURED = 4
"""Micro-batch sizes that are measured, where not told: time grows with their sum."""


class RunSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run file. Every key may be set on the command line: `--set ranks=4`, `--set model.layers=8`.

    Attributes
    ----------
    model
        `kind` ("gpt", "mlp" or "hf") and the keys of that kind.
    problem
        For `--emulate` without a model: a problem file, whose pipeline, batch and limits count.
    plan
        A file of `adaptpipe plan`, which decides the split into stages, `ranks`, `placement`, `data_parallel`,
        `samples`, `microbatch_sizes` and `memory_limit`; and the model, where there is no other.
    ranks, placement, stages_per_rank
        Pipeline: processes, where stages live (a family, or the rank of each stage), stages on each.
    data_parallel
        Replicas of the pipeline, each of `ranks` processes, which share the batch out.
    samples, microbatch_sizes
        Batch of one step, of all replicas together, and the micro-batch sizes a schedule may use.
    slices
        Parts that a micro-batch is cut into along its sequence, as `batch.slices` of a problem file; for a "gpt".
    steps, learning_rate, clip, seed
        Steps to train under each schedule; AdamW's learning rate; the norm that gradients are clipped to, 0: they are
        not; seed of weights and batches.
    checkpoint, resume
        File to write what our schedule has trained at the end, and file of an earlier run to go on from; "": none.
    data
        A text file; "" is the documentation that ships with CPython.
    method, objective, granularity, time_limit
        How our schedule is found, as in `adaptpipe solve`; the limit in seconds. `method` "plan", the usual one where
        there is a plan: as the plan has it, at its prices, and nothing is measured before.
    weight_units
        Units that a stage's weight gradient is measured in, and may be cut into.
    baseline
        The schedule to compare with: a method, or a file that ends in .json or .csv (PyTorch's); "" is the usual one
        of the placement: 1F1B (linear), Interleaved1F1B (loop), ZB-V (v), Chimera (bidirectional), else GPipe; with
        slices Seq1F1B (linear) or Seq1F1B-I (loop).
    memory_limit
        For every rank: "baseline" (the most that the baseline holds on any rank), "none", or bytes. With slices, not
        "baseline".
    profile_sizes
        Micro-batch sizes to measure; empty: four at most of `microbatch_sizes`, from the least to the largest.
    execution
        "adaptive": weight gradients fill waits as they come; "static": the schedule's order.
    noise
        Disturbs the steps, as in `adaptpipe simulate --noise`: "sigma=0.3,pause=500"; "none".
    seconds_per_tick
        For `--emulate`: how long a tick of the problem takes; left out: as its unit says.
    out
        Folder for chart, schedules, problem and trace.
    timeout_s
        Seconds that a rank may wait for a message.
    """

    model: dict[str, object] = msgspec.field(default_factory=dict)
    problem: str = ""
    plan: str = ""
    ranks: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 2
    placement: str | list[Annotated[int, msgspec.Meta(ge=0)]] = "linear"
    stages_per_rank: Count | None = None
    data_parallel: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 1
    samples: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 8
    microbatch_sizes: Annotated[list[Count], msgspec.Meta(min_length=1)] = msgspec.field(default_factory=lambda: [1])
    slices: Annotated[int, msgspec.Meta(ge=1, le=MOST_SLICES)] | SlicesSpec = 1
    steps: Count = 20
    learning_rate: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 1e-3
    clip: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    checkpoint: str = ""
    resume: str = ""
    data: str = ""
    method: str = "auto"
    objective: Literal["makespan", "span"] = "makespan"
    granularity: str = "all"
    weight_units: Annotated[int, msgspec.Meta(ge=1, le=256)] = 4
    time_limit: Seconds = 10.0
    baseline: str = ""
    memory_limit: Literal["baseline", "none"] | Annotated[int, msgspec.Meta(ge=1, le=2**53)] = "baseline"
    profile_sizes: list[Count] = msgspec.field(default_factory=list)
    execution: Literal["adaptive", "static"] = "adaptive"
    noise: str = "none"
    seconds_per_tick: Annotated[float, msgspec.Meta(gt=0, le=3600)] | None = None
    out: str = "runs/run"
    timeout_s: Seconds = 120.0

    def place(self) -> Placement:
        """Stage to rank."""
        default = 2 if self.placement in ("v", "wave") else 1
        try:
            if isinstance(self.placement, list):
                if self.stages_per_rank is not None:
                    raise InputError("stages_per_rank: follows from the list of placement; leave it out")
                return explicit(self.ranks, self.placement)
            return place(self.placement, self.ranks, self.stages_per_rank or default)
        except InputError as error:
            raise InputError(str(error).removeprefix("pipeline.")) from None

    @property
    def processes(self) -> int:
        """All of them: the ranks of every replica."""
        return self.ranks * self.data_parallel

    @property
    def pipeline_samples(self) -> int:
        """Samples of one step of one replica.

        Raises
        ------
        InputError
            If the batch cannot be shared out evenly.
        """
        if self.samples % self.data_parallel:
            raise InputError(
                f"samples = {self.samples}: no multiple of data_parallel = {self.data_parallel}; each replica trains "
                "on as many samples"
            )
        return self.samples // self.data_parallel

    @property
    def sequence_slices(self) -> Slices | None:
        """How micro-batches are cut along their sequence; None: not at all.

        Raises
        ------
        InputError
            If `slices` says what cannot be.
        """
        try:
            return slices_from(self.slices)
        except InputError as error:
            raise InputError(str(error).replace("batch.", "")) from None

    @property
    def measured_sizes(self) -> tuple[int, ...]:
        """Micro-batch sizes to measure: costs of the others follow from a line through these.

        Examples
        --------
        >>> RunSpec(model={}, microbatch_sizes=[1, 2, 3, 4, 5, 6, 8, 16]).measured_sizes
        (1, 3, 5, 16)
        """
        if self.profile_sizes:
            return tuple(self.profile_sizes)
        sizes = sorted(set(self.microbatch_sizes))
        last = len(sizes) - 1
        return (
            tuple(sizes[last * step // (MEASURED - 1)] for step in range(MEASURED))
            if last >= MEASURED
            else tuple(sizes)
        )

    @property
    def baseline_name(self) -> str:
        """The baseline's method."""
        usual = {"linear": "1F1B", "loop": "Interleaved1F1B", "v": "ZB-V", "bidirectional": "Chimera"}
        if self.sequence_slices is not None:
            usual = {"linear": "Seq1F1B", "loop": "Seq1F1B-I"}
        family = self.placement if isinstance(self.placement, str) else self.place().name
        return self.baseline or usual.get(family, "GPipe")

    @property
    def as_planned(self) -> bool:
        """Whether the schedule is that of a plan, at the plan's prices."""
        return self.method.casefold() == PLANNED


PLANNED = "plan"
"""The method that takes the schedule of a plan."""


def out_folder(spec: RunSpec) -> Path:
    """The folder that a run writes to.

    Raises
    ------
    InputError
        When it cannot be made, or not be written to.
    """
    return make_folder(Path(spec.out), f"out = {spec.out!r}")


def load_run(path: str | Path, settings: Sequence[str] = ()) -> RunSpec:
    """Read a run file and apply `key=value` settings.

    Raises
    ------
    InputError
        With file or setting, key and remedy.
    """
    data = read_data(path)
    for setting in settings:
        _apply(data, setting)
    spec = convert(str(path), data, RunSpec)
    if spec.plan:
        from .planned import with_plan

        return with_plan(spec, data)
    if spec.as_planned:
        raise InputError(f"method = {spec.method!r}: is the schedule of a plan; give plan = FILE too")
    return spec


def _apply(data: dict[str, object], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--set {setting}: write --set key=value, as --set ranks=4")
    *folders, last = key.strip().split(".")
    table = data
    for folder in folders:
        inner = table.setdefault(folder, {})
        if not isinstance(inner, dict):
            raise InputError(f"--set {setting}: {folder} is not a table, so it has no keys")
        table = inner
    try:
        table[last] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        table[last] = text  # a bare word, as a file name
