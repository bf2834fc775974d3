"""Adaptive execution: the order of F, I and B is the schedule's, and weight units float into the waits."""

from .floater import Floater
from .plan import ORDERS, FloatingPlan, Order
from .simulate import Runs, adaptive_values, simulate_adaptive

__all__ = ["ORDERS", "Floater", "FloatingPlan", "Order", "Runs", "adaptive_values", "simulate_adaptive"]
