"""What a device reaches by itself."""

from __future__ import annotations

import pytest
import torch

from adaptpipe.executor.measuring import device


class Slow:
    """Every piece takes longer than the one before, from half a second on."""

    def __init__(self) -> None:
        self._pieces_s: list[float] = []

    def start(self) -> None: ...

    def stop(self) -> None:
        self._pieces_s.append(0.5 + len(self._pieces_s))

    def take_s(self) -> tuple[float, ...]:
        taken = tuple(self._pieces_s)
        self._pieces_s.clear()
        return taken


def test_the_best_of_some_repeats(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.setattr(device, "_WIDTH", {"cpu": 8})
    monkeypatch.setattr(device, "stopwatch_for", lambda _: Slow())
    found = device.measure_device(torch.device("cpu"), torch.bfloat16, 2)
    assert found.flops == 2 * 8**3 / 0.5
    assert found.bandwidth == 2 * (16 * 8 * 8 * 2) / 0.5
    alone = device.measure_device(torch.device("cpu"), torch.bfloat16, 1)
    assert alone.memory // 2 == found.memory
