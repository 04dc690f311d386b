"""`penstock state` on running jobs: from their state server, or else from their retained checkpoints."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from called_commands import call
from fake_gateway import JOB, snapshot
from http_service import Service
from query_jobs import Job, free_ports

from penstock.control.server import ControlPoint
from penstock.driver.control_messages import Answer, Describe, Description, Request
from penstock.driver.epoch_settings import Settings
from penstock.driver.job_snapshot import CheckpointFacts
from penstock.query.replica import BlockReplica
from penstock.query.server import StateServer
from penstock.state.local_storage import LocalStorage

ID = "5f3a" * 8


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of the command and of the state server."""
    proxy, server = free_ports(2)
    made = {
        "penstock.control.dir": f"{tmp_path}/control",
        "cluster.dir": f"{tmp_path}/cluster",
        "queryable-state.proxy.ports": str(proxy),
        "queryable-state.server.ports": str(server),
        "queryable-state.auth.token-file": f"{tmp_path}/token",
        "queryable-state.poll-interval": "2 ms",
    }
    monkeypatch.setenv("PENSTOCK_PROPERTIES", "\n".join(f"{key}: {value}" for key, value in made.items()))
    return made


@pytest.fixture
def job(tmp_path: Path, settings: dict[str, str]) -> Iterator[Job]:
    """A job 'orders' that runs by hand on this host, at checkpoint 3."""
    job = Job(tmp_path / "orders", Settings(retained=9))
    for number in range(3):
        job.run(("ann", number + 1), ("bob", 5))
    description = Description(
        id=ID,
        name="orders",
        status="RUNNING",
        pid=1,
        started=0,
        epochs=3,
        restarts=0,
        parallelism={},
        checkpoints=str(tmp_path / "orders"),
    )

    def answer(request: Request) -> Answer:
        assert request == Describe()
        return description

    point = ControlPoint(settings["penstock.control.dir"], ID, answer)
    yield job
    point.close()
    job.harness.close()


@pytest.fixture
def serve(settings: dict[str, str], job: Job) -> Iterator[Callable[[], None]]:
    """`serve()` starts a state server for the job."""
    servers = []

    def started(job_id: str = ID) -> None:
        server = StateServer(settings)
        servers.append(server)
        server.await_checkpoint(server.follow(job_id, "orders", job.root), job.harness.checkpoint)
        server.start()

    yield started
    for server in servers:
        server.close()


