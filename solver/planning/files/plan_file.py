"""Plan files: the problem, its schedule, which layers form which stage, and what the plan was made for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Annotated

import msgspec

from ...core.errors import InputError
from ...core.problem import Problem
from ...core.schedule import Schedule
from ...evaluate.simulate import require_fit
from ...files.problem_file import ProblemSpec, problem_from_spec, problem_to_spec
from ...files.reading import read_struct, write_text
from ...files.schedule_file import ScheduleSpec, as_spec, from_spec
from ..plan import Plan
from ..workload import Split, split_of

FORMAT = "adaptpipe-plan"
VERSION = 1

Count = Annotated[int, msgspec.Meta(ge=0)]


class LayerSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A layer: its name, what sort it is, and its parameters."""

    name: str
    kind: str = ""
    parameters: Count = 0


class PlanSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan file.

    Attributes
    ----------
    split
        Number of layers of each stage.
    layers
        First to last.
    problem, schedule
        As in their own files.
    model, cluster
        What the plan was made for, in the words of whoever made it.
    figures
        What was predicted, in the words of the command line's JSON.
    """

    format: str
    version: int
    split: Annotated[list[Annotated[int, msgspec.Meta(ge=1)]], msgspec.Meta(min_length=1)]
    layers: Annotated[list[LayerSpec], msgspec.Meta(min_length=1)]
    problem: ProblemSpec
    schedule: ScheduleSpec
    model: dict[str, object] = msgspec.field(default_factory=dict)
    cluster: dict[str, object] = msgspec.field(default_factory=dict)
    figures: dict[str, object] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of a plan: its name, what sort it is, and its parameters (0: unknown)."""

    name: str
    kind: str
    parameters: int


@dataclass(frozen=True)
class PlanFile:
    """A plan as its file has it.

    Parameters
    ----------
    problem, schedule
        What is run.
    split
        Layers of each stage.
    layers
        First to last.
    model, cluster
        What the plan was made for, in the words of whoever made it.
    figures
        What was predicted, in the words of the command line's JSON.
    """

    problem: Problem
    schedule: Schedule
    split: Split
    layers: tuple[Layer, ...]
    model: Mapping[str, object] = field(default_factory=dict)
    cluster: Mapping[str, object] = field(default_factory=dict)
    figures: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(
        cls, plan: Plan, model: Mapping[str, object], cluster: Mapping[str, object], figures: Mapping[str, object]
    ) -> PlanFile:
        """That of a plan."""
        layers = tuple(Layer(part.name, part.kind, part.parameters) for part in plan.workload.profile.parts)
        return cls(plan.timeline.problem, plan.timeline.schedule, plan.split, layers, model, cluster, figures)

    def save(self, path: str | Path) -> None:
        """Write a file that `load_plan` reads.

        Raises
        ------
        InputError
            When it cannot be written.
        """
        spec = PlanSpec(
            FORMAT,
            VERSION,
            [len(part) for part in self.split],
            [LayerSpec(layer.name, layer.kind, layer.parameters) for layer in self.layers],
            problem_to_spec(self.problem),
            as_spec(self.schedule, self.problem.name),
            dict(self.model),
            dict(self.cluster),
            dict(self.figures),
        )
        fields = msgspec.to_builtins(spec)
        lines = [f" {_text(key)}: {_text(value)}" for key, value in fields.items()]
        write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def load_plan(path: str | Path) -> PlanFile:
    """Read a plan file.

    Raises
    ------
    InputError
        With file, key and remedy; when its parts do not belong together.
    """
    spec = read_struct(path, PlanSpec)
    try:
        if spec.format != FORMAT:
            raise InputError(f"format: {spec.format!r} is not {FORMAT!r}; this is another kind of file")
        if spec.version != VERSION:
            raise InputError(f"version: {spec.version} is not {VERSION}, the one this release reads")
        problem, schedule = problem_from_spec(spec.problem), from_spec(spec.schedule)
        require_fit(problem, schedule)
        if len(spec.split) != problem.stages:
            raise InputError(f"split: {len(spec.split)} stages, and the problem has {problem.stages}")
        if sum(spec.split) != len(spec.layers):
            raise InputError(f"split: {sum(spec.split)} layers in sum, and layers has {len(spec.layers)}")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return PlanFile(
        problem,
        schedule,
        split_of([0, *accumulate(spec.split)]),
        tuple(Layer(layer.name, layer.kind, layer.parameters) for layer in spec.layers),
        spec.model,
        spec.cluster,
        spec.figures,
    )
