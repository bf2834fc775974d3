"""Exact search with CP-SAT."""

from .search import solve_cpsat

__all__ = ["solve_cpsat"]