def lines(*arguments: str) -> list[str]:
    done = call("state", *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_ls_lists_the_states_of_a_running_job(job: Job) -> None:
    for name in ("orders", ID, ID[:6]):
        listed = lines("ls", name)
        assert listed[0] == "kinds: Keyed Process"
        assert "  value: value long" in listed


@pytest.mark.parametrize("command", ["ls", "get orders kinds value", "history orders kinds value ann"])
def test_a_job_without_a_checkpoint_is_asked_again_later(job: Job, tmp_path: Path, command: str) -> None:
    shutil.rmtree(tmp_path / "orders")
    name, *rest = command.split()
    done = call("state", name, *(rest or ["orders"]))
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"Job {ID} ('orders') has no completed checkpoint yet." in done.stderr
    assert "Try again in a moment." in done.stderr


@pytest.mark.parametrize("served", [True, False])
def test_get_shows_the_rows_of_a_running_job(job: Job, serve: Callable[[], None], served: bool) -> None:
    if served:
        serve()
    assert sorted(lines("get", "orders", "kinds", "value")) == ["key=ann  value=3", "key=bob  value=5"]
    assert lines("get", "orders", "kinds", "list", "ann") == [f"key=ann  index={i}  value={i + 1}" for i in range(3)]
    assert json.loads("".join(lines("get", "orders", "kinds", "map", "bob", "--json"))) == [
        {"key": "bob", "map_key": "n5", "value": 5}
    ]
    done = call("state", "get", "orders", "kinds", "value", "eve")
    assert (done.exit_code, "The key eve has no value in this state" in done.stderr) == (1, True)
    done = call("state", "get", "orders", "kinds", "value", "--limit", "1")
    assert (len(done.stdout.splitlines()), "There are more than 1 rows" in done.stderr) == (1, True)
    assert "Checkpoint 3." in done.stderr
    done = call("state", "get", "orders", "kinds", "nothing")
    assert (done.exit_code, "has no state 'nothing', only" in done.stderr) == (1, True)


def test_get_asks_the_state_server_for_the_key_alone(
    job: Job, serve: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve()
    lines("get", "orders", "kinds", "list", "ann")
    read: list[int] = []
    between = BlockReplica.between

    def counted(self: BlockReplica, *arguments: Any) -> Any:
        found = between(self, *arguments)
        read.append(len(found))
        return found

    monkeypatch.setattr(BlockReplica, "between", counted)
    assert len(lines("get", "orders", "kinds", "list", "ann")) == 3
    # One entry for each element of ann's list, and none of bob's.
    assert read == [3]


def test_history_shows_the_retained_checkpoints_and_those_of_the_state_server(
    job: Job, serve: Callable[[], None]
) -> None:
    retained = [line.split() for line in lines("history", "orders", "kinds", "value", "ann")]
    assert [(line[0], line[2]) for line in retained] == [("1", "1"), ("2", "2"), ("3", "3")]
    serve()
    for number in range(3, 6):
        job.run(("ann", number + 1))
    while "Checkpoint 6." not in call("state", "get", "orders", "kinds", "value").stderr:
        pass
    found = json.loads("".join(lines("history", "orders", "kinds", "reducing", "ann", "--json")))
    assert [(each["checkpoint"], each["value"]) for each in found] == [(n, n * (n + 1) // 2) for n in range(1, 7)]
    times = [each["time"] for each in found]
    assert times == sorted(times)


@pytest.mark.parametrize("served", [True, False])
def test_a_job_of_a_cluster_is_found_through_rest(
    cluster: Service, settings: dict[str, str], job: Job, serve: Callable[[str], None], served: bool, tmp_path: Path
) -> None:
    if served:
        serve(JOB)
    facts = CheckpointFacts(enabled=True, storage=str(tmp_path / "orders"))
    cluster.gateway.by_id[JOB] = snapshot(name="counts", checkpointing=facts, configuration=settings)
    address = ["-m", f"127.0.0.1:{cluster.server.port}"]
    assert "  value: value long" in lines("ls", "counts", *address)
    assert lines("get", "counts", "kinds", "value", "ann", *address) == ["key=ann  value=3"]
    assert lines("history", JOB, "kinds", "value", "ann", *address)[-1].split()[::2] == ["3", "3"]
    if served:
        # Also if the command does not reach the checkpoints.
        facts = CheckpointFacts(enabled=True)
        cluster.gateway.by_id[JOB] = snapshot(name="counts", checkpointing=facts, configuration=settings)
        assert lines("get", "counts", "kinds", "value", "ann", *address) == ["key=ann  value=3"]
        assert [line.split()[::2] for line in lines("history", JOB, "kinds", "value", "ann", *address)] == [["3", "3"]]


def test_the_storage_answers_if_the_state_servers_do_not_have_the_state_yet(
    cluster: Service, settings: dict[str, str], job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.job_state._TIMEOUT_S", 0.5)
    monkeypatch.setattr("penstock.cli.job_state._SHORT_S", 0.5)
    server = StateServer(settings)
    # It follows the job, and has found no checkpoint.
    server.follow(JOB, "counts", LocalStorage(str(tmp_path / "empty")))
    server.start()
    facts = CheckpointFacts(enabled=True, storage=str(tmp_path / "orders"))
    cluster.gateway.by_id[JOB] = snapshot(name="counts", checkpointing=facts, configuration=settings)
    address = ["-m", f"127.0.0.1:{cluster.server.port}"]
    assert lines("get", "counts", "kinds", "value", "ann", *address) == ["key=ann  value=3"]
    assert lines("history", JOB, "kinds", "value", "ann", *address)[-1].split()[::2] == ["3", "3"]
    cluster.gateway.by_id[JOB] = snapshot(
        name="counts", checkpointing=CheckpointFacts(enabled=True), configuration=settings
    )
    for command in (["get", JOB, "kinds", "value"], ["history", JOB, "kinds", "value", "ann"]):
        done = call("state", *command, *address)
        assert (done.exit_code, done.stderr.startswith("NotServed: ")) == (1, True)
    server.close()


def test_a_job_that_keeps_its_state_in_memory_says_so(cluster: Service, settings: dict[str, str]) -> None:
    cluster.gateway.by_id[JOB] = snapshot(name="counts", checkpointing=CheckpointFacts(enabled=True))
    for command in (("ls", JOB), ("get", JOB, "kinds", "value"), ("history", JOB, "kinds", "value", "ann")):
        done = call("state", *command, "-m", f"127.0.0.1:{cluster.server.port}")
        assert (done.exit_code, "in the memory of its driver" in done.stderr) == (1, True)
        assert "state.checkpoints.dir" in done.stderr


def test_a_name_that_is_no_job_is_explained(job: Job) -> None:
    done = call("state", "ls", "nothing")
    assert done.exit_code == 1
    assert "No job with the id or name 'nothing'" in done.stderr
    assert "./nothing" in done.stderr
