"""What every block needs besides the hidden state, and what depends on the sequence's length alone."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Positions(nn.Module):
    """Masks of causal attention and the rotary embedding's cosines and sines, for the length that was seen last.

    They are buffers, so that all blocks and micro-batches share one copy. Masks are what transformers' attention
    expects: "sdpa" gets none where all earlier positions are seen, and else True where one is; "eager" gets numbers to
    add to the scores.

    Parameters
    ----------
    rotary
        transformers' module that makes cosines and sines; None for other positions.
    windows
        How many positions, its own and those before it, a position of a block sees; one for each kind of block that
        there is, None for all.
    eager
        Whether attention is transformers' "eager".
    length
        The length to begin with.
    """

    def __init__(self, rotary: nn.Module | None, windows: Iterable[int | None], eager: bool, length: int) -> None:
        super().__init__()
        self.rotary = rotary
        self._windows = tuple(set(windows))
        self._eager = eager
        self._length = 0
        self._fill(torch.empty(1, length, 1))

    def prepare(self, x: Tensor) -> None:
        """Make all that blocks need for a hidden state [samples, tokens, width], unless it is there."""
        there = [buffer for name, buffer in self.named_buffers(recurse=False)]
        fit = all(t.device == x.device and (t.dtype in (x.dtype, torch.bool)) for t in there)
        if x.shape[1] != self._length or not fit:
            self._fill(x)

    @property
    def rotation(self) -> tuple[Tensor, Tensor] | None:
        """Cosines and sines, [1, tokens, width of a head] each."""
        return None if self.rotary is None else (self.get_buffer("cosines"), self.get_buffer("sines"))

    def mask(self, window: int | None) -> Tensor | None:
        """The mask of blocks with that window, [1, 1, tokens, tokens]."""
        return self._buffers.get(f"mask_{window}")

    def _fill(self, x: Tensor) -> None:
        # What an evaluation in inference mode makes must serve training too.
        with torch.inference_mode(False), torch.no_grad():
            self._length = x.shape[1]
            at = torch.arange(self._length, device=x.device)
            if self.rotary is not None:
                for name, table in zip(("cosines", "sines"), self.rotary(x, at[None]), strict=True):
                    self.register_buffer(name, table, persistent=False)
            for window in self._windows:
                self.register_buffer(f"mask_{window}", self._mask(at, window, x.dtype), persistent=False)

    def _mask(self, at: Tensor, window: int | None, dtype: torch.dtype) -> Tensor | None:
        back = at[:, None] - at  # how far the position of a column lies before that of a row
        seen = back >= 0
        if window is not None and window < len(at):
            seen &= back < window
        elif not self._eager:
            return None  # the kernel is causal by itself
        if not self._eager:
            return seen[None, None]
        return torch.zeros(seen.shape, dtype=dtype, device=at.device).masked_fill_(~seen, torch.finfo(dtype).min)[
            None, None
        ]
