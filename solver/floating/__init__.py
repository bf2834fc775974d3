"""Adaptive execution: the order of F, I and B is the schedule's, and weight units float into the waits."""

from .disturbed import Disturbed, disturbed
from .floater import Floater
from .plan import ORDERS, FloatingPlan, Order
from .simulate import Runs, simulate_adaptive

__all__ = [
    "ORDERS",
    "Disturbed",
    "Floater",
    "FloatingPlan",
    "Order",
    "Runs",
    "disturbed",
    "simulate_adaptive",
]
