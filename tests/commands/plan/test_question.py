"""Questions: what may be asked together, and how the axes of --what-if are read."""

from __future__ import annotations

from typing import Any

import pytest

from adaptpipe.commands.plan.question import Question, axis, sizes_of, vary
from adaptpipe.solver import InputError

MODEL = {"model": "gemma2-9b", "cluster": "h100x8"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give --model and --cluster, or --instance with --name"),
        ({"model": "gemma2-9b"}, "give --model and --cluster, or --instance with --name"),
        ({"instance": "f.json", "tp": 2}, "--tp: an instance of a file has its own; leave it out, or give --model"),
        ({"instance": "f.json", "split_layers": True}, "--split-layers: an instance of a file has its own"),
        ({"instance": "f.json", "cluster": "h100x8"}, "--cluster: an instance of a file has its own"),
        ({"model": "a", "cluster": "b", "name": "c"}, "--name: chooses an instance; give --instance too"),
        ({"model": "a", "cluster": "b", "sequence": 0}, "--sequence 0: must be at least 1"),
        ({"model": "a", "cluster": "b", "global_batch": -1}, "--global-batch -1: must be at least 1"),
        ({"model": "a", "cluster": "b", "memory": float("nan")}, r"--memory nan: must be from 0.001 to 1e\+09"),
        ({"model": "a", "cluster": "b", "memory": 1e300}, r"--memory 1e\+300: must be from 0.001 to 1e\+09"),
        ({"model": "a", "cluster": "b", "links": 0.0}, r"--links 0\.0: must be from 1e-06 to 1e\+06"),
        ({"model": "a", "cluster": "b", "microbatch_sizes": (0, 1)}, r"--microbatch-sizes \[0, 1\]: must be sizes of"),
    ],
)
def test_what_is_not_to_be_asked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Question(**options)


@pytest.mark.parametrize("text", ["", "1,x", "0,1", "1,,2"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match=f"--microbatch-sizes {text}: must be whole numbers from 1, as in 1,2,4"):
        sizes_of(text)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("rank=4", r"--what-if rank=4: 'rank' is no axis; did you mean ranks\? there are model, cluster"),
        ("ranks", "--what-if ranks: give it values, as in ranks=A,B"),
        ("ranks=", "--what-if ranks=: give it values"),
        ("ranks=4,x", "--what-if ranks=x: 'x' is not a whole number"),
        ("memory=much", "--what-if memory=much: 'much' is not a number"),
        ("split-layers=perhaps", "--what-if split-layers=perhaps: 'perhaps' is not yes or no"),
        ("microbatch-sizes=1+x", r"--microbatch-sizes 1\+x: must be whole numbers from 1, as in 1\+2\+4"),
    ],
)
def test_axes_that_are_none(word: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        axis(word)


def test_every_axis_is_a_field() -> None:
    changes = {"ranks": "4", "memory": "141", "split-layers": "yes", "microbatch-sizes": "2+1", "recompute": "full"}
    found = vary(MODEL, changes)
    assert (found.ranks, found.memory, found.split_layers) == (4, 141.0, True)
    assert (found.microbatch_sizes, found.recompute) == ((1, 2), "full")
    with pytest.raises(InputError, match="--ranks 0: must be at least 1"):
        vary(MODEL, {"ranks": "0"})
