"""Models as costs: what each layer of a decoder takes in seconds and bytes on a device. No torch needed.

| to … | use |
|---|---|
| name a model | `preset`, `PRESETS` |
| read one | `read_config`, any config.json of the types in `READERS` |
| describe one | `Architecture` |
| count it | `parameters`, `sample_flops` |
| price its layers | `layers` |
"""

from .architecture import Architecture, Experts, Latent, Vision
from .experts import busiest
from .presets import PRESETS, preset
from .pricing import MIXED, RECOMPUTE, SINGLE, Recipe, Recompute, layers, sample_flops
from .reading import READERS, from_config, read_config
from .structure import parameters

__all__ = [
    "MIXED",
    "PRESETS",
    "READERS",
    "RECOMPUTE",
    "SINGLE",
    "Architecture",
    "Experts",
    "Latent",
    "Recipe",
    "Recompute",
    "Vision",
    "busiest",
    "from_config",
    "layers",
    "parameters",
    "preset",
    "read_config",
    "sample_flops",
]
