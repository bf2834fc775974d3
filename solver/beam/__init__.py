"""Beam search where memory is tight: ops in the order of their starts, the best beginnings of a schedule kept."""

from .search import beam

__all__ = ["beam"]
