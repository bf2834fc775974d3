"""Annealing of schedules: the ops of every rank in better order, finer or coarser."""

from .annealing import anneal

__all__ = ["anneal"]
