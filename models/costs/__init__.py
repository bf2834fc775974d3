"""Models as costs: what each layer of a decoder takes in seconds and bytes on a device. No torch needed.

| to … | use |
|---|---|
| name a model | `preset`, `PRESETS` |
| read one | `read_config`, any config.json of the types in `READERS` |
| describe one | `Architecture`, or `architecture_of` a run file's model |
| count it | `parameters`, `sample_flops` |
| price its layers | `layers` |
| price them as measured | `calibrate` |
"""

from .architecture import Architecture, Experts, Latent, Vision
from .calibration import Calibration, calibrate
from .experts import busiest
from .own import PROCESSOR, architecture_of
from .presets import PRESETS, preset
from .pricing import layers, sample_flops
from .reading import READERS, from_config, read_config
from .structure import parameters
from .work import HALF, MIXED, RECOMPUTE, SINGLE, Recipe, Recompute

__all__ = [
    "HALF",
    "MIXED",
    "PRESETS",
    "PROCESSOR",
    "READERS",
    "RECOMPUTE",
    "SINGLE",
    "Architecture",
    "Calibration",
    "Experts",
    "Latent",
    "Recipe",
    "Recompute",
    "Vision",
    "architecture_of",
    "busiest",
    "calibrate",
    "from_config",
    "layers",
    "parameters",
    "preset",
    "read_config",
    "sample_flops",
]
