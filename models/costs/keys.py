"""Keys of a config.json, read with messages that name the place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from adaptpipe.solver import InputError


@dataclass(frozen=True, slots=True)
class Keys:
    """What is in a config.json, or in a table of it, with messages that name the place."""

    data: Mapping[str, object]
    place: str

    def count(self, key: str, *others: str, default: int | None = None, least: int = 1) -> int:
        """A whole number, under the first of the names that is there."""
        for name in (key, *others):
            value = self.data.get(name)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or value < least:
                    raise InputError(f"{self.place}: {name} = {value!r}: must be a whole number from {least}")
                return value
        if default is None:
            raise self._missing(key)
        return default

    def having(self, *keys: str) -> Keys:
        """The same, if these keys are there, be they null: without them transformers would build its own defaults."""
        for key in keys:
            if key not in self.data:
                raise self._missing(key)
        return self

    def _missing(self, key: str) -> InputError:
        kind = self.data.get("model_type")
        close = get_close_matches(key, self.data.keys() - {key}, 1)
        hint = f"did you mean it by {close[0]}? " if close else ""
        return InputError(f"{self.place}: {key}: missing; {hint}a model of type {kind} needs it; add {key}")

    def optional(self, key: str) -> int | None:
        """A whole number, or None where it is null or missing."""
        return None if self.data.get(key) is None else self.count(key)

    def switch(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"{self.place}: {key} = {value!r}: must be true or false")
        return value

    def table(self, key: str) -> Keys | None:
        """A table within, or None where there is none."""
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise InputError(f"{self.place}: {key}: must be a table of keys")
        return Keys(value, f"{self.place}: {key}")

    def listed(self, key: str) -> list[object]:
        """A list; empty where there is none."""
        value = self.data.get(key) or []
        if not isinstance(value, list):
            raise InputError(f"{self.place}: {key} = {value!r}: must be a list")
        return value
