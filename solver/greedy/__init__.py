"""Event-driven list scheduling over many policies, within the memory limits."""

from .search import Search, decode, greedy

__all__ = ["Search", "decode", "greedy"]
