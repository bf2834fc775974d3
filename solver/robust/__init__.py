"""Orders that are short in the mean under noise."""

from .search import robust

__all__ = ["robust"]
