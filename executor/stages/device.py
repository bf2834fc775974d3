"""Where stages are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn


def device_of(stages: Mapping[int, nn.Module]) -> torch.device | None:
    """Where a rank's stages are; None where they have no parameters or buffers."""
    for module in stages.values():
        for tensor in (*module.parameters(), *module.buffers()):
            return tensor.device
    return None
