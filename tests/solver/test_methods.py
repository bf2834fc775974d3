"""Method names."""

from __future__ import annotations

import pytest

from adaptpipe.solver.core.errors import InputError
from adaptpipe.solver.methods import METHODS, find_method


def test_every_name_is_found_whatever_its_case_and_none_is_ambiguous() -> None:
    spelled = [name for method in METHODS for name in (method.name, *method.aliases)]
    assert len({name.casefold() for name in spelled}) == len(spelled)
    for method in METHODS:
        for name in (method.name, *method.aliases):
            assert find_method(name.upper()) is method
            assert find_method(name.lower()) is method


@pytest.mark.parametrize(
    ("alias", "name"),
    [("ScheduleGPipe", "GPipe"), ("OneFOneB", "1F1B"), ("ZBH1", "ZB-H1"), ("ZBVZeroBubble", "ZB-V")],
)
def test_names_of_pytorch_and_the_papers(alias: str, name: str) -> None:
    assert find_method(alias).name == name


def test_unknown_name_is_refused_with_the_list() -> None:
    with pytest.raises(InputError, match=r"method: 'zb-h9' is none of auto, cpsat, anneal, ilp, greedy, GPipe, .*ZB-V"):
        find_method("zb-h9")
