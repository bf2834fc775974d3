"""Accounts of bytes on their way."""

from __future__ import annotations

import threading


class Ledger:
    """A count of bytes that several threads keep, with its peak.

    Parameters
    ----------
    whole
        The ledger that this one is a part of, if any: it counts the same bytes.
    """

    def __init__(self, whole: Ledger | None = None) -> None:
        self.current = 0
        self.peak = 0
        self._whole = whole
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Add bytes; a negative count takes them away."""
        with self._lock:
            self.current += count
            self.peak = max(self.peak, self.current)
        if self._whole is not None:
            self._whole.add(count)

    def reset_peak(self) -> None:
        """Let the peak start again from what is held now; that of the whole is left."""
        with self._lock:
            self.peak = self.current
