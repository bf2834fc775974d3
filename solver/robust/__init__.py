"""Orders that are short in the mean under noise."""

from .answer import hardened
from .search import robust

__all__ = ["hardened", "robust"]
