"""Random and damaged requests: the service stays up, and none of them is an internal error."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzzed_requests import check
from http_service import OPEN, Service, served


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_fuzzed_requests_leave_the_service_up(running: Service, count: int) -> None:
    statuses = check(running.server.port, range(count))
    assert running.get("/jobs").status == 200
    assert statuses[b"200"] + statuses[b"202"] > count / 20


@pytest.mark.parametrize("count", [100, pytest.param(1_000, marks=pytest.mark.long)])
def test_fuzzed_requests_through_a_standby_leave_it_and_the_leader_up(
    running: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    with served(tmp_path, OPEN) as standby:
        standby.gateway.other_leader = running.server.address
        statuses = check(standby.server.port, range(count))
        assert standby.get("/jobs").body == running.get("/jobs").body
    # Most requests are dropped: their client closed its side of the connection.
    assert statuses[b"200"] > 0
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
