"""Qi et al.'s schedules with split backwards: zero bubble, by hand and from costs, and controllable memory."""

from .automatic import ZB_1P, ZB_2P, zb_1p, zb_2p
from .controllable_memory import V_HALF, V_MIN, V_ZB, v_half, v_min, v_zb
from .costed_zb_v import ZB_V_COSTED, costed_zb_v
from .handmade import ZB_H1, ZB_H2, ZB_V, zb_h1, zb_h2, zb_v

__all__ = [
    "V_HALF",
    "V_MIN",
    "V_ZB",
    "ZB_1P",
    "ZB_2P",
    "ZB_H1",
    "ZB_H2",
    "ZB_V",
    "ZB_V_COSTED",
    "costed_zb_v",
    "v_half",
    "v_min",
    "v_zb",
    "zb_1p",
    "zb_2p",
    "zb_h1",
    "zb_h2",
    "zb_v",
]
