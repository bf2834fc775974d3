"""Settings of all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test fails because a machine is slow: the first example of many compiles or loads a kernel.
settings.register_profile("adaptpipe", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("adaptpipe")
