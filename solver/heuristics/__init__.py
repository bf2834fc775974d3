"""Schedules by construction: pure functions of a problem's shape, and some of its costs.

The functions ignore memory limits: `check` tells whether a schedule keeps them.
"""

from ..core.method import Method
from .asynchronous import PIPEDREAM, PIPEDREAM_2BW, PIPEMARE, pipedream, pipedream_2bw, pipemare
from .bidirectional import CHIMERA, DUALPIPE, DUALPIPE_V, chimera, dualpipe, dualpipe_v
from .gpipe import GPIPE, LOOPED_BFS, gpipe, looped_bfs
from .interleaved import INTERLEAVED, INTERLEAVED_WIDE, interleaved, interleaved_wide
from .one_f_one_b import (
    EAGER_ONE_F_ONE_B,
    ONE_F_ONE_B,
    ONE_F_ONE_B_SPLIT,
    eager_one_f_one_b,
    one_f_one_b,
    one_f_one_b_split,
)
from .out_of_order import OOO_BACKPROP, ooo_backprop
from .sliced import SEQ_INTERLEAVED, SEQ_ONE_F_ONE_B, SVPP, seq_interleaved, seq_one_f_one_b, svpp
from .waves import HANAYO, HANAYO_W, hanayo, hanayo_w
from .zero_bubble import (
    V_HALF,
    V_MIN,
    V_ZB,
    ZB_1P,
    ZB_2P,
    ZB_H1,
    ZB_H2,
    ZB_V,
    ZB_V_COSTED,
    costed_zb_v,
    v_half,
    v_min,
    v_zb,
    zb_1p,
    zb_2p,
    zb_h1,
    zb_h2,
    zb_v,
)

LITERATURE: tuple[Method, ...] = (
    GPIPE,
    ONE_F_ONE_B,
    ONE_F_ONE_B_SPLIT,
    EAGER_ONE_F_ONE_B,
    INTERLEAVED,
    INTERLEAVED_WIDE,
    LOOPED_BFS,
    CHIMERA,
    DUALPIPE,
    DUALPIPE_V,
    HANAYO,
    HANAYO_W,
    ZB_H1,
    ZB_H2,
    ZB_1P,
    ZB_2P,
    ZB_V,
    ZB_V_COSTED,
    V_HALF,
    V_MIN,
    V_ZB,
    OOO_BACKPROP,
    SEQ_ONE_F_ONE_B,
    SEQ_INTERLEAVED,
    SVPP,
    PIPEDREAM,
    PIPEDREAM_2BW,
    PIPEMARE,
)
"""The schedules of the literature, in the order in which tables list them."""

__all__ = [
    "LITERATURE",
    "chimera",
    "costed_zb_v",
    "dualpipe",
    "dualpipe_v",
    "eager_one_f_one_b",
    "gpipe",
    "hanayo",
    "hanayo_w",
    "interleaved",
    "interleaved_wide",
    "looped_bfs",
    "one_f_one_b",
    "one_f_one_b_split",
    "ooo_backprop",
    "pipedream",
    "pipedream_2bw",
    "pipemare",
    "seq_interleaved",
    "seq_one_f_one_b",
    "svpp",
    "v_half",
    "v_min",
    "v_zb",
    "zb_1p",
    "zb_2p",
    "zb_h1",
    "zb_h2",
    "zb_v",
]
