"""The REST interface of one program, in front of a job that only answers."""

from __future__ import annotations

import gc
import os
import socket
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_gateway import JOB, snapshot
from http_service import wait_for
from program_job import AJob
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cluster.application import ApplicationGateway
from penstock.cluster.records import UnknownJob
from penstock.common.options.service import REST_PORT
from penstock.rest import contract
from penstock.rest.application_service import served_application
from penstock.rest.client import NotKnown, NotNow, RestClient
from penstock.rest.command_types import JobLine
from penstock.rest.server import CannotListen


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return {"cluster.dir": str(tmp_path / "cluster"), "rest.port": "0"}


@pytest.fixture
def served(settings: dict[str, str]) -> Iterator[tuple[ApplicationGateway, RestClient]]:
    with served_application(settings) as (gateway, address):
        port = address.rpartition(":")[2]
        yield gateway, RestClient.of_settings({**settings, "rest.address": "127.0.0.1", "rest.port": port})


@pytest.fixture
def no_last_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for this before `served`: the service then ends without waiting for other clients."""
    monkeypatch.setattr("penstock.rest.application_service._LAST_ANSWERS_S", 0.0)


def lines(client: RestClient) -> list[JobLine]:
    return client.get("/penstock/v1/jobs", list[JobLine])


def test_a_program_without_a_job_yet_answers(served: tuple[ApplicationGateway, RestClient]) -> None:
    _, client = served
    assert lines(client) == []
    with pytest.raises(NotKnown):
        client.get(f"/jobs/{JOB}", dict)


def test_a_job_is_shown_until_the_program_ends(served: tuple[ApplicationGateway, RestClient]) -> None:
    gateway, client = served
    job = AJob()
    gateway.attach(job, job)
    assert [(line.name, line.status) for line in lines(client)] == [("counts", "RUNNING")]
    job.now = snapshot(JOB, "FINISHED", name="counts")
    gateway.detach(JOB)
    taken = job.snapshots
    assert [line.status for line in lines(client)] == ["FINISHED"]
    assert client.get(f"/jobs/{JOB}", contract.JobDetailsInfo).state == "FINISHED"
    assert job.snapshots == taken, "an ended job is not asked again"


def test_a_program_that_runs_many_jobs_keeps_the_last_ones(settings: dict[str, str]) -> None:
    """A batch that runs every minute would otherwise keep the drivers of all its jobs."""
    gateway = ApplicationGateway({**settings, "web.history": "2"})
    running = AJob()
    gateway.attach(running, running)
    ended = []
    for number in range(10, 15):
        job = AJob()
        job.id = f"{number:032x}"
        job.now = snapshot(job.id, "RUNNING")
        gateway.attach(job, job)
        job.now = snapshot(job.id, "FINISHED")
        gateway.detach(job.id)
        ended.append(weakref.ref(job))
        del job
    assert [(each.id, each.state) for each in gateway.jobs()] == [
        (JOB, "RUNNING"),
        *((f"{number:032x}", "FINISHED") for number in (12, 13, 14)),
    ]
    gateway.attach(running, running)
    gc.collect()
    assert [each() is None for each in ended] == [True, True, True, False, False]
    with pytest.raises(UnknownJob):
        gateway.job(f"{12:032x}")


def test_many_polls_take_few_snapshots(served: tuple[ApplicationGateway, RestClient]) -> None:
    gateway, client = served
    job = AJob()
    gateway.attach(job, job)
    for _ in range(50):
        lines(client)
    assert job.snapshots < 25


def test_a_job_is_cancelled_and_rescaled_through_rest(
    no_last_answers: None, served: tuple[ApplicationGateway, RestClient]
) -> None:
    gateway, client = served
    job = AJob()
    gateway.attach(job, job)
    started = client.patch(f"/jobs/{JOB}/rescaling", contract.TriggerResponse, parallelism="3")

    def result() -> contract.AsynchronousOperationResult:
        path = f"/jobs/{JOB}/rescaling/{started.request_id}"
        return client.get(path, contract.AsynchronousOperationResult)

    wait_for(lambda: result().status.id == "COMPLETED")
    assert job.parallelism == 3
    client.patch(f"/jobs/{JOB}", dict, mode="cancel")
    assert job.cancelled.wait(30)
    gateway.detach(JOB)
    with pytest.raises(NotNow, match="has ended"):
        client.patch(f"/jobs/{JOB}", dict, mode="cancel")


def test_a_second_stop_is_a_conflict_and_does_not_keep_the_program_waiting(
    no_last_answers: None, served: tuple[ApplicationGateway, RestClient]
) -> None:
    gateway, client = served
    job = AJob()
    gateway.attach(job, job)

    def stop(trigger: str) -> str:
        body = contract.StopWithSavepointRequestBody(target_directory="/there", trigger_id=trigger * 32)
        return client.post(f"/jobs/{JOB}/stop", contract.TriggerResponse, body).request_id

    stop("a")
    with pytest.raises(NotNow, match="being stopped") as refused:
        stop("b")
    assert refused.value.status == 409
    # A client that repeats its request gets the same answer.
    assert stop("a") == "a" * 32
    job.savepoint.set_result("/there/savepoint-1")
    path = f"/jobs/{JOB}/savepoints/{'a' * 32}"
    wait_for(lambda: client.get(path, contract.AsynchronousOperationResult).status.id == "COMPLETED")
    assert not gateway.is_awaited


def test_programs_are_refused(served: tuple[ApplicationGateway, RestClient], tmp_path: Path) -> None:
    _, client = served
    program = tmp_path / "job.py"
    program.write_text("print()\n")
    with pytest.raises(NotNow, match="belongs to one running program"):
        client.upload(program)
    with pytest.raises(NotNow, match="belongs to one running program"):
        client.post("/penstock/v1/drain", dict)
    with pytest.raises(NotNow, match="part of a program"):
        client.delete("/cluster", dict)
    assert client.get("/jars", contract.JarListInfo).files == []


def test_the_last_savepoint_can_be_polled_after_the_job_has_ended(settings: dict[str, str]) -> None:
    job, found = AJob(), []
    stopped = threading.Event()

    def poll(client: RestClient, trigger: str) -> None:
        path = f"/jobs/{JOB}/savepoints/{trigger}"
        # The service ends once it has given the result.
        while (answer := client.get(path, contract.AsynchronousOperationResult)).status.id != "COMPLETED":
            stopped.set()
        found.append(answer.operation)

    with served_application(settings) as (gateway, address):
        port = address.rpartition(":")[2]
        client = RestClient.of_settings({**settings, "rest.address": "127.0.0.1", "rest.port": port})
        gateway.attach(job, job)
        body = contract.StopWithSavepointRequestBody(target_directory="/there")
        trigger = client.post(f"/jobs/{JOB}/stop", contract.TriggerResponse, body).request_id
        poller = threading.Thread(target=poll, args=(client, trigger))
        poller.start()
        assert stopped.wait(30)
        # The job, and with it the program, ends with its savepoint.
        job.now = snapshot(JOB, "FINISHED", name="counts")
        job.savepoint.set_result("/there/savepoint-1")
        gateway.detach(JOB)
    poller.join(30)
    assert found == [{"location": "/there/savepoint-1"}]


@pytest.mark.parametrize("path", ["/jobmanager/log", "/jobmanager/stdout"])
def test_a_program_reports_that_it_keeps_no_log_file(served: tuple[ApplicationGateway, RestClient], path: str) -> None:
    _, client = served
    assert b"keeps no file" in b"".join(client.text(path))


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ([], "log, on standard error, goes"),
        (["-f"], "log, on standard error, goes"),
        (["--stdout"], "standard output goes"),
    ],
)
@pytest.mark.parametrize("state", ["INITIALIZING", "RUNNING", "FINISHED"])
def test_the_command_for_logs_says_where_a_program_prints_them(
    settings: dict[str, str],
    no_last_answers: None,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    options: list[str],
    printed: str,
) -> None:
    monkeypatch.setenv("PENSTOCK_PROPERTIES", "\n".join(f"{key}: {value}" for key, value in settings.items()))
    with served_application(settings) as (gateway, address):
        job = AJob()
        job.now = snapshot(JOB, state, name="counts")
        gateway.attach(job, job)
        done = CliRunner().invoke(app, ["logs", "counts", "-m", address.removeprefix("http://"), *options])
    assert done.exit_code == 1
    assert f"(process {os.getpid()}), which keeps no log files: its {printed} to where you started it." in done.stderr
    assert "Look at the terminal of `penstock run --web`" in done.stderr


def test_the_url_of_the_log_of_a_program_leads_to_an_answer(served: tuple[ApplicationGateway, RestClient]) -> None:
    gateway, client = served
    job = AJob()
    gateway.attach(job, job)
    url = client.get(f"/jobs/{JOB}/jobmanager/log-url", contract.LogUrlResponse).url
    assert b"keeps no file" in b"".join(client.text(f"/{url.split('/', 3)[3]}"))


def test_the_command_that_cancels_a_program_sees_its_end(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command gives up at once, instead of two minutes after, the service is gone.
    monkeypatch.setattr("penstock.cli.cluster_jobs._AWAY_S", 0.0)
    monkeypatch.setattr("penstock.cli.cluster_jobs._POLL_S", 0.5)
    monkeypatch.setattr("penstock.rest.application_service._LAST_ANSWERS_S", 2.0)
    monkeypatch.setenv("PENSTOCK_PROPERTIES", "\n".join(f"{key}: {value}" for key, value in settings.items()))
    looked = threading.Event()

    class ASlowJob(AJob):
        def cancel(self) -> Future[None]:
            self.cancelled.set()
            return Future()

        def snapshot(self) -> Any:
            if self.cancelled.is_set():
                looked.set()
            return super().snapshot()

    job, done = ASlowJob(), []
    with served_application(settings) as (gateway, address):
        monkeypatch.setattr("penstock.cluster.application._REUSE_S", 0.0)
        gateway.attach(job, job)
        command = ["cancel", "counts", "-m", address.removeprefix("http://")]
        caller = threading.Thread(target=lambda: done.append(CliRunner().invoke(app, command)))
        caller.start()
        assert looked.wait(30)
        job.now = snapshot(JOB, "CANCELED", name="counts")
        gateway.detach(JOB)
        # Another client, such as a page, sees the end first.
        assert [each.state for each in gateway.jobs()] == ["CANCELED"]
    caller.join(30)
    assert [(each.exit_code, each.output) for each in done] == [(0, "")]


def test_changes_of_the_state_are_events(served: tuple[ApplicationGateway, RestClient]) -> None:
    gateway, client = served
    job = AJob()
    gateway.attach(job, job)
    received = b""
    for part in client.text("/penstock/v1/events"):
        received += part
        if b'"RUNNING"' in received:
            job.now = snapshot(JOB, "FAILED", name="counts")
        if b'"FAILED"' in received:
            break
    assert b"event: job-state" in received


def test_a_taken_default_port_is_replaced_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("penstock.rest.application_service.REST_PORT", replace(REST_PORT, default=port))
        with served_application({"cluster.dir": str(tmp_path / "cluster")}) as (_, address):
            assert int(address.rpartition(":")[2]) > port
        assert f"Port {port} is taken" in caplog.text


def test_a_taken_port_of_the_user_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {"cluster.dir": str(tmp_path / "cluster"), "rest.port": str(taken.getsockname()[1])}
        with pytest.raises(CannotListen), served_application(settings):
            pass
