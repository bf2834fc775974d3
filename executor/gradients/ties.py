"""Parameters that stages share: which copies of one there are, and that all start equal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import nn

from adaptpipe.solver import InputError, Placement

from ..waiting import gather

Copy = tuple[int, str]
"""A parameter by its stage and its name there."""

Tie = tuple[Copy, ...]
"""All copies of one parameter, in ascending order."""

_NAMED = 4  # names that a message lists


@dataclass(frozen=True, slots=True)
class _Fact:
    """What ranks tell each other about a copy: its first name in its stage, and what its gradient will look like."""

    copy: Copy
    shape: tuple[int, ...]
    dtype: torch.dtype
    trains: bool


def check_declared(placement: Placement, stages: Mapping[int, nn.Module], tied: Iterable[Sequence[Copy]]) -> None:
    """Check that the copies of this rank that are declared to be tied are there.

    Raises
    ------
    InputError
        If one names a stage or a parameter that does not exist.
    """
    count = placement.stage_count
    for copy in (copy for group in tied for copy in group):
        match copy:
            case (int(stage), str(name)):
                pass
            case _:
                raise InputError(
                    f"tied: {copy!r} is no copy of a parameter; a tie lists its copies as (stage, name), for example "
                    "tied=[((0, 'embed.weight'), (3, 'head.weight'))]"
                )
        if not 0 <= stage < count:
            raise InputError(f"tied: ({stage}, {name!r}) names stage {stage}; there are the stages 0 to {count - 1}")
        if stage in stages and name not in (names := dict(stages[stage].named_parameters(remove_duplicate=False))):
            some = ", ".join([*list(names)[:_NAMED], *(["…"] if len(names) > _NAMED else [])]) or "none"
            raise InputError(f"tied: stage {stage} has no parameter {name!r}; its parameters: {some}")


def find_ties(
    stages: Mapping[int, nn.Module], tied: Iterable[Sequence[Copy]], timeout_s: float, what: str
) -> tuple[Tie, ...]:
    """All ties of the pipeline, the same and in the same order on every process; all call it together.

    Parameters
    ----------
    stages
        This rank's stages.
    tied
        Those that are declared: copies of each. A parameter object that two stages of one rank share is found without.
    timeout_s, what
        As for `gather`.

    Raises
    ------
    InputError
        On every process, if copies of one parameter differ in shape or dtype, or in whether they train.
    """
    declared = [[(int(stage), str(name)) for stage, name in group] for group in tied]
    everyone = gather((_facts(stages, declared), _shared(stages)), timeout_s, what)
    facts = {copy: fact for mine, _ in everyone for copy, fact in mine.items()}
    pairs: dict[Copy, set[Copy]] = defaultdict(set)
    for group in [
        *([facts[copy].copy for copy in group] for group in declared),
        *(t for _, all in everyone for t in all),
    ]:
        for a, b in combinations(group, 2):
            pairs[a].add(b)
            pairs[b].add(a)
    ties = _connected(pairs)
    for tie in ties:
        _check_alike([facts[copy] for copy in tie if copy in facts])
    return ties


def _facts(stages: Mapping[int, nn.Module], declared: Sequence[Sequence[Copy]]) -> dict[Copy, _Fact]:
    found = {}
    for stage, module in stages.items():
        first = {id(parameter): name for name, parameter in module.named_parameters()}
        names = dict(module.named_parameters(remove_duplicate=False))
        for name in {name for group in declared for s, name in group if s == stage}:
            parameter = names[name]
            copy = stage, first[id(parameter)]
            found[stage, name] = found[copy] = _Fact(
                copy, tuple(parameter.shape), parameter.dtype, parameter.requires_grad
            )
    return found


def _shared(stages: Mapping[int, nn.Module]) -> list[Tie]:
    """Parameter objects that several stages of this rank have."""
    copies: dict[int, list[Copy]] = defaultdict(list)
    for stage, module in sorted(stages.items()):
        for name, parameter in module.named_parameters():
            copies[id(parameter)].append((stage, name))
    return [tuple(group) for group in copies.values() if len(group) > 1]


def _connected(pairs: Mapping[Copy, set[Copy]]) -> tuple[Tie, ...]:
    """Groups of copies that are tied to each other, directly or through others."""
    seen: set[Copy] = set()
    ties = []
    for start in sorted(pairs):
        if start in seen:
            continue
        group, reached = {start}, [start]
        while reached:
            new = pairs[reached.pop()] - group
            group |= new
            reached += new
        seen |= group
        if len(group) > 1:
            ties.append(tuple(sorted(group)))
    return tuple(ties)


def _check_alike(facts: Sequence[_Fact]) -> None:
    for fact in facts[1:]:
        (a, b), ((s, x), (t, y)) = (facts[0], fact), (facts[0].copy, fact.copy)
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            raise InputError(
                f"tied: {x} of stage {s} has shape {a.shape} and dtype {a.dtype}, and {y} of stage {t} has "
                f"{b.shape} and {b.dtype}; copies of one parameter must be alike"
            )
        if a.trains != b.trains:
            raise InputError(
                f"tied: {x} of stage {s} {'trains' if a.trains else 'is frozen'}, and {y} of stage {t} does "
                "not do the same; set requires_grad alike"
            )
