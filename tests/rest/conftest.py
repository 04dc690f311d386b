"""A service with a fake cluster, which the tests of one module share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from http_service import OPEN, Service, served
from numbered_job import NOW


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Without a token, or with the `SETTINGS` of the module."""
    with served(tmp_path_factory.mktemp("service"), getattr(request.module, "SETTINGS", OPEN)) as service:
        yield service


@pytest.fixture
def service(running: Service) -> Service:
    """The service, as if no test had used it."""
    running.gateway.reset()
    return running


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all views read the same time."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("penstock.rest.views", "penstock.driver.measures")) and hasattr(module, "now_ms"):
            monkeypatch.setattr(module, "now_ms", lambda: NOW)
