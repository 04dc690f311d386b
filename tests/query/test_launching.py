"""A state server in a separate process."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from query_jobs import every_kind

from penstock.checkpoint.manifest import manifest_name
from penstock.common.configuration import Configuration
from penstock.datastream.state_serving import serve_memory, serve_state
from penstock.driver.epoch_settings import Settings
from penstock.query.errors import UnknownJob, Unreachable
from penstock.query.launching import Launch, LaunchedServer


def await_value(client, job, expected):
    """Return once a job is served."""
    while True:
        try:
            assert client.get(job, "the value", "ann") == expected
            return
        except (Unreachable, UnknownJob):
            pass


def test_a_server_process_serves_a_job_and_ends_some_time_after_it(job, settings, client):
    job.run(("ann", 3))
    settings["queryable-state.linger"] = "0 ms"
    launch = Launch(job_id="the-id", job_name="the name", root=job.root.where, settings=settings)
    server = LaunchedServer(launch)
    try:
        await_value(client, "the-id", 3)
        assert client.get("the name", "the value", "ann") == 3
        server.end()
        assert server.process.wait(120) == 0
    finally:
        server.kill()


def test_a_server_that_was_stopped_for_100_epochs_catches_up_and_shows_nothing_uncommitted(make_job, settings, client):
    job = make_job("job", Settings(base_bytes=1, asynchronous=False))
    storage = job.harness.storage
    job.run(("ann", 1))
    stale = storage.read(manifest_name(1))
    launch = Launch(job_id="the-id", job_name="job", root=job.root.where, settings=settings)
    server = LaunchedServer(launch)
    try:
        await_value(client, "job", 1)
        server.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.process.pid, os.WSTOPPED)
        pinned = storage.list("pins/")
        # The job stops respecting the pin, as it does when the server has given no sign of life for a minute.
        for name in pinned:
            storage.delete(name)
        for number in range(2, 103):
            job.run(("ann", number), (f"k{number % 5}", number))
        assert not storage.exists(manifest_name(1))
        # A driver that was stopped as well takes the free number again.
        storage.publish(manifest_name(1), stale)
        server.process.send_signal(signal.SIGCONT)
        assert client.read("job", "the value", "ann", at_least=102) == (102, 102)
        assert client.get_many("job", "the value", [f"k{i}" for i in range(5)]) == {
            f"k{number % 5}": number for number in range(98, 103)
        }
        assert client.describe("job").oldest == 102
        first = next(client.subscribe("job", "the value", since=1))
        assert (first.checkpoint, first.reset) == (102, True)
    finally:
        server.kill()


def test_a_server_that_is_killed_starts_again_until_the_job_ends(job, settings, client):
    job.run(("ann", 3))
    settings["queryable-state.linger"] = "0 ms"
    server = LaunchedServer(Launch(job_id="the-id", job_name="job", root=job.root.where, settings=settings))
    try:
        await_value(client, "the-id", 3)
        first = server.process
        first.kill()
        first.wait()
        job.run(("ann", 4))
        await_value(client, "the-id", 4)
        assert server.process.pid != first.pid
        server.end()
        assert server.process.wait(120) == 0
        assert not server.watched.is_alive() or not server.watched.join(30)
    finally:
        server.kill()


def test_a_server_that_cannot_start_is_not_started_again(job, settings, caplog):
    settings["queryable-state.ssl.certificate"] = "/does/not/exist"
    server = LaunchedServer(Launch(job_id="the-id", job_name="job", root=job.root.where, settings=settings))
    server.watched.join(60)
    assert not server.watched.is_alive()
    assert server.process.returncode == 1
    assert "The state of job 'job' is not served: The certificate /does/not/exist" in caplog.text


def test_no_server_starts_if_queryable_state_is_disabled(job):
    serve_state("id", "name", job.root, Configuration())()


def test_a_job_without_checkpoints_is_told_that_it_is_not_served(caplog):
    configuration = Configuration()
    configuration.set_string("queryable-state.enable", "true")
    serve_state("id", "name", None, configuration)()
    assert "The state of job 'name' is not served" in caplog.text


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_serves_a_job_from_its_directory(job, settings, client, as_json):
    job.run(("ann", 3))
    options = [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
    command = [sys.executable, "-m", "penstock.cli.main", "state-server", job.root.where, *options]
    command += ["--json"] * as_json
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        await_value(client, "job", 3)
        # Ctrl-C, and what a supervisor sends.
        process.send_signal(signal.SIGTERM if as_json else signal.SIGINT)
        printed, _ = process.communicate(timeout=120)
        if as_json:
            found = json.loads(printed)
            assert found["directory"] == job.root.where
            assert list(Path(settings["state.backend.local-dir"]).iterdir()) == []
            assert found["address"].startswith("grpc://127.0.0.1:")
        else:
            first, last = printed.splitlines()
            assert first.startswith(f"Serving {job.root.where} on grpc://127.0.0.1:")
            assert last == "Stopped."
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_an_interrupt_that_arrives_while_a_server_is_stopped_ends_it_when_it_continues(job, settings, client):
    """Linux gives such a signal to any thread, and a wait without end in the main thread would not notice."""
    job.run(("ann", 3))
    options = [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
    command = [sys.executable, "-m", "penstock.cli.main", "state-server", job.root.where, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("Serving ")
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=60) == ("Stopped.\n", None)
    finally:
        process.kill()
        process.wait()


def test_the_driver_serves_a_job_whose_checkpoints_are_in_its_memory(settings, client):
    configuration = Configuration.from_dict(settings | {"queryable-state.enable": "true"})
    with every_kind(backend="memory") as job:
        job.push(("ann", 3), ("bob", 4)).epoch()
        assert job.storage.in_memory
        served = serve_memory("the-id", "in memory", lambda: ("lineage", job.storage), configuration)
        try:
            served.start()
            await_value(client, "the-id", 3)
            job.push(("ann", 5)).epoch()
            # A restart in the process calls it again.
            served.start()
            assert client.read("in memory", "the value", "ann", at_least=2) == (5, 2)
            assert client.scan("the-id", "the value").read_all().num_rows == 2
            job.rescale(3)
            job.push(("ann", 6)).epoch()
            assert client.get_many("the-id", "the value", ["ann", "bob"], at_least=4) == {"ann": 6, "bob": 4}
        finally:
            served._server.close()


def test_the_driver_of_a_job_in_memory_serves_nothing_if_queryable_state_is_disabled():
    assert serve_memory("id", "name", lambda: None, Configuration()) is None


def test_a_job_in_memory_runs_on_if_its_state_cannot_be_served(settings, caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        configuration = Configuration.from_dict(
            settings | {"queryable-state.enable": "true", "queryable-state.server.ports": port}
        )
        served = serve_memory("id", "name", lambda: ("lineage", None), configuration)
        served.start()
        served.end()
    assert "The state of job 'name' is not served" in caplog.text
