"""A service with a fake cluster, which the tests of one module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from http_service import OPEN, Service, served


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
