"""What a plan is asked for: a model on a cluster, or an instance of a file, and how the two are to be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from adaptpipe.solver import InputError
from adaptpipe.solver.core.errors import did_you_mean


@dataclass(frozen=True, slots=True)
class Question:
    """One plan that is asked for; the options of the command.

    Attributes
    ----------
    model, cluster
        Names or files.
    profile
        A file of measured layers: without a model these are planned, with one its formulas are made to agree with them.
    instance, name
        A file of instances, in the place of model and cluster, and which of them.
    sequence
        Tokens of a sample; None: as the model's usual.
    global_batch
        Samples of a step, all replicas together; None: 4 for each rank of each pipeline.
    microbatch_sizes
        Sizes to choose from; None: 1 to 4.
    ranks
        Ranks of a pipeline; None: as many as the cluster's devices make.
    tp, dp, ep
        Tensor-, data- and expert-parallel degrees.
    zero
        Whether replicas divide the optimizer's state (1) or keep it (0).
    recompute
        What is computed again in the backward: none, selective or full.
    split_layers
        Whether attention and MLP are layers of their own.
    memory
        10^9 bytes of every device; None: as the cluster says.
    links
        Factor on the bandwidth of all links.
    """

    model: str | None = None
    cluster: str | None = None
    profile: str | None = None
    instance: str | None = None
    name: str | None = None
    sequence: int | None = None
    global_batch: int | None = None
    microbatch_sizes: tuple[int, ...] | None = None
    ranks: int | None = None
    tp: int = 1
    dp: int = 1
    ep: int = 1
    zero: int = 1
    recompute: str = "none"
    split_layers: bool = False
    memory: float | None = None
    links: float = 1.0

    def __post_init__(self) -> None:
        if self.instance is None and ((self.model is None and self.profile is None) or self.cluster is None):
            raise InputError("give --model and --cluster, or --instance with --name; see adaptpipe plan --help")
        if self.instance is not None:
            for field in fields(self):
                if field.name in MODEL_ONLY and getattr(self, field.name) != field.default:
                    option = "--" + field.name.replace("_", "-")
                    raise InputError(f"{option}: an instance of a file has its own; leave it out, or give --model")
        elif self.name is not None:
            raise InputError("--name: chooses an instance; give --instance too, or leave it out")
        for key in ("sequence", "global_batch", "ranks", "tp", "dp", "ep"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise InputError(f"--{key.replace('_', '-')} {value}: must be at least 1")
        for key, least, most in (("memory", 0.001, 1e9), ("links", 1e-6, 1e6)):
            value = getattr(self, key)
            if value is not None and not least <= value <= most:
                raise InputError(f"--{key} {value}: must be from {least:g} to {most:g}")
        sizes = self.microbatch_sizes
        if sizes is not None and (not sizes or min(sizes) < 1):
            raise InputError(f"--microbatch-sizes {list(sizes)}: must be sizes of at least 1")

    @property
    def title(self) -> str:
        """For people and files."""
        if self.instance is not None:
            return self.name or self.instance
        return f"{self.model or self.profile} on {self.cluster}"


MODEL_ONLY = frozenset(
    {"model", "cluster", "profile", "sequence", "tp", "dp", "ep", "zero", "recompute", "split_layers"}
)  # fmt: skip
"""What an instance of a file has decided already."""


def sizes_of(text: str, separator: str = ",") -> tuple[int, ...]:
    """Micro-batch sizes from text, ascending.

    Raises
    ------
    InputError
        When they are no numbers from 1.

    Examples
    --------
    >>> sizes_of("2,1,2")
    (1, 2)
    """
    try:
        found = sorted({int(each) for each in text.split(separator)})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise InputError(f"--microbatch-sizes {text}: must be whole numbers from 1, as in 1{separator}2{separator}4")
    return tuple(found)


def _switch(text: str) -> bool:
    return {"yes": True, "no": False, "true": True, "false": False}[text.lower()]


_AXES: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {
        "model": str,
        "cluster": str,
        "profile": str,
        "instance": str,
        "name": str,
        "sequence": int,
        "global-batch": int,
        "microbatch-sizes": lambda text: sizes_of(text, "+"),
        "ranks": int,
        "tp": int,
        "dp": int,
        "ep": int,
        "zero": int,
        "recompute": str,
        "split-layers": _switch,
        "memory": float,
        "links": float,
    }
)
"""How the values of each axis of `--what-if` are read."""


def axis(word: str) -> tuple[str, tuple[str, ...]]:
    """An axis of `--what-if` and its values, as text.

    Raises
    ------
    InputError
        When there is no such axis, or a value cannot be read.

    Examples
    --------
    >>> axis("ranks=4,8")
    ('ranks', ('4', '8'))
    """
    key, equals, text = word.partition("=")
    if key not in _AXES:
        hint = did_you_mean(key, _AXES)
        raise InputError(f"--what-if {word}: {key!r} is no axis; {hint}there are {', '.join(_AXES)}")
    values = tuple(dict.fromkeys(value for value in text.split(",") if value))
    if not equals or not values:
        raise InputError(f"--what-if {word}: give it values, as in {key}=A,B")
    for value in values:
        _read(key, value)
    return key, values


def vary(options: Mapping[str, Any], changes: Mapping[str, str]) -> Question:
    """The question of some options, with some axes at other values.

    Raises
    ------
    InputError
        When it is not to be asked.

    Examples
    --------
    >>> vary({"model": "gemma2-9b", "cluster": "h100x8"}, {"ranks": "4", "microbatch-sizes": "1+2"}).microbatch_sizes
    (1, 2)
    """
    return Question(**{**options, **{key.replace("-", "_"): _read(key, value) for key, value in changes.items()}})


def _read(key: str, value: str) -> Any:
    try:
        return _AXES[key](value)
    except InputError:
        raise
    except (ValueError, KeyError):
        kind = {"memory": "a number", "links": "a number", "split-layers": "yes or no"}.get(key, "a whole number")
        raise InputError(f"--what-if {key}={value}: {value!r} is not {kind}") from None
