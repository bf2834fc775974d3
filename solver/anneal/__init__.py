"""Annealing of schedules: the ops of every rank in better order."""

from .annealing import anneal

__all__ = ["anneal"]
