"""Checkpoints: what is refused, and weights of the unsplit model. (How training goes on: gradients/test_training.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adaptpipe.executor.launching.launcher import launch

from . import checkpoint_jobs as jobs

pytestmark = pytest.mark.timeout(120)


def test_what_is_refused_and_what_the_unsplit_model_gives(tmp_path: Path) -> None:
    expected = {
        "foreign": r"the optimizer has a parameter of shape \(2,\) that is in none of this rank's stages \[1\]",
        "extra": r"extra, or the optimizer's state, holds something that does not load with weights_only",
        "folder": r".*x.pt: cannot be written \(Not a directory|.*x.pt: cannot be written \(File exists",
        "missing": r".*none.pt: cannot be read as a checkpoint \(No such file",
        "text": r".*empty.pt: cannot be read as a checkpoint",
        "list": r".*list.pt: holds a list, not a checkpoint; save_checkpoint writes one",
        "no optimizer": r".*bare.pt: has no state of an optimizer; load it without one",
        "settings": r".*its optimizer had '0.0.weight' and '0.0.bias' in groups of different settings",
        "cut": r".*cut.pt: its optimizer had no parameter '1.bias'; it had '0.0.weight', ",
        "more": r".*good.pt: no stage has '1.weight', '1.bias'; the checkpoint is of another",
        "fewer": r".*good.pt: has nothing for '0.weight' of stage 0",
        "wide": r".*good.pt: '1.weight' has shape \(3, 3\), and stage 1 needs \(4, 3\)",
        "keys": r"the stages 0 and 1 both have the key '0.weight' in their state dicts",
    }
    for found in launch(jobs.both, 2, tmp_path, threads=1):
        assert set(found) == set(expected)
        for key, pattern in expected.items():
            assert re.match(f"InputError: ({pattern})", found[key]), found[key]
    assert not list(tmp_path.glob("*.part")), "nothing is left of what could not be written"
    assert not (tmp_path / "x.pt").exists()
