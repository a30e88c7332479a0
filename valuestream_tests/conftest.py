"""Hypothesis profiles: ``ci`` gives the same examples every time, ``thorough`` searches (``HYPOTHESIS_PROFILE=thorough``)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("ci", derandomize=True, max_examples=80, stateful_step_count=40, deadline=None)
settings.register_profile(
    "thorough", max_examples=2_000, stateful_step_count=80, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
