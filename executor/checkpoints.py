"""Checkpoints that do not depend on the split: one file, with the names that the unsplit model's parameters have.

A file written by p ranks loads into q, and its part "model" into the unsplit model itself. It is what `torch.save`
makes of a dictionary, and loads with `torch.load(path, weights_only=True)`:

| key | holds |
|---|---|
| `model` | the state dict of the unsplit model |
| `optimizer` | None; or `state`, what is known of each parameter by its name, and `groups`, settings and for whom |
| `steps` | training steps done, by the pipeline's `steps` |
| `extra` | what the caller gave |
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from adaptpipe.solver import InputError

from .running.modules import ModuleSession
from .running.startup import agree
from .waiting import gather

_SHOWN = 4  # names that a message lists


def save_checkpoint(
    path: str | Path,
    pipeline: ModuleSession,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    extra: Mapping[str, object] | None = None,
    timeout_s: float = 600.0,
) -> None:
    """Write a checkpoint; all processes call it together. The first one collects the model in its memory and writes.

    A file that is there is replaced at the end, in one go.

    Parameters
    ----------
    path
        The file; read on the first process only.
    pipeline
        Its stages are saved, of several replicas the first one's, of two directions direction 0's. Their state dicts
        must have the keys of the unsplit model, as those of `adaptpipe.models` and of slices of an `nn.Sequential` do.
    optimizer
        That of this rank's parameters.
    extra
        Numbers, strings, tensors, and lists and dicts of them; read on the first process only.
    timeout_s
        Seconds to wait for the slowest process, which may be the one that writes.

    Raises
    ------
    InputError
        On every process: if two stages use a key for different things, if the optimizer has a parameter of no stage,
        if something does not load again with `weights_only`, or if the file cannot be written.
    """
    crew, what = pipeline.crew, "save_checkpoint"
    root = crew.replicas[0][0]
    mine = agree(
        lambda: (_model_part(pipeline), None if optimizer is None else _optimizer_part(pipeline, optimizer)),
        lambda part: "",
        timeout_s,
        what,
    )
    everyone = gather(mine if crew.replica == 0 else None, timeout_s, what, only=root)

    def write() -> None:
        if dist.get_rank() == root:
            parts = [part for part in crew.first(everyone) if part is not None]
            model = _merge([model for model, _ in parts], pipeline)
            known = [part for _, part in parts if part is not None]
            merged = {
                "state": {name: value for state, _ in known for name, value in state.items()},
                "groups": [group for _, groups in known for group in groups],
            }
            data = {"model": model, "optimizer": merged if known else None, "steps": pipeline.steps}
            _write(Path(path), {**data, "extra": dict(extra or {})})

    agree(write, lambda nothing: "", timeout_s, what)


def load_checkpoint(
    path: str | Path,
    pipeline: ModuleSession,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    timeout_s: float = 600.0,
) -> dict[str, Any]:
    """Read a checkpoint into the stages and the optimizer; all processes call it together, and each reads the file.

    Parameters
    ----------
    path
        A file by `save_checkpoint`, of any number of ranks; or, to begin with its weights, one with the state dict of
        the unsplit model. A copy of a tied parameter may be missing where another is there.
    pipeline
        Whose stages get their parameters and buffers, and which goes on counting steps.
    optimizer
        That of this rank's parameters, as it was made; None: it is not read. Settings of its groups, as the learning
        rate, become those that the parameters had.

    Returns
    -------
    dict
        What was given as `extra`.

    Raises
    ------
    InputError
        On every process, and before anything has changed: if the file cannot be read, or has not exactly what the
        stages and the optimizer need.
    TransportError
        If a process does not come.
    """
    what = "load_checkpoint"
    needed = gather({key for module in _modules(pipeline).values() for key in module.state_dict()}, timeout_s, what)
    aliases = _aliases(pipeline)

    def read() -> tuple[dict[int, dict[str, Any]], dict[str, Any] | None, int, dict[str, Any]]:
        data = _read(Path(path))
        found = data.get("model", data)
        known = set().union(*needed)
        model = {
            stage: {
                key: _fitting(path, f"stage {stage}", key, value, found, aliases)
                for key, value in module.state_dict().items()
            }
            for stage, module in _modules(pipeline).items()
        }
        _check_surplus(path, found, known)
        packed = None
        if optimizer is not None:
            packed = _packed(path, pipeline, optimizer, _optimizer_of(path, data), aliases)
        return model, packed, int(data.get("steps", 0)), dict(data.get("extra") or {})

    model, packed, pipeline.steps, extra = agree(read, lambda made: "", timeout_s, what)
    for stage, module in _modules(pipeline).items():
        module.load_state_dict(model[stage])
    if optimizer is not None and packed is not None:
        optimizer.load_state_dict(packed)
    return extra


def check_checkpoint(path: str | Path, model: nn.Module) -> None:
    """Check that a checkpoint can be loaded into the stages of a model, with an optimizer; any one process may.

    Parameters
    ----------
    path
        As for `load_checkpoint`.
    model
        The unsplit model. Of a parameter with several names, the file needs one.

    Raises
    ------
    InputError
        If the file cannot be read, is of another model, or has no state of an optimizer.
    """
    data = _read(Path(path))
    found, state = data.get("model", data), model.state_dict(keep_vars=True)
    names: dict[int, list[str]] = {}
    for key, value in state.items():
        names.setdefault(id(value), []).append(key)
    aliases = {key: tuple(names[id(value)]) for key, value in state.items()}
    for key, value in state.items():
        _fitting(path, "the model", key, value, found, aliases)
    _check_surplus(path, found, state)
    _optimizer_of(path, data)


def _modules(pipeline: ModuleSession) -> dict[int, nn.Module]:
    """The stages; of a compiled one, the module that was compiled, which has the unsplit model's keys."""
    return _uncompiled(pipeline.stages)


