"""Text and its batches are the same on every rank, and refusals say what to do."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptpipe.models import GPTConfig, MLPConfig, batches, load_text, split_text, training_batches
from adaptpipe.solver import InputError


def test_default_text_is_long_english() -> None:
    text = load_text()
    assert text == load_text()
    assert len(text) > 300_000
    words = text.decode().split()
    assert words.count("the") > 0.03 * len(words)


def test_a_users_file_is_read_as_bytes(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_bytes(b"caf\xe9\r\n\x00")
    assert load_text(file) == load_text(str(file)) == b"caf\xe9\r\n\x00"


def test_files_that_cannot_be_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data = '.*none.txt': cannot be read \(No such file.*; give a text file"):
        load_text(tmp_path / "none.txt")
    with pytest.raises(InputError, match=r"data = .*: cannot be read \(Is a directory\)"):
        load_text(tmp_path)
    with pytest.raises(InputError, match=r"data = .*: cannot be read \(embedded null byte\)"):
        load_text("a\0b")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(InputError, match=r"data = .*empty.txt': the file is empty; give a text file"):
        load_text(tmp_path / "empty.txt")


def test_a_python_without_its_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pydoc_data.topics", None)
    with pytest.raises(InputError, match=r"this Python has no pydoc_data\.topics; give a text file, data = FILE"):
        load_text()


@settings(deadline=None)
@given(st.binary(min_size=4, max_size=60), st.integers(1, 5), st.integers(0, 2**70))
def test_batches_are_windows_of_the_text(data: bytes, samples: int, seed: int) -> None:
    sequence = min(3, len(data) - 1)
    first = list(islice(batches(data, sequence, samples, seed), 3))
    again = list(islice(batches(data, sequence, samples, seed), 3))
    for (inputs, targets), repeated in zip(first, again, strict=True):
        assert inputs.dtype == targets.dtype == torch.int64
        assert inputs.shape == targets.shape == (samples, sequence)
        assert torch.equal(inputs, repeated[0])
        assert torch.equal(targets, repeated[1])
        for row, shifted in zip(inputs.tolist(), targets.tolist(), strict=True):
            assert bytes([row[0], *shifted]) in data
            assert row[1:] == shifted[:-1]


def test_batches_reach_both_ends_and_change() -> None:
    data = bytes(range(6))
    stream = batches(data, sequence=2, samples=8, seed=0)
    starts = [inputs[:, 0].tolist() for inputs, _ in islice(stream, 8)]
    assert {start for row in starts for start in row} == {0, 1, 2, 3}
    assert starts[0] != starts[1]
    assert next(batches(data, 2, 8, seed=1))[0].tolist() != next(batches(data, 2, 8, seed=0))[0].tolist()


def test_an_mlp_sees_bytes_as_a_vector() -> None:
    config = MLPConfig(layers=1, width=4, inputs=3)
    data = bytes([0, 255, 51, 204, 102])
    (vectors, targets), (tokens, following) = (
        next(training_batches(config, data, samples=6, seed=3)),
        next(batches(data, sequence=3, samples=6, seed=3)),
    )
    assert vectors.dtype == torch.float32
    assert torch.equal(((vectors + 1) * 127.5).round().long(), tokens)
    assert torch.equal(targets, following[:, -1])


def test_a_gpt_sees_batches_of_its_sequence() -> None:
    config = GPTConfig(layers=1, width=4, heads=1, sequence=5)
    for got, wanted in zip(
        next(training_batches(config, load_text(), 2, 3)), next(batches(load_text(), 5, 2, 3)), strict=True
    ):
        assert torch.equal(got, wanted)


def test_models_that_know_fewer_bytes_than_the_text() -> None:
    with pytest.raises(InputError, match=r"model.vocab = 128: the text has the byte 200; use 256"):
        training_batches(GPTConfig(1, 4, 1, 2, vocab=128), bytes([0, 200, 1, 2]), 1, 0)
    with pytest.raises(InputError, match=r"model.outputs = 128: the text has the byte 200; use 256"):
        training_batches(MLPConfig(1, 4, 2, outputs=128), bytes([0, 200, 1, 2]), 1, 0)
    assert training_batches(GPTConfig(1, 4, 1, 2, vocab=201), bytes([0, 200, 1, 2]), 1, 0)


@pytest.mark.parametrize(
    ("data", "sequence", "samples", "message"),
    [
        (b"", 1, 1, r"0 bytes are too short for samples of 1 bytes and the byte after; give at least 2"),
        (b"abcd", 4, 1, r"4 bytes are too short for samples of 4 bytes and the byte after; give at least 5"),
        (b"abcd", 0, 1, r"sequence = 0: must be at least 1"),
        (b"abcd", 2, 0, r"samples = 0: must be at least 1"),
    ],
)
def test_batches_refuse_at_the_call(data: bytes, sequence: int, samples: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        batches(data, sequence, samples, seed=0)


@settings(deadline=None)
@given(st.binary(min_size=8, max_size=300), st.integers(1, 3), st.floats(0.01, 0.5))
def test_training_and_validation_text_do_not_overlap(data: bytes, sequence: int, share: float) -> None:
    train, validation = split_text(data, sequence, share)
    assert train + validation == data
    assert len(validation) == max(round(len(data) * share), sequence + 1)
    batches(train, sequence, 1, seed=0)
    batches(validation, sequence, 1, seed=0)


@pytest.mark.parametrize(("data", "share"), [(bytes(21), 0.1), (bytes(100), 0.95)])
def test_text_too_short_to_split(data: bytes, share: float) -> None:
    with pytest.raises(InputError, match=rf"{len(data)} bytes are too short to train .* at sequence = 10; each .* 11 "):
        split_text(data, sequence=10, share=share)
    assert split_text(bytes(22), sequence=10) == (bytes(11), bytes(11))


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
def test_share_out_of_bounds(share: float) -> None:
    with pytest.raises(InputError, match=r"validation share = .*: must be between 0 and 1, neither included"):
        split_text(bytes(100), sequence=1, share=share)
