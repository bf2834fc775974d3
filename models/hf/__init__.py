"""Decoders of the `transformers` library as models that can be cut into stages; needs the extra `[hf]`.

| to … | use |
|---|---|
| describe one | `read_decoder` (a config.json, its contents, or a transformers config object), or `DecoderConfig` |
| cut and build it | `split_layers`, `build_stage` and `build_full` of `adaptpipe.models`, as for any model |
| make one from a run file's keys | `build_decoder` |
| see what is known | `FAMILIES` |
"""

from __future__ import annotations

from .config import DecoderConfig
from .families import FAMILIES
from .reading import build_decoder, read_decoder

__all__ = ["FAMILIES", "DecoderConfig", "build_decoder", "read_decoder"]
