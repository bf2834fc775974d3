"""Configurations of decoders from a config.json, or from keys as in one; nothing is downloaded, and no code is run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from adaptpipe.solver import InputError
from adaptpipe.solver.core.errors import did_you_mean
from adaptpipe.solver.files.reading import read_data

from .config import DecoderConfig
from .families import FAMILIES, Family, Settings

_ATTENTION = "attn_implementation"
"""A key that every config takes and none lists; older releases do not take it from a file."""


def read_decoder(
    source: str | Path | Mapping[str, object], *, sequence: int, split_blocks: bool = False, **changes: object
) -> DecoderConfig:
    """Configuration of a decoder from a config.json.

    Parameters
    ----------
    source
        The file, or what is in it. Its `model_type` names the family. Keys that the family does not know are ignored,
        as transformers does.
    sequence
        Tokens of a sample in training.
    split_blocks
        Whether attention and MLP are layers of their own.
    **changes
        Keys of the config to change, or to add; unknown ones are refused.

    Raises
    ------
    InputError
        If the file cannot be read, the family or a changed key is unknown, a value is out of bounds, or transformers
        is not installed.

    Examples
    --------
    >>> config = read_decoder({"model_type": "llama", "num_hidden_layers": 1}, sequence=16, vocab_size=300)
    >>> config.vocab, config.family.name
    (300, 'llama')
    """
    data = dict(source) if isinstance(source, Mapping) else read_data(source)
    place = "model" if isinstance(source, Mapping) else str(source)
    family = _family(f"{place}: model_type", data.get("model_type"))
    _check_keys(family, changes)
    return DecoderConfig(_settings(place, family, data | changes), sequence, split_blocks)


def build_decoder(**keys: object) -> DecoderConfig:
    """Configuration of a decoder from the keys of a run file.

    Parameters
    ----------
    **keys
        `config`, a config.json, or `family`, one of `FAMILIES`; `sequence` and perhaps `split_blocks`; and keys of the
        family's config: all that differ from the file, or from what transformers takes when they are left out.

    Raises
    ------
    InputError
        As `read_decoder`; or if a key is missing.
    """
    file, name, sequence = (keys.pop(key, None) for key in ("config", "family", "sequence"))
    if sequence is None:
        raise InputError('model.sequence: missing; kind "hf" needs the tokens of a sample')
    split = keys.pop("split_blocks", False)
    if not isinstance(split, bool):
        raise InputError(f"model.split_blocks = {split!r}: must be true or false")
    if not isinstance(sequence, int):
        raise InputError(f"model.sequence = {sequence!r}: must be a whole number")
    if (file is None) == (name is None):
        raise InputError(
            'model: kind "hf" needs either config = "…/config.json", or family = '
            f"{' or '.join(map(repr, FAMILIES))} and keys of its config"
        )
    if file is None:
        return read_decoder(
            {"model_type": _family("model.family", name).name}, sequence=sequence, split_blocks=split, **keys
        )
    if not isinstance(file, str):
        raise InputError(f"model.config = {file!r}: must be the name of a config.json")
    return read_decoder(file, sequence=sequence, split_blocks=split, **keys)


def _family(key: str, name: object) -> Family:
    family = FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        raise InputError(f"{key} = {name!r}: not a family that can be split; use one of {', '.join(FAMILIES)}")
    return family


def _check_keys(family: Family, keys: Mapping[str, object]) -> None:
    """Refuse a key that transformers would keep and never look at."""
    if not keys:
        return
    usual = family.settings({})
    known = {*usual.to_dict(), *usual.attribute_map, _ATTENTION}
    for key in keys:
        if key not in known:
            hint = did_you_mean(key, known)
            raise InputError(f"model.{key}: not a key of a {family.name} config; {hint}leave it out")


def _settings(place: str, family: Family, data: Mapping[str, object]) -> Settings:
    try:
        settings = family.settings({key: value for key, value in data.items() if key != _ATTENTION})
        if _ATTENTION in data:
            settings._attn_implementation = data[_ATTENTION]
        return settings
    except InputError:
        raise
    except Exception as error:  # transformers checks values in several ways
        reason = " ".join(str(error).split())
        raise InputError(f"{place}: transformers refuses this {family.name} config: {reason}") from error
