"""Hooks of parameters: once a step, when the gradient is complete."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from adaptpipe.executor.gradients.hooks import GradientHooks
from adaptpipe.executor.launching.launcher import launch
from adaptpipe.solver import Placement, place

from ..orders import problem_for, schedule_for
from ..running import module_jobs as jobs
from ..running.pipeline_jobs import Case

pytestmark = pytest.mark.timeout(120)

SIZES = (1, 2, 1)


def case(model: str, placement: Placement, policy: str) -> Case:
    return Case(
        f"{model} {placement.stages} {policy}",
        model,
        problem_for(placement, SIZES, units=3),
        schedule_for(placement, SIZES, policy),
    )


def test_a_hook_is_called_once_a_step_when_all_of_the_gradient_is_there() -> None:
    """Not where a parameter got no gradient, not by an evaluation, and not after its removal."""
    cases = [
        case(model, placement, policy)
        for model, placement in (
            ("mixed", place("v", 2, 2)),
            ("mixed", place("loop", 2, 2)),
            ("nothing waits", place("v", 2, 2)),
            ("unused tensor", place("linear", 2)),
            ("mixed", place("bidirectional", 2)),
            ("middle frozen", Placement(2, ((0, 1, 0),))),
        )
        for policy in ("1f1b", "late-w", "random")
    ]
    assert launch(jobs.hooked_steps, 2, cases, threads=1) == ([], [])


def test_an_optimizer_for_each_parameter_in_its_hook() -> None:
    """Trains as one optimizer after the step, with no gradient left."""
    cases = [case("mixed", place("v", 2, 2), policy) for policy in ("gpipe", "zb")]
    for errors in launch(jobs.optimizers_in_hooks, 2, cases, threads=1):
        assert max(errors) < 1e-4


@pytest.mark.parametrize("summed", [False, True])
def test_what_a_hook_waits_for(summed: bool) -> None:
    """All stages that share the parameter, and the sum over ranks where there is one."""
    layer, calls = nn.Linear(2, 2), list[str]()
    weight = layer.get_parameter("weight")
    handle = jobs.register(weight, lambda parameter: calls.append("first"))

    def once(parameter: Tensor) -> None:
        calls.append("second")
        handle.remove()

    jobs.register(weight, once)
    hooks = GradientHooks({0: nn.Sequential(layer), 2: nn.Sequential(nn.Tanh(), layer)})
    for wanted in (["first", "second"], ["second"]):
        calls.clear()
        hooks.hold([weight] if summed else [])
        torch.autograd.backward(layer(torch.ones(1, 2)).sum())
        for what in (2, 0, None):
            assert not calls
            hooks.complete(what)
            if what is (None if summed else 0):
                break
        assert calls == wanted
        hooks.release()


def test_hooks_are_back_after_a_step_that_failed() -> None:
    assert launch(jobs.hooks_after_a_failure, 1, case("mixed", place("linear", 1), "zb")) == (True,)
