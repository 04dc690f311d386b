"""Random and damaged requests to a real Dispatcher with a job that has ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzzed_requests import check
from service import Service

pytestmark = pytest.mark.slow


def test_fuzzed_requests_leave_the_dispatcher_up(tmp_path: Path) -> None:
    with Service(tmp_path) as service:
        job = service.submit("raise ValueError('no such table')", restart_strategy="none")
        service.wait_until(job, "FAILED")
        statuses = check(service.rest.port, 500, job)
        assert service.rest.state(job) == "FAILED"
    assert statuses[b"200"] + statuses[b"202"] > 10
