"""Random numbers that depend on what is computed, and not on when or where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import torch


class RandomState:
    """Gives every forward a random state of its own, so that dropout draws the same masks under every schedule.

    Parameters
    ----------
    seed
        Of the training, the same on all ranks.
    replica
        Of the pipeline: replicas see other samples, and draw other masks.
    device
        Where the stages are; None is the CPU.

    Attributes
    ----------
    step
        Number of the training step.

    Examples
    --------
    >>> drawn = []
    >>> for microbatch in (0, 1, 0):
    ...     with RandomState(seed=1).of(stage=2, microbatch=microbatch):
    ...         drawn.append(torch.rand(1).item())
    >>> drawn[0] == drawn[2], drawn[0] == drawn[1]
    (True, False)
    """

    def __init__(self, seed: int, replica: int = 0, device: torch.device | None = None) -> None:
        self._key = f"{seed} {replica}"
        self._device = device
        self.step = 0

    @contextmanager
    def of(self, stage: int, microbatch: int) -> Iterator[None]:
        """Make the random state that of a forward, and give it back afterwards."""
        text = f"{self._key} {self.step} {stage} {microbatch}"
        seed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
        generators = self._generators()
        before = [generator.get_state() for generator in generators]
        for generator in generators:
            generator.manual_seed(seed)
        try:
            yield
        finally:
            for generator, state in zip(generators, before, strict=True):
                generator.set_state(state)

    def _generators(self) -> list[torch.Generator]:
        """That of the CPU, and the device's own."""
        found = [torch.default_generator]
        if self._device is not None and self._device.type != "cpu":
            module = torch.get_device_module(self._device)
            number = self._device.index or 0
            found += getattr(module, "default_generators", ())[number : number + 1]  # CUDA and XPU have them, MPS not
        return found
