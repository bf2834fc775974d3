"""A file with a small instance: six layers on two ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TYPES = [
    {"kind": kind, "F": f, "I": f, "W": f, "fixed": [0, 0, 0], "act": 1, "rel_i": 0, "static": 10, "comm_bytes": 1000}
    for kind, f in (("embed", 1.0), ("block", 10.0), ("head", 5.0))
]
SPEC: dict[str, Any] = {
    "p": 2,
    "sequences": 4,
    "default_mbs": 1,
    "mbs_fixed": False,
    "cap": 100,
    "speed": [1.0, 1.0],
    "aop": 1,
    "link": {"all": [1, 1000.0]},
    "types": TYPES,
    "units": [[0, 1], [1, 4], [2, 1]],
}


def write_instance(folder: Path, **other: Any) -> str:
    """A file of one instance, with keys replaced."""
    path = folder / "instances.json"
    path.write_text(json.dumps({"instances": {"tiny": SPEC | other}}))
    return str(path)
