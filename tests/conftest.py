"""Settings and fixtures for all tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from penstock.datastream.launch import LaunchContext, launch, launch_context
from penstock.state.object_storage import ObjectStorage
from scripts import class_archive
from scripts.pyflink_wheel import IndexUnreachable, wheel_path

# Processes started in the background ignore Ctrl-C, and so would every process that a test starts to interrupt it.
signal.signal(signal.SIGINT, signal.default_int_handler)

if TYPE_CHECKING:
    from chaos.servers.postgres import PostgresServer
    from chaos.servers.redis import RedisServer

# No test reads the configuration file of this host's user. Processes that tests start inherit it.
os.environ["PENSTOCK_CONF"] = ""

# `make` creates it. It only speeds up the tests.
CLASSES = Path(sys.prefix) / "spark-classes.jsa"
if CLASSES.exists():
    class_archive.use(CLASSES, os.environ)

# A shared machine can stall for longer than any deadline, which must not affect the result of a test.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")

LONG_S = 900
"""Time after which a long or slow test counts as hung. A busy machine takes several times as long as an idle one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        lasts = item.get_closest_marker("long") or item.get_closest_marker("slow")
        if lasts and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_S))


@pytest.fixture
def launched() -> Iterator[Callable[[dict[str, str]], None]]:
    """`launched(settings)` launches programs with these command-line settings until the test ends."""
    before = launch_context()
    yield lambda settings: launch(LaunchContext(settings=settings))
    launch(before)


@pytest.fixture(scope="session")
def pyflink_wheel() -> Path:
    """PyFlink's wheel, downloaded if it is not cached; `scripts.pyflink_wheel.read` reads its files."""
    try:
        return wheel_path()
    except IndexUnreachable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, str]]:
    """Options for `s3://` that lead to a server on this machine; see s3_server.py for its buckets."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("s3_server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    port = int(server.stdout.readline())
    options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "a-key-of-tests", "secret": "a-secret-of-tests"}
    import s3fs

    files = s3fs.S3FileSystem(**options)
    for bucket in ("bucket", "careless", "echo"):
        files.mkdir(bucket)
    yield options
    server.stdin.close()
    server.wait()


@pytest.fixture
def s3(s3_options: dict[str, str]) -> Callable[..., ObjectStorage]:
    """Create new, empty storages on S3: `s3()`, `s3("careless")`."""

    def make(bucket: str = "bucket") -> ObjectStorage:
        return ObjectStorage(f"s3://{bucket}/{uuid.uuid4().hex}", s3_options)

    return make


@pytest.fixture(scope="session")
def shared_kafka() -> Iterator[Any]:
    from kafka_cluster import MockCluster

    cluster = MockCluster()
    yield cluster
    cluster.close()


@pytest.fixture
def kafka(shared_kafka: Any) -> Iterator[Any]:
    """Mock brokers of librdkafka, shared by all tests; see kafka_cluster.py for their limitations."""
    yield shared_kafka
    shared_kafka.refuse_no_more()


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis server for all tests that do not damage it. `redis_server` is the same server without keys."""
    from chaos.servers.redis import RedisServer

    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_server(shared_redis: RedisServer) -> RedisServer:
    shared_redis.client().flushall()
    return shared_redis


@pytest.fixture
def mortal_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A dedicated server that the test can kill and restart. It keeps acknowledged writes."""
    from chaos.servers.redis import RedisServer

    with RedisServer(tmp_path / "redis", appends=True) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server for all tests, with a password on loopback. A test that kills a server starts its own."""
    from chaos.servers.postgres import PostgresServer

    server = PostgresServer(tcp=True).start()
    yield server
    server.close()


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> str:
    """A connection string for a new database."""
    return postgres_server.conninfo(postgres_server.new_database())
