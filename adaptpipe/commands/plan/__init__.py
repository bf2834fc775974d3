"""`adaptpipe plan`: from a model and a cluster to a plan."""

from .command import plan

__all__ = ["plan"]
