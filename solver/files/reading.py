"""Reading and writing files with messages that name the place."""

from __future__ import annotations

import os
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from ..core.errors import InputError

T = TypeVar("T")


def read_struct(path: str | Path, kind: type[T]) -> T:
    """Read a TOML file (ending .toml) or a JSON file into a struct.

    Raises
    ------
    InputError
        When the file cannot be read, is broken (with the line), or does not fit (with the key).
    """
    return convert(str(path), read_data(path), kind)


def read_data(path: str | Path) -> dict[str, object]:
    """Read a TOML file (ending .toml) or a JSON file as plain data.

    Raises
    ------
    InputError
        When the file cannot be read, or is broken (with the line).
    """
    toml, text = Path(path).suffix.lower() == ".toml", read_text(path)
    try:
        data: object = tomllib.loads(text) if toml else msgspec.json.decode(text)
    except (tomllib.TOMLDecodeError, msgspec.DecodeError, RecursionError) as error:
        kind = "TOML" if toml else "JSON"
        hint = "" if toml else "; a TOML file needs a name that ends in .toml"
        raise InputError(f"{path}: broken {kind}: {error}{hint}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: holds no table of keys at its top level; see docs/files.md")
    return data


def read_text(path: str | Path) -> str:
    """Read a text file.

    Raises
    ------
    InputError
        When the file cannot be read, or is not UTF-8.
    """
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
        reason = error.strerror if isinstance(error, OSError) else error  # ValueError: no file can have this name
        raise InputError(f"{path}: cannot be read: {reason}") from None


def convert(place: str, data: object, kind: type[T]) -> T:
    """Fit plain data into a struct.

    Raises
    ------
    InputError
        When it does not fit, with the place and the key.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{place}: {_explain(str(error))}") from None


def _explain(message: str) -> str:
    """Turn "… - at `$.a.b`" around, so that the key comes first."""
    match = re.fullmatch(r"(?s)(.*?) - at `(?:key in )?\$\.?(.*)`", message)
    what, key = match.groups() if match is not None else (message, "")
    what = what[0].lower() + what[1:]
    if "contains unknown field" in what:
        what += "; see the list of keys in docs/files.md"
    elif "float" in what and "got" in what:
        what += "; whole numbers only: of a duration or of bytes, choose a finer unit"
    elif "invalid enum value" in what:
        what += "; docs/files.md has the legal ones"
    return f"{key or 'top level'}: {what}"


def write_text(path: str | Path, text: str) -> None:
    """Write a file as a whole or not at all.

    Raises
    ------
    InputError
        When it cannot be written.
    """
    target = Path(os.path.realpath(path))  # a link stays, and what it points to is written
    part = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
    try:
        if target.exists() and not target.is_file():
            raise InputError(f"{path}: cannot be written: it is not a regular file; give another name")
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
