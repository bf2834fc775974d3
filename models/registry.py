"""Models by name, as a run file asks for them: `[model]` with a `kind` and the keys of that kind."""

from __future__ import annotations

from dataclasses import MISSING, fields

from adaptpipe.solver import InputError
from adaptpipe.solver.core.errors import did_you_mean

from .config import GPTConfig, MLPConfig
from .hf import DecoderConfig, build_decoder

AnyConfig = GPTConfig | MLPConfig | DecoderConfig
"""What `build` makes: models that train on text."""

_KINDS: dict[str, type[GPTConfig] | type[MLPConfig]] = {"gpt": GPTConfig, "mlp": MLPConfig}


def build(kind: str, /, **keys: object) -> AnyConfig:
    """Configuration of a model from the keys of a run file; `build_stage` and `build_full` make its modules.

    Parameters
    ----------
    kind
        `"gpt"`, `"mlp"`, or `"hf"` for a decoder of transformers.
    **keys
        Fields of `GPTConfig` or `MLPConfig`; for `"hf"` those of `adaptpipe.models.hf.build_decoder`.

    Raises
    ------
    InputError
        If the kind or a key is unknown, a key is missing, or a value is out of bounds. The message names the key.

    Examples
    --------
    >>> build("mlp", layers=4, width=32, inputs=8).activation
    'gelu'
    >>> build("gpt", layers=4, width=32, head=8, sequence=64)
    Traceback (most recent call last):
    adaptpipe.solver.core.errors.InputError: model.head: unknown for kind "gpt"; did you mean heads? ...
    """
    if kind == "hf":
        return build_decoder(**keys)
    config = _KINDS.get(kind) if isinstance(kind, str) else None
    if config is None:
        raise InputError(f"model.kind = {kind!r}: unknown; use one of {', '.join(_KINDS)}, hf")
    legal = {field.name: field.default is MISSING for field in fields(config)}
    for key in keys:
        if key not in legal:
            hint = did_you_mean(key, legal)
            raise InputError(f'model.{key}: unknown for kind "{kind}"; {hint}legal keys: {", ".join(legal)}')
    missing = [key for key, required in legal.items() if required and key not in keys]
    if missing:
        raise InputError(f'model.{missing[0]}: missing; kind "{kind}" needs {", ".join(k for k in legal if legal[k])}')
    return config(**keys)  # type: ignore[arg-type]  # the configuration checks its values' types itself
