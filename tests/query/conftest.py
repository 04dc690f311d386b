"""Fixtures of jobs with state servers."""

import pytest
import query_jobs
from query_jobs import Job, free_ports

from penstock.query.client import QueryableStateClient
from penstock.query.flight_server import query_token
from penstock.query.local_replicas import LocalReplicas
from penstock.query.server import StateServer

PATIENCE_S = 60.0

ON_DISK = ["filesystem", "rocksdb"]


@pytest.fixture(scope="module", params=["memory", *(pytest.param(each, marks=pytest.mark.long) for each in ON_DISK)])
def server_backend(request, tmp_path_factory):
    """Every backend in turn: `query_jobs.new_follower` keeps its replicas there."""
    directory = tmp_path_factory.mktemp("replicas")
    settings = {"queryable-state.server.state-backend": request.param, "state.backend.local-dir": str(directory)}
    query_jobs.replicas = LocalReplicas(settings)
    yield request.param
    query_jobs.replicas.close()
    query_jobs.replicas = None
    assert not list(directory.iterdir())


@pytest.fixture
def make_job(tmp_path):
    """`make_job(name, settings)` starts a job."""
    made = []

    def make(name, settings=None):
        made.append(Job(tmp_path / name, settings))
        return made[-1]

    yield make
    for each in made:
        each.harness.close()


@pytest.fixture
def job(make_job):
    return make_job("job")


@pytest.fixture
def settings(tmp_path):
    proxy, *servers = free_ports(5)
    made = {
        "queryable-state.proxy.ports": str(proxy),
        "queryable-state.server.ports": ",".join(map(str, servers)),
        "queryable-state.auth.token-file": str(tmp_path / "token"),
        "queryable-state.poll-interval": "2 ms",
        "queryable-state.heartbeat.interval": "50 ms",
        "state.backend.local-dir": str(tmp_path / "replicas"),
    }
    assert query_token(made)
    return made


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A client waits for a late answer, which says why a read failed, however busy the machine is."""
    monkeypatch.setattr("penstock.query.client._MARGIN_S", PATIENCE_S)


@pytest.fixture
def connect(settings):
    """`connect(**options)` returns a client of the proxy."""
    clients = []

    def connected(**options):
        options.setdefault("timeout", PATIENCE_S)
        port = int(settings["queryable-state.proxy.ports"])
        token_file = settings["queryable-state.auth.token-file"]
        clients.append(QueryableStateClient("127.0.0.1", port, token_file=token_file, **options))
        return clients[-1]

    yield connected
    for each in clients:
        each.close()


@pytest.fixture
def client(connect):
    return connect()


@pytest.fixture
def serve(settings):
    """`serve(job)` starts a state server for a job."""
    servers = []

    def started(*jobs, **other):
        server = StateServer(settings | other)
        servers.append(server)
        for number, each in enumerate(jobs):
            followed = server.follow(f"id{number}", f"job{number}", each.root)
            if each.harness.checkpoint:
                server.await_checkpoint(followed, each.harness.checkpoint)
        server.start()
        return server

    yield started
    for server in servers:
        server.close()
