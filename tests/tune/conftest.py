"""One local Ray for all tests that need it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Four logical CPUs, no dashboard."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    import ray

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()