def _uncompiled(stages: Mapping[int, nn.Module]) -> dict[int, nn.Module]:
    return {stage: getattr(module, "_orig_mod", module) for stage, module in stages.items()}


def _model_part(pipeline: ModuleSession) -> dict[int, dict[str, Any]]:
    return {
        stage: {key: value.cpu() if isinstance(value, Tensor) else value for key, value in module.state_dict().items()}
        for stage, module in _uncompiled(pipeline.first_copies).items()
    }


def _names(stages: Mapping[int, nn.Module]) -> dict[int, str]:
    """Name of each of the stages' parameters, by its identity."""
    found: dict[int, str] = {}
    for module in _uncompiled(stages).values():
        for name, parameter in module.named_parameters():
            found.setdefault(id(parameter), name)
    return found


def _aliases(pipeline: ModuleSession) -> dict[str, tuple[str, ...]]:
    """For each tied parameter, the names of all of its copies."""
    return {name: tuple(other for _, other in tie) for tie in pipeline.ties for _, name in tie}


def _optimizer_part(
    pipeline: ModuleSession, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the optimizer knows of each parameter that counts, and its settings, by name."""
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    packed, names = optimizer.state_dict(), _names(pipeline.first_copies)
    _named_groups(pipeline, optimizer)  # refuses what is in none of the stages
    for group, numbers in zip(optimizer.param_groups, packed["param_groups"], strict=True):
        counted = {
            names[id(parameter)]: number
            for parameter, number in zip(group["params"], numbers["params"], strict=True)
            if id(parameter) in names
        }
        groups.append({**_settings(numbers), "params": list(counted)})
        for name, number in counted.items():
            if number in packed["state"]:
                known = packed["state"][number]
                state[name] = {key: x.cpu() if isinstance(x, Tensor) else x for key, x in known.items()}
    return state, groups


def _named_groups(pipeline: ModuleSession, optimizer: torch.optim.Optimizer) -> list[list[str]]:
    names = _names(pipeline.stages)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise InputError(
                    f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is in none of this rank's "
                    f"stages {sorted(pipeline.stages)}; give it parameters of the stages"
                )
    return [[names[id(parameter)] for parameter in group["params"]] for group in optimizer.param_groups]


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}


def _merge(parts: list[dict[int, dict[str, Any]]], pipeline: ModuleSession) -> dict[str, Any]:
    """The state dict of the unsplit model, in the order of the stages."""
    stages = {stage: part for each in parts for stage, part in each.items()}
    merged: dict[str, Any] = {}
    owner: dict[str, int] = {}
    for stage, part in sorted(stages.items()):
        for key, value in part.items():
            first = owner.setdefault(key, stage)
            if first != stage and not any({(first, key), (stage, key)} <= set(tie) for tie in pipeline.ties):
                raise InputError(
                    f"the stages {first} and {stage} both have the key {key!r} in their state dicts; give their parts "
                    "the names of the unsplit model, as slices of an nn.Sequential keep them"
                )
            merged.setdefault(key, value)
    return merged


def _write(path: Path, data: dict[str, Any]) -> None:
    """Write beside the file, see that it loads, and put it in place."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(data, temporary)
        torch.load(temporary, weights_only=True, mmap=True)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: cannot be written ({reason}); choose another file") from error
    except (pickle.PicklingError, pickle.UnpicklingError, AttributeError, TypeError) as error:
        raise InputError(
            "extra, or the optimizer's state, holds something that does not load with weights_only; give numbers, "
            f"strings, tensors, and lists and dicts of them ({str(error).splitlines()[0]})"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _read(path: Path) -> dict[str, Any]:
    try:
        data = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise InputError(f"{path}: cannot be read as a checkpoint ({reason}); save_checkpoint writes one") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: holds a {type(data).__name__}, not a checkpoint; save_checkpoint writes one")
    return data


def _fitting(
    path: str | Path, where: str, key: str, own: Any, found: Mapping[str, Any], aliases: Mapping[str, tuple[str, ...]]
) -> Any:
    """What the file has for a key of a stage, or of the model."""
    there = next((name for name in (key, *aliases.get(key, ())) if name in found), None)
    if there is None:
        raise InputError(
            f"{path}: has nothing for {key!r} of {where}; it has {_some(list(found))}; the checkpoint is of "
            "another model, or the stages do not have its names"
        )
    value = found[there]
    if isinstance(own, Tensor) and (not isinstance(value, Tensor) or value.shape != own.shape):
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise InputError(
            f"{path}: {there!r} has shape {shape}, and {where} needs {tuple(own.shape)}; the checkpoint is of "
            "another model"
        )
    return value


def _check_surplus(path: str | Path, found: Mapping[str, Any], known: Container[str]) -> None:
    if surplus := [key for key in found if key not in known]:
        raise InputError(f"{path}: no stage has {_some(surplus)}; the checkpoint is of another model")


def _optimizer_of(path: str | Path, data: Mapping[str, Any]) -> dict[str, Any]:
    saved: dict[str, Any] | None = data.get("optimizer")
    if saved is None:
        raise InputError(f"{path}: has no state of an optimizer; load it without one")
    return saved


def _packed(
    path: str | Path,
    pipeline: ModuleSession,
    optimizer: torch.optim.Optimizer,
    saved: dict[str, Any],
    aliases: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """The state dict of this rank's optimizer, made of what the file knows of its parameters."""
    settings = {name: _settings(group) for group in saved["groups"] for name in group["params"]}
    packed = optimizer.state_dict()
    packed["state"] = {}

    def there(name: str, where: Mapping[str, Any]) -> str | None:
        return next((each for each in (name, *aliases.get(name, ())) if each in where), None)

    for names, numbers in zip(_named_groups(pipeline, optimizer), packed["param_groups"], strict=True):
        first: str | None = None
        for name, number in zip(names, numbers["params"], strict=True):
            known = there(name, settings)
            if known is None:
                raise InputError(f"{path}: its optimizer had no parameter {name!r}; it had {_some(list(settings))}")
            first = first or known
            if repr(settings[known]) != repr(settings[first]):
                raise InputError(
                    f"{path}: its optimizer had {first!r} and {known!r} in groups of different settings; "
                    "make the optimizer with such groups"
                )
            numbers.update(settings[known])
            if (of := there(name, saved["state"])) is not None:
                packed["state"][number] = {key: _own(value) for key, value in saved["state"][of].items()}
    return packed


def _own(value: Any) -> Any:
    """A copy in memory, where the file's would be changed with the optimizer's steps."""
    return value.clone() if isinstance(value, Tensor) else value


def _some(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "") or "nothing"
