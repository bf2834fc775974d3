"""Devices and the clusters they form: how fast, how large, and how they are linked."""
