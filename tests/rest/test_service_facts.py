"""What the service says about itself: its page, its configuration and its process."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_service import OPEN, served

from penstock.rest.views.taskmanagers import FLINK_COMMIT, FLINK_VERSION


@pytest.fixture
def time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A time zone without a daylight saving time, 5 hours and 45 minutes before Greenwich."""
    monkeypatch.setenv("TZ", "NPT-05:45")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_the_page_refreshes_as_configured_and_shows_the_time_of_the_service(tmp_path: Path, time_zone: None) -> None:
    settings = {"web.refresh-interval": "4321", "web.submit.enable": "false"}
    with served(tmp_path, OPEN | settings) as service:
        assert service.get("/config").json == {
            "refresh-interval": 4321,
            "timezone-name": "NPT",
            "timezone-offset": 20_700_000,
            "flink-version": FLINK_VERSION,
            "flink-revision": FLINK_COMMIT,
            "features": {"web-submit": False, "web-cancel": True, "web-rescale": True, "web-history": False},
        }


def test_the_configuration_is_that_of_the_service_without_secrets(tmp_path: Path) -> None:
    settings = {"cluster.max-jobs": "17", "spark.hadoop.fs.s3a.secret.key": "swordfish", "spark.note": "my swordfish"}
    with served(tmp_path, OPEN | settings) as service:
        entries = {each["key"]: each["value"] for each in service.get("/jobmanager/config").json}
    assert list(entries) == sorted(entries)
    assert entries["cluster.max-jobs"] == "17"
    assert (entries["spark.hadoop.fs.s3a.secret.key"], entries["spark.note"]) == ("***", "my ***")


def test_the_environment_is_that_of_the_process(tmp_path: Path) -> None:
    with served(tmp_path, OPEN) as service:
        environment = service.get("/jobmanager/environment").json
        threads = service.get("/jobmanager/thread-dump").json["threadInfos"]
    assert environment["jvm"]["arch"] == platform.machine()
    assert platform.python_version() in environment["jvm"]["version"]
    assert "MainThread" in {each["threadName"] for each in threads}
    assert all(each["stringifiedThreadInfo"] for each in threads)
