"""ZooKeeper and a service for the tests of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dispatchers import Member, StandIn, settings_for
from service import Service

from chaos.servers.zookeeper import ZooKeeperServer
from penstock.cluster.zookeeper_client import ZooKeeperSettings


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A server for all tests that do not damage it."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def settings(zookeeper: ZooKeeperServer) -> ZooKeeperSettings:
    """The settings of a new cluster."""
    return settings_for(zookeeper.address)


@pytest.fixture
def member() -> Iterator[Callable[..., Member]]:
    """`member(settings)` takes part until the test ends."""
    made: list[Member] = []

    def make(settings: ZooKeeperSettings, address: str = "here:8081") -> Member:
        made.append(Member(settings, address))
        return made[-1]

    yield make
    for each in made:
        each.coordination.close()


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Callable[..., StandIn]]:
    """`stand_in(settings, name)` starts a process that takes part until the test ends."""
    made: list[StandIn] = []

    def make(settings: ZooKeeperSettings, name: str) -> StandIn:
        made.append(StandIn(settings, tmp_path / name))
        return made[-1]

    yield make
    for each in made:
        each.kill()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Dispatcher in this process, for all tests that do not damage it. Its JobManagers run on local Spark."""
    with Service(tmp_path_factory.mktemp("cluster")) as service:
        yield service
