"""Search for micro-batch sizes."""

from .resize import resize
from .search import search_sizes

__all__ = ["resize", "search_sizes"]
