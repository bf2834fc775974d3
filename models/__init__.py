"""Models that can be cut into stages: their layers, their text, their loss, and how to split them.

Names are imported when they are first used: configurations and splits need no torch, so looking at them stays light.

| to … | use |
|---|---|
| describe a model | `GPTConfig`, `MLPConfig`, or `build("gpt", layers=8, …)` as a run file does |
| use one of transformers | `adaptpipe.models.hf`, or `build("hf", family="llama", …)` |
| cut it | `split_layers`, `describe_split` |
| make the modules | `build_stage` for one rank's layers, `build_full` for all; `tied_copies` says what they share |
| weigh them | `parameter_count`, `static_bytes` |
| feed them | `load_text`, `split_text`, `batches`, `training_batches`, `next_byte_loss` |
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import GPTConfig, MLPConfig, ModelConfig
    from .losses import next_byte_loss
    from .registry import AnyConfig, build
    from .split import describe_split, split_layers
    from .stage import Stage, build_full, build_stage, parameter_count, static_bytes, tied_copies
    from .text import batches, load_text, split_text, training_batches

_HOME = {
    "config": ("GPTConfig", "MLPConfig", "ModelConfig"),
    "losses": ("next_byte_loss",),
    "registry": ("AnyConfig", "build"),
    "split": ("describe_split", "split_layers"),
    "stage": ("Stage", "build_full", "build_stage", "parameter_count", "static_bytes", "tied_copies"),
    "text": ("batches", "load_text", "split_text", "training_batches"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AnyConfig",
    "GPTConfig",
    "MLPConfig",
    "ModelConfig",
    "Stage",
    "batches",
    "build",
    "build_full",
    "build_stage",
    "describe_split",
    "load_text",
    "next_byte_loss",
    "parameter_count",
    "split_layers",
    "split_text",
    "static_bytes",
    "tied_copies",
    "training_batches",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE[name]}", __name__), name)
