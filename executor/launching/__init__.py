"""Processes for the ranks."""
