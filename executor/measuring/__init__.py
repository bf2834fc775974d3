"""Costs of stages and messages, seen while a pipeline runs."""
