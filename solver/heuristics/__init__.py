"""Schedules by construction: pure functions of a problem's shape, and some of its costs.

The functions ignore memory limits: `check` tells whether a schedule keeps them.
"""

from .costed_zb_v import costed_zb_v
from .gpipe import gpipe
from .one_f_one_b import interleaved, one_f_one_b, one_f_one_b_split
from .zero_bubble import zb_h1, zb_h2, zb_v

__all__ = ["costed_zb_v", "gpipe", "interleaved", "one_f_one_b", "one_f_one_b_split", "zb_h1", "zb_h2", "zb_v"]
