"""Instances with published or proven values, and comparisons on them."""
