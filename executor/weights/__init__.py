"""Weight gradients that run later, whole or in units, and the bytes that they and a forward hold until then."""

from .queue import WeightQueue, coverage, install

__all__ = ["WeightQueue", "coverage", "install"]
