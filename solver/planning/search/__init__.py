"""Search for plans: splits, placements, divisions of the batch and orders together."""

from .running import search

__all__ = ["search"]
