"""Random and damaged requests to a real Dispatcher with a job that has ended."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from fuzzed_requests import check
from service import Service, wait_for

DRAIN = (b"POST /penstock/v1/drain",)
"""Does what it says: a drained Dispatcher accepts no jobs."""
FAILS = "raise ValueError('no such table')"
WARM_UP = 100
POOL = min(32, (os.cpu_count() or 1) + 4)
"""Threads of the event loop's pool: it starts them one by one, and keeps them."""


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    "count",
    [pytest.param(500, marks=pytest.mark.slow), pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.long])],
)
def test_fuzzed_requests_leave_the_dispatcher_up_without_leaks(tmp_path: Path, count: int) -> None:
    with Service(tmp_path) as service:
        job = service.submit(FAILS, restart_strategy="none")
        service.wait_until(job, "FAILED")
        statuses = check(service.rest.port, range(WARM_UP), job, DRAIN)
        files, threads = descriptors(), threading.active_count()
        statuses += check(service.rest.port, range(WARM_UP, count), job, DRAIN)
        # Connections close in the background.
        wait_for(lambda: descriptors() <= files, "the Dispatcher closes its descriptors", 30)
        wait_for(lambda: threading.active_count() <= threads + POOL, "threads end", 30)
        assert service.rest.state(job) == "FAILED"
        assert service.rest.ask("GET", "/ready") == {"leading": True, "ready": True, "draining": False}
        service.wait_until(service.submit(FAILS, restart_strategy="none"), "FAILED")
    assert statuses[b"200"] + statuses[b"202"] > count / 50
