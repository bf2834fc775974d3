"""Settings of all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from adaptpipe.solver.warming import is_warm, warm_up

# No test fails because a machine is slow: the first example of many compiles or loads a kernel.
settings.register_profile("adaptpipe", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("adaptpipe")


def pytest_sessionstart() -> None:
    """Compile the searches before the clock of any test runs."""
    if not is_warm():
        warm_up()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Threads that share out one op of torch wait for each other, which takes for ever on a busy machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
