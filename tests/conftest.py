"""Settings of all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from adaptpipe.solver.warming import is_warm, warm_up

# No test fails because a machine is slow: the first example of many compiles or loads a kernel.
settings.register_profile("adaptpipe", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("adaptpipe")


def pytest_sessionstart() -> None:
    """Compile the searches before the clock of any test runs."""
    if not is_warm():
        warm_up()
