"""The service as users start it: real processes, a real REST interface, and jobs on Spark."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import self_signed
from service_host import COUNTS, SMALL, ServiceHost

from chaos.processes import below
from penstock.cluster.processes import state_of
from penstock.cluster.supervision import Process

pytestmark = pytest.mark.slow


@pytest.fixture
def host(tmp_path: Path) -> Iterator[ServiceHost]:
    host = ServiceHost(tmp_path)
    (tmp_path / "counts.py").write_text(COUNTS)
    yield host
    host.close()


class TestStart:
    def test_a_service_is_ready_when_its_start_returns(self, host: ServiceHost) -> None:
        started = host.run("cluster", "start")
        assert started.returncode == 0, started.stderr
        address = started.stdout.split()[-1].rstrip(".")
        assert address == (host.cluster / "address").read_text().strip()
        assert str(host.cluster / "token") in started.stderr
        with urllib.request.urlopen(f"{address}/ready") as answer:
            assert json.load(answer)["ready"] is True
        status = host.json("cluster", "status")
        assert (status["running"], status["leading"], status["jobs"]) == (True, True, {})
        assert host.said("cluster", "stop") == "The service stopped."
        assert not (host.cluster / "address").exists()
        assert host.run("cluster", "status").returncode == 1

    def test_a_second_start_is_refused_and_the_first_goes_on(self, host: ServiceHost) -> None:
        host.said("cluster", "start")
        pid = host.json("cluster", "status")["pid"]
        for again in (["cluster", "start"], ["cluster", "start", "--foreground"]):
            refused = host.run(*again)
            assert refused.returncode == 1
            assert f"as process {pid}" in refused.stderr
        assert host.json("cluster", "status")["pid"] == pid

    def test_a_service_that_cannot_start_prints_the_end_of_its_log(self, host: ServiceHost) -> None:
        host.cluster.mkdir(mode=0o700)
        (host.cluster / "dispatcher.log").write_text("of an earlier start\n")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            failed = host.run("cluster", "start", "-D", f"rest.port={port}")
        assert failed.returncode == 1
        assert failed.stderr.startswith("CannotStart: ")
        assert f"The service cannot listen on 127.0.0.1, port {port}" in failed.stderr
        assert "earlier" not in failed.stderr

    def test_settings_of_the_command_line_are_not_on_the_command_line_of_the_service(self, host: ServiceHost) -> None:
        secret = "a-secret-of-this-test"
        host.said("cluster", "start", "-D", f"state.checkpoints.fs.secret={secret}")
        pid = host.json("cluster", "status")["pid"]
        assert secret.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert secret.encode() not in Path(f"/proc/{pid}/environ").read_bytes()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_a_service_in_the_foreground_cleanly(self, host: ServiceHost, number: signal.Signals) -> None:
        process = subprocess.Popen(
            host.command("cluster", "start", "--foreground"),
            cwd=host.folder,
            env=host.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            host.until(lambda: (host.cluster / "address").exists(), 60)
            process.send_signal(number)
            _, logged = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 0
        assert "stops. Jobs keep running." in logged
        assert logged.splitlines()[0] in (host.cluster / "dispatcher.log").read_text()
        assert not (host.cluster / "address").exists()

    def test_a_killed_service_is_replaced(self, host: ServiceHost) -> None:
        host.said("cluster", "start")
        pid = host.json("cluster", "status")["pid"]
        os.kill(pid, signal.SIGKILL)
        host.until(lambda: host.run("cluster", "status").returncode == 1)
        assert "was killed" in host.run("list").stderr
        host.said("cluster", "start")
        assert host.json("cluster", "status")["pid"] != pid


def test_commands_talk_to_a_service_with_tls_only_if_they_trust_its_certificate(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    certificate, key = self_signed(tmp_path)
    other, _ = self_signed(tmp_path / "other")
    tls = {"rest.ssl.certificate": certificate, "rest.ssl.private-key": key, "rest.ssl.ca": certificate}
    host = ServiceHost(tmp_path, SMALL | tls)
    try:
        address = host.said("cluster", "start").split()[-1].rstrip(".")
        assert address.startswith("https://127.0.0.1:")
        assert host.json("cluster", "status")["ready"] is True
        assert host.json("list") == []
        assert host.json("list", "-m", address) == []
        # The address tells that the service has TLS. No token travels without.
        unconfigured = host.run("list", "-m", address, "-D", "rest.ssl.ca=", "-D", "rest.ssl.certificate=")
        assert "is not trusted" in unconfigured.stderr
        for authorities in ("", other):
            refused = host.run("list", "-m", address, "-D", f"rest.ssl.ca={authorities}")
            assert (refused.returncode, refused.stdout) == (1, "")
            assert refused.stderr.startswith("ServiceUnreachable: The certificate of the service")
            assert "Set rest.ssl.ca to a PEM file" in refused.stderr
        assert host.said("cluster", "stop") == "The service stopped."
    finally:
        host.close()


@pytest.mark.spark
def test_jobs_of_a_killed_service_keep_running_and_are_adopted(host: ServiceHost) -> None:
    host.said("cluster", "start")
    jobs = [host.said("run", "-d", "counts.py", name) for name in ("north", "south")]
    host.await_running(*jobs)
    before = {job: (host.claim(job), int(host.said("checkpoint", job))) for job in jobs}
    host.until(lambda: all((host.cluster / "jobs" / job / "1" / "jobmanager.out").stat().st_size for job in jobs))

    os.kill(host.json("cluster", "status")["pid"], signal.SIGKILL)
    sizes = {job: (host.cluster / "jobs" / job / "1" / "jobmanager.out").stat().st_size for job in jobs}
    host.until(
        lambda: all(
            (host.cluster / "jobs" / job / "1" / "jobmanager.out").stat().st_size > sizes[job] + 100 for job in jobs
        )
    )

    host.said("cluster", "start")
    assert {job["status"] for job in host.jobs().values()} == {"RUNNING"}
    for job in jobs:
        claim, epoch = before[job]
        assert host.claim(job) == claim
        assert state_of(claim) is Process.ALIVE
        assert host.jobs()[job]["attempt"] == 1
        assert int(host.said("checkpoint", job)) > epoch
    # The restarted service can still end them.
    host.said("cluster", "stop", "--cancel-jobs")
    assert {state_of(host.claim(job)) for job in jobs} == {Process.DEAD}


@pytest.mark.spark
def test_jobs_outlive_a_stop_and_end_when_the_next_service_cancels_them(host: ServiceHost) -> None:
    host.said("cluster", "start")
    job = host.said("run", "-d", "counts.py", "north")
    host.await_running(job)
    assert "1 job keeps running" in host.said("cluster", "stop")
    claim = host.claim(job)
    assert state_of(claim) is Process.ALIVE
    host.said("cluster", "start")
    host.said("cancel", "north")
    assert {each["id"]: each["status"] for each in host.json("list", "--all")} == {job: "CANCELED"}
    host.until(lambda: state_of(claim) is Process.DEAD)


@pytest.mark.spark
def test_a_drained_service_refuses_jobs_and_runs_those_that_it_has(host: ServiceHost) -> None:
    host.said("cluster", "start")
    job = host.said("run", "-d", "counts.py", "north")
    host.await_running(job)
    host.said("cluster", "drain")
    refused = host.run("run", "-d", "counts.py", "south")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "draining" in refused.stderr
    assert "draining" in host.said("cluster", "status")
    assert int(host.said("checkpoint", "north")) > 0


@pytest.mark.spark
def test_an_attached_command_ends_with_its_job(host: ServiceHost) -> None:
    host.said("cluster", "start")
    address = (host.cluster / "address").read_text().strip()
    (host.folder / "broken.py").write_text("raise ValueError('no such file')\n")
    failed = host.run("run", "-m", address, "broken.py")
    assert failed.returncode == 1
    assert "FAILED" in failed.stderr
    assert "no such file" in failed.stderr
    attached = subprocess.Popen(
        host.command("run", "-m", address, "-D", "jobmanager.memory.heap.size=600 mb", "counts.py", "north"),
        cwd=host.folder,
        env=host.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert attached.stdout is not None
        job = attached.stdout.readline().strip()
        host.await_running(job)
        jvms = [
            each for each in below(host.claim(job).pid) if "org.apache.spark.deploy.SparkSubmit" in each.arguments()
        ]
        assert ["-Xmx600m" in each.arguments() for each in jvms] == [True]
        attached.send_signal(signal.SIGINT)
        assert "keeps running" in attached.communicate(timeout=60)[1]
    finally:
        attached.kill()
    assert attached.returncode == 130
    assert host.jobs()[job]["status"] == "RUNNING"


@pytest.mark.spark
def test_a_program_serves_its_own_job(tmp_path: Path) -> None:
    settings = {**SMALL, "state.savepoints.dir": str(tmp_path / "saved"), "state.checkpoints.dir": str(tmp_path / "cp")}
    host = ServiceHost(tmp_path, settings)
    (tmp_path / "counts.py").write_text(COUNTS)
    process = subprocess.Popen(
        host.command("run", "--web", "-q", "counts.py", "north"),
        cwd=tmp_path,
        env=host.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        address = process.stderr.readline().split()[1].rstrip(",")
        host.until(lambda: "RUNNING" in host.run("list", "-m", address).stdout)
        (by_hand,) = host.json("list")
        (by_rest,) = host.json("list", "-m", address)
        assert by_hand["id"] == by_rest["id"]
        assert by_hand["pid"] == process.pid
        refused = host.run("run", "-d", "-m", address, "counts.py", "south")
        assert refused.returncode == 1
        assert "accepts no others" in refused.stderr
        assert int(host.said("checkpoint", "-m", address, "north")) > 0
        savepoint = host.said("stop", "-m", address, "north")
        assert Path(savepoint).parent == tmp_path / "saved"
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
