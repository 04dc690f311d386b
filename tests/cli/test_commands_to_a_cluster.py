"""Commands for jobs of a service: the requests they send and their output. The cluster behind REST is a fake."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_gateway import JOB, JOBS, snapshot
from http_service import Service, served
from typer.testing import CliRunner

from penstock.cli.cluster_jobs import patiently
from penstock.cli.main import app
from penstock.cluster.gateway import ClusterState, LogFile, RunRequest
from penstock.cluster.service_lock import ServiceLock
from penstock.control.server import ControlPoint
from penstock.driver.control_messages import (
    Answer,
    Cancel,
    Describe,
    Description,
    Done,
    MakeSavepoint,
    Operable,
    Request,
    Rescale,
    Stop,
    TakeCheckpoint,
)
from penstock.driver.job_snapshot import Operation
from penstock.rest.client import NotNow, ServiceUnreachable

SAVEPOINT = "/savepoints/savepoint-counts-1"
OF_HAND = "77" * 16


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a cluster on this host, as the settings of all commands name it."""
    settings = {"cluster.dir": tmp_path / "cluster", "penstock.control.dir": tmp_path / "control"}
    monkeypatch.setenv("PENSTOCK_PROPERTIES", "\n".join(f"{key}: {value}" for key, value in settings.items()))
    (tmp_path / "cluster").mkdir(mode=0o700)
    return tmp_path / "cluster"


@pytest.fixture
def service(folder: Path) -> Iterator[Service]:
    """A service with jobs in all states. No command knows its address."""
    with served(folder) as service:
        yield service


@pytest.fixture
def cluster(service: Service, folder: Path) -> Iterator[Service]:
    """The service as the cluster of this host. The running job is 'counts', and all its operations succeed."""
    lock = ServiceLock(folder / "lock")
    (folder / "address").write_text(f"{service.server.address}\n")
    service.gateway.by_id[JOB] = snapshot(JOB, name="counts")
    succeed(service)
    yield service
    with suppress(OSError):
        lock.close()


@pytest.fixture
def by_hand(folder: Path) -> Iterator[list[Request]]:
    """The requests to a job 'ticks' that runs by hand on this host."""
    asked: list[Request] = []
    description = Description(
        id=OF_HAND, name="ticks", status="RUNNING", pid=1, started=0, epochs=1, restarts=0, parallelism={}
    )

    def answer(request: Request) -> Answer:
        if isinstance(request, Describe):
            return description
        asked.append(request)
        return Done(savepoint="/by/hand")

    point = ControlPoint(str(folder.parent / "control"), OF_HAND, answer)
    yield asked
    point.close()


def succeed(service: Service, **result: Any) -> None:
    async def operation(job_id: str, trigger_id: str) -> Operation:
        return Operation(trigger_id=trigger_id, done=True, **result)

    service.gateway.operation = operation


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


class TestList:
    def test_jobs_that_run_by_hand_come_before_those_of_the_cluster(
        self, cluster: Service, by_hand: list[Request]
    ) -> None:
        lines = [line.split() for line in call("list").stdout.splitlines()[1:]]
        assert lines[0][1] == "ticks"
        assert {line[0] for line in lines[1:]} == {JOBS[state] for state in ("RUNNING", "RESTARTING", "INITIALIZING")}

    def test_an_address_limits_commands_to_that_service(self, cluster: Service, by_hand: list[Request]) -> None:
        done = call("list", "-m", f"127.0.0.1:{cluster.server.port}")
        assert "counts" in done.stdout
        assert "ticks" not in done.stdout

    def test_all_shows_jobs_that_have_ended(self, cluster: Service) -> None:
        assert JOBS["FINISHED"] not in call("list").stdout
        assert JOBS["FINISHED"] in call("list", "--all").stdout

    def test_json_has_all_details_of_a_job(self, cluster: Service) -> None:
        job = next(job for job in json.loads(call("list", "--json").stdout) if job["id"] == JOB)
        assert job["name"] == "counts"
        assert job["status"] == "RUNNING"
        assert job["attempt"] == 1
        assert job["cluster"] == f"127.0.0.1:{cluster.server.port}"

    def test_the_reason_why_a_job_waits_is_below_the_table(self, cluster: Service) -> None:
        lacks = "The job needs 2 slots, but Spark has 0. It waits for them."
        cluster.gateway.by_id[JOB] = snapshot(JOB, name="counts", reason=f"{lacks}\nA second line.")
        done = call("list", "--all")
        assert done.stdout.splitlines()[-1] == f"{JOB} ('counts'): {lacks}"
        assert lacks in call("list", "--json").stdout

    def test_the_address_can_be_a_setting(self, service: Service) -> None:
        port = service.server.port
        done = call("list", "-D", "rest.address=127.0.0.1", "-D", f"rest.port={port}")
        assert JOB in done.stdout

    def test_jobs_by_hand_are_listed_although_the_service_does_not_answer(
        self, cluster: Service, by_hand: list[Request]
    ) -> None:
        cluster.server.stop()
        done = call("list")
        assert done.exit_code == 0
        assert "ticks" in done.stdout
        assert "Jobs of the service are missing" in done.stderr

    def test_a_killed_cluster_is_pointed_out(self, folder: Path) -> None:
        (folder / "address").write_text("http://127.0.0.1:1\n")
        done = call("list")
        assert done.exit_code == 0
        assert "The cluster of this host was killed" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ("savepoint counts", MakeSavepoint()),
        ("savepoint counts /there -yid application_1_2", MakeSavepoint(directory="/there")),
        ("savepoint counts s3://bucket/there", MakeSavepoint(directory="s3://bucket/there")),
        ("savepoint counts here", MakeSavepoint(directory=os.path.abspath("here"))),
        ("stop counts", Stop()),
        ("stop counts --drain -p /there", Stop(directory="/there", drain=True)),
        ("stop counts --savepointPath here", Stop(directory=os.path.abspath("here"))),
        ("cancel -s counts", Cancel(savepoint=True)),
        ("cancel --withSavepoint /there counts", Cancel(savepoint=True, directory="/there")),
        ("checkpoint counts", TakeCheckpoint()),
        ("rescale counts 4", Rescale(parallelism=4)),
        ("rescale counts count=4 a=b=3", Rescale(parallelism={"count": 4, "a=b": 3})),
    ],
)
def test_a_command_sends_its_request_to_the_service(cluster: Service, arguments: str, asked: Operable) -> None:
    done = call(*arguments.split())
    assert (done.exit_code, done.stdout) == (0, "")
    assert cluster.gateway.asked == [("trigger", JOB, asked)]


def test_a_cancelled_job_is_waited_for(cluster: Service) -> None:
    gateway = cluster.gateway

    async def cancel(job_id: str) -> None:
        gateway.asked.append(("cancel", job_id))
        gateway.by_id[job_id] = snapshot(job_id, "CANCELED", name="counts")

    gateway.cancel = cancel
    assert call("cancel", "counts").exit_code == 0
    assert gateway.asked == [("cancel", JOB)]


def test_the_only_output_is_the_path_of_the_savepoint(cluster: Service) -> None:
    succeed(cluster, savepoint=SAVEPOINT)
    for command in ("savepoint", "stop"):
        cluster.gateway.asked.clear()
        assert call(command, "counts").output == f"{SAVEPOINT}\n"


def test_a_checkpoint_prints_its_number(cluster: Service) -> None:
    succeed(cluster, checkpoint=42)
    assert call("checkpoint", "counts").output == "42\n"
    assert json.loads(call("checkpoint", "counts", "--json").output) == {
        "id": JOB,
        "savepoint": None,
        "checkpoint": 42,
    }


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("savepoint counts", {"savepoint": SAVEPOINT}),
        ("stop counts", {"savepoint": SAVEPOINT}),
        ("cancel -s counts", {"savepoint": SAVEPOINT}),
        ("rescale counts 3", {}),
    ],
)
def test_results_are_printed_as_json(cluster: Service, command: str, result: dict[str, Any]) -> None:
    succeed(cluster, **result)
    done = call(*command.split(), "--json")
    assert json.loads(done.stdout) == {"id": JOB, "savepoint": None, "checkpoint": None} | result


def test_a_failed_operation_is_printed_as_the_job_words_it(cluster: Service) -> None:
    succeed(cluster, failure_kind="SavepointError", failure="The directory is not writable.")
    done = call("savepoint", "counts")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "SavepointError: The directory is not writable.\n"


class TestFindingAJob:
    def test_a_prefix_of_an_id_is_enough(self, cluster: Service, by_hand: list[Request]) -> None:
        assert call("savepoint", OF_HAND[:4]).stdout == "/by/hand\n"
        assert by_hand == [MakeSavepoint()]
        assert cluster.gateway.asked == []

    def test_an_ambiguous_name_lists_jobs_by_hand_and_of_the_cluster(
        self, cluster: Service, by_hand: list[Request]
    ) -> None:
        cluster.gateway.by_id[JOB] = snapshot(JOB, name="ticks")
        done = call("stop", "ticks")
        assert done.exit_code == 1
        assert f"'ticks' matches several jobs: {OF_HAND} ('ticks'), {JOB} ('ticks')." in done.stderr
        assert cluster.gateway.asked == by_hand == []

    def test_a_name_means_the_running_job_and_not_an_ended_one(self, cluster: Service) -> None:
        ended = JOBS["FINISHED"]
        cluster.gateway.by_id[ended] = snapshot(ended, "FINISHED", name="counts")
        assert call("checkpoint", "counts").exit_code == 0
        assert cluster.gateway.asked == [("trigger", JOB, TakeCheckpoint())]

    def test_a_job_that_has_ended_is_named_with_its_state(self, cluster: Service) -> None:
        done = call("stop", JOBS["FAILED"])
        assert done.exit_code == 1
        assert "has ended" in done.stderr
        assert "is FAILED" in done.stderr

    def test_an_unknown_job_lists_those_that_run(self, cluster: Service, by_hand: list[Request]) -> None:
        done = call("stop", "nothing")
        assert done.exit_code == 1
        assert "No job with the id or name 'nothing' runs on this host or at 127.0.0.1" in done.stderr
        assert f"{OF_HAND} ('ticks')" in done.stderr

    def test_a_job_by_hand_is_reached_although_the_service_does_not_answer(
        self, cluster: Service, by_hand: list[Request]
    ) -> None:
        cluster.server.stop()
        assert call("stop", "ticks").stdout == "/by/hand\n"


def test_a_wrong_token_is_reported_with_the_setting(service: Service, folder: Path) -> None:
    other = folder.parent / "other"
    other.write_text("another-token-of-this-test\n")
    other.chmod(0o600)
    address = f"127.0.0.1:{service.server.port}"
    done = call("list", "-m", address, "-D", f"rest.auth.token-file={other}")
    assert done.exit_code == 1
    assert "rest.auth.token-file" in done.stderr


def test_an_address_that_is_not_one_is_a_usage_error(folder: Path) -> None:
    done = call("list", "-m", "host:port")
    assert done.exit_code == 2
    assert "write host:port" in done.stderr


class TestLogs:
    @pytest.fixture
    def attempts(self, cluster: Service, folder: Path) -> Path:
        """Log files of two attempts of the job."""
        for name in ("1-jobmanager.log", "2-jobmanager.log", "2-jobmanager.out", "2-jobmanager.log.1"):
            (folder / name).write_text("".join(f"{name} line {number}\n" for number in range(1, 301)))

        async def logs(job_id: str) -> list[LogFile]:
            return [
                LogFile(name=path.name, size=path.stat().st_size, modified_ms=0, path=path)
                for path in sorted(folder.glob("*-jobmanager*"))
            ]

        cluster.gateway.logs = logs
        return folder

    def test_the_end_of_the_last_attempt_is_printed(self, attempts: Path) -> None:
        lines = call("logs", "counts").stdout.splitlines()
        assert len(lines) == 100
        assert lines[-1] == "2-jobmanager.log line 300"

    def test_options_choose_attempt_output_and_length(self, attempts: Path) -> None:
        assert call("logs", "counts", "--attempt", "1", "-n", "1").stdout == "1-jobmanager.log line 300\n"
        assert call("logs", "counts", "--stdout", "-n", "1").stdout == "2-jobmanager.out line 300\n"
        assert json.loads(call("logs", "counts", "-n", "1", "--json").stdout) == ["2-jobmanager.log line 300"]

    def test_an_empty_log_prints_nothing(self, attempts: Path) -> None:
        os.truncate(attempts / "2-jobmanager.out", 0)
        done = call("logs", "counts", "--stdout")
        assert (done.exit_code, done.output) == (0, "")

    def test_a_missing_attempt_names_those_that_exist(self, attempts: Path) -> None:
        done = call("logs", "counts", "--attempt", "3")
        assert done.exit_code == 1
        assert "Pass one of the attempts 1, 2." in done.stderr

    def test_a_followed_log_ends_with_its_job(self, cluster: Service, attempts: Path) -> None:
        cluster.gateway.by_id[JOB] = snapshot(JOB, "FINISHED", name="counts")
        done = call("logs", "-f", "counts", "-n", "2")
        assert done.stdout == "2-jobmanager.log line 299\n2-jobmanager.log line 300\n"

    def test_a_followed_log_goes_on_with_the_next_attempt(self, cluster: Service, attempts: Path) -> None:
        (second := attempts / "2-jobmanager.log").unlink()
        gateway, looks = cluster.gateway, iter(range(100))

        def job(job_id: str) -> Any:
            """The second attempt begins while the log of the first one is followed, and ends later."""
            if (look := next(looks)) >= 3:
                second.write_text("first line of attempt 2\n")
                gateway.by_id[JOB] = snapshot(JOB, "RUNNING" if look < 8 else "FINISHED", name="counts", attempt=2)
            return gateway.by_id[job_id]

        gateway.by_id[JOB] = snapshot(JOB, name="counts", attempt=1)
        gateway.job = job
        done = call("logs", "-f", "counts", "-n", "1")
        assert done.stdout == "1-jobmanager.log line 300\nfirst line of attempt 2\n"
        assert done.stderr == "Attempt 1 has ended. This is the log of attempt 2:\n"

    def test_one_attempt_can_be_followed_alone(self, cluster: Service, attempts: Path) -> None:
        cluster.gateway.by_id[JOB] = snapshot(JOB, name="counts", attempt=2)
        done = call("logs", "-f", "counts", "-n", "1", "--attempt", "1")
        assert (done.stdout, done.stderr) == ("1-jobmanager.log line 300\n", "")

    def test_a_job_that_has_not_started_is_waited_for(
        self, cluster: Service, attempts: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hidden = (attempts / "1-jobmanager.log").rename(attempts / "hidden")
        (attempts / "2-jobmanager.log").unlink()
        cluster.gateway.by_id[JOB] = snapshot(JOB, "INITIALIZING", name="counts")

        def sleep(seconds: float) -> None:
            hidden.rename(attempts / "1-jobmanager.log")
            cluster.gateway.by_id[JOB] = snapshot(JOB, "FINISHED", name="counts")

        monkeypatch.setattr("penstock.cli.cluster_jobs.time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
        assert call("logs", "counts").exit_code == 1
        assert call("logs", "-f", "counts", "-n", "1").stdout == "1-jobmanager.log line 300\n"

    def test_a_running_job_without_log_files_is_not_waited_for(self, cluster: Service) -> None:
        async def none(job_id: str) -> list[LogFile]:
            return []

        cluster.gateway.logs = none
        done = call("logs", "-f", "counts")
        assert done.exit_code == 1
        assert "A program with --web logs to its standard error." in done.stderr

    @pytest.mark.parametrize(
        ("states", "chosen"),
        [
            (["FINISHED", "RUNNING", "CANCELED"], "RUNNING"),
            (["FINISHED", "INITIALIZING"], "INITIALIZING"),
            (["FINISHED", "CANCELED", "FAILED"], "FAILED"),
            (["FAILED", "CANCELED", "FINISHED"], "FINISHED"),
        ],
    )
    def test_a_name_means_the_running_or_else_the_newest_job(
        self, states: list[str], chosen: str, cluster: Service, folder: Path
    ) -> None:
        cluster.gateway.by_id.clear()
        for age, state in enumerate(reversed(states)):
            job = snapshot(JOBS[state], state, name="counts", started_ms=1_000_000 - age)
            cluster.gateway.by_id[job.id] = job

        async def logs(job_id: str) -> list[LogFile]:
            (folder / "log").write_text(f"{job_id}\n")
            return [LogFile(name="1-jobmanager.log", size=33, modified_ms=0, path=folder / "log")]

        cluster.gateway.logs = logs
        assert call("logs", "counts").stdout == f"{JOBS[chosen]}\n"

    def test_a_newer_job_that_has_no_name_yet_is_pointed_out(self, cluster: Service, attempts: Path) -> None:
        ended = snapshot(JOBS["FINISHED"], "FINISHED", name="visits", started_ms=1000)
        newer = snapshot(JOBS["INITIALIZING"], "INITIALIZING", name="job", started_ms=2000)
        cluster.gateway.by_id |= {ended.id: ended, newer.id: newer}
        done = call("logs", "visits", "-n", "1")
        assert done.stdout == "2-jobmanager.log line 300\n"
        assert f"'visits' is {ended.id}, which is FINISHED." in done.stderr
        assert f"{newer.id} ('job') was submitted later and has no final name yet" in done.stderr
        older = snapshot(newer.id, "INITIALIZING", name="job", started_ms=500)
        cluster.gateway.by_id[newer.id] = older
        assert call("logs", "visits").stderr == ""

    def test_a_job_by_hand_has_no_log_file(self, cluster: Service, by_hand: list[Request]) -> None:
        done = call("logs", "ticks")
        assert done.exit_code == 1
        assert done.stderr.startswith("NoLog: The job was started by hand")


class TestSubmission:
    @pytest.fixture
    def program(self, tmp_path: Path) -> str:
        (tmp_path / "program").mkdir()
        path = tmp_path / "program" / "job.py"
        path.write_text("print()\n")
        return str(path)

    def request(self, cluster: Service) -> RunRequest:
        ((kind, request),) = cluster.gateway.asked
        assert kind == "run"
        assert isinstance(request, RunRequest)
        return request

    def test_the_job_id_is_alone_on_standard_output(self, cluster: Service, program: str) -> None:
        done = call("run", "-d", program)
        assert (done.exit_code, done.stdout) == (0, f"{'c' * 32}\n")
        assert "penstock logs -f cccccccc" in done.stderr

    def test_options_of_the_command_line_reach_the_job(
        self, cluster: Service, program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        given = "-d -p 3 -D state.backend=rocksdb -D rest.port=1 -s saved --allowNonRestoredState --claim-mode CLAIM"
        done = call("run", *given.split(), program, "--day", "today")
        assert done.exit_code == 0
        request = self.request(cluster)
        assert request.program.endswith("_job.zip")
        assert request.arguments == ["--day", "today"]
        assert request.configuration == {"state.backend": "rocksdb", "parallelism.default": "3"}
        assert request.savepoint == str(tmp_path / "saved")
        assert request.allow_non_restored_state
        assert request.claim_mode == "CLAIM"

    def test_relative_paths_of_settings_are_those_of_the_command(
        self, cluster: Service, program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)
        given = "-d -D state.checkpoint.dir=here/cp -D state.savepoints.dir=s3://bucket/sp -D state.backend.local-dir=r"
        assert call("run", *given.split(), program).exit_code == 0
        assert self.request(cluster).configuration == {
            "state.checkpoints.dir": f"{tmp_path}/here/cp",
            "state.savepoints.dir": "s3://bucket/sp",
            # Each worker has its own.
            "state.backend.local-dir": "r",
        }

    def test_dependencies_can_be_uris(self, cluster: Service, program: str, tmp_path: Path) -> None:
        (tmp_path / "my helpers.py").touch()
        done = call("run", "-d", "--py-files", (tmp_path / "my helpers.py").as_uri(), program)
        assert done.exit_code == 0, done.stderr

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--requirements", "/missing.txt"], "requirements file '/missing.txt' does not exist"),
            (["--requirements", f"{__file__}#/missing"], "'/missing' is not a folder of wheels"),
            (["--py-files", "/missing.py"], "file '/missing.py' does not exist"),
            (["--archives", "/missing.zip#x"], "archive '/missing.zip' does not exist"),
        ],
    )
    def test_a_dependency_that_does_not_exist_is_named(
        self, cluster: Service, program: str, options: list[str], message: str
    ) -> None:
        done = call("run", "-d", *options, program)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("BadSetting: python.")
        assert message in done.stderr
        assert cluster.gateway.asked == []

    def test_the_heap_of_the_jobmanager_is_a_setting_of_the_job(self, cluster: Service, program: str) -> None:
        assert call("run", "-d", "-D", "jobmanager.memory.heap.size=2g", program).exit_code == 0
        assert self.request(cluster).configuration == {"spark.driver.memory": "2048m"}

    def test_settings_for_the_command_itself_are_not_sent(self, cluster: Service, program: str, folder: Path) -> None:
        assert call("run", "-d", "-D", f"cluster.dir={folder}", "-D", "web.timeout=20 s", program).exit_code == 0
        assert self.request(cluster).configuration == {}

    @pytest.mark.parametrize(
        "setting", ["web.history=3", "cluster.max-jobs=3", "high-availability=none", "heartbeat.timeout=1 min"]
    )
    def test_settings_of_the_service_are_refused(self, cluster: Service, program: str, setting: str) -> None:
        done = call("run", "-d", "-D", setting, program)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "is a setting of the service, so a job cannot set it. Put it into" in done.stderr
        assert cluster.gateway.asked == []

    def test_json_has_the_id_and_the_cluster(self, cluster: Service, program: str) -> None:
        done = call("run", "-d", "--json", program)
        assert json.loads(done.stdout) == {"id": "c" * 32, "cluster": f"127.0.0.1:{cluster.server.port}"}

    @pytest.mark.parametrize(("state", "code"), [("FINISHED", 0), ("CANCELED", 0), ("FAILED", 1)])
    def test_an_attached_command_waits_and_exits_by_the_state(
        self, cluster: Service, program: str, state: str, code: int
    ) -> None:
        cluster.gateway.by_id["c" * 32] = snapshot("c" * 32, state, reason="Its reason." if code else "")
        done = call("run", "-m", f"127.0.0.1:{cluster.server.port}", program)
        assert done.exit_code == code
        assert f"is {state}." in done.stderr
        assert ("Its reason." in done.stderr) == bool(code)

    @pytest.mark.parametrize(("state", "code"), [("RUNNING", 0), ("FINISHED", 0), ("FAILED", 1)])
    def test_a_detached_command_can_wait_until_the_job_runs(
        self, cluster: Service, program: str, state: str, code: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job, by_id = "c" * 32, cluster.gateway.by_id
        by_id[job] = snapshot(job, "INITIALIZING", name="job")

        def sleep(seconds: float) -> None:
            by_id[job] = snapshot(job, state, name="north", reason="Its reason." if code else "")

        monkeypatch.setattr("penstock.cli.cluster_jobs.time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
        done = call("run", "-d", "--wait", program)
        assert (done.exit_code, done.stdout) == (code, f"{job}\n")
        assert f"Job 'job' is INITIALIZING.\nJob 'north' is {state}.\n" in done.stderr
        assert ("Its reason." in done.stderr) == bool(code)

    def test_waiting_until_the_job_runs_needs_a_detached_command(self, cluster: Service, program: str) -> None:
        assert call("run", "--wait", program).exit_code == 2
        assert call("run", "--wait", "-m", f"127.0.0.1:{cluster.server.port}", program).exit_code == 2

    def test_the_error_for_a_missing_cluster_says_how_to_start_one(self, folder: Path, program: str) -> None:
        done = call("run", "-d", program)
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("NoCluster: No cluster runs in ")
        assert "`penstock cluster start`" in done.stderr

    @pytest.mark.parametrize("option", ["--web", "--dry-run"])
    def test_options_that_run_the_program_here_cannot_be_combined(
        self, cluster: Service, program: str, option: str
    ) -> None:
        assert call("run", "-d", option, "-s", "/saved", program).exit_code == 2
        assert cluster.gateway.asked == []

    def test_a_program_that_is_too_large_is_refused_before_it_is_sent(self, cluster: Service, program: str) -> None:
        Path(program).with_name("data.bin").write_bytes(os.urandom(2 << 20))
        done = call("run", "-d", "-D", "rest.server.max-content-length=1 mb", program)
        assert done.exit_code == 1
        assert done.stderr.startswith("BadProgram: ")
        assert cluster.gateway.asked == []


class TestTheCluster:
    def test_status_describes_the_service(self, cluster: Service, folder: Path) -> None:
        found = json.loads(call("cluster", "status", "--json").stdout)
        assert found["running"] is found["leading"] is found["ready"] is True
        assert found["address"] == f"127.0.0.1:{cluster.server.port}"
        assert found["pid"] == os.getpid()
        assert found["directory"] == str(folder)
        assert found["configuration"] is None
        assert found["jobs"] == dict.fromkeys(JOBS, 1)
        said = call("cluster", "status")
        assert said.exit_code == 0
        assert re.search(r"^Jobs +1 CANCELED, 1 FAILED, ", said.stdout, re.MULTILINE)

    def test_a_standby_has_a_status_although_the_leader_is_gone(self, cluster: Service) -> None:
        cluster.gateway.cluster = ClusterState(leading=False, ready=True, leader="http://127.0.0.1:1")
        cluster.gateway.other_leader = "http://127.0.0.1:1"
        done = call("cluster", "status")
        assert done.exit_code == 0
        assert "stands by; http://127.0.0.1:1 leads" in done.stdout
        assert "Jobs" not in done.stdout

    def test_status_without_a_cluster_exits_with_1(self, folder: Path) -> None:
        done = call("cluster", "status")
        assert done.exit_code == 1
        assert "penstock cluster start" in done.stdout
        assert json.loads(call("cluster", "status", "--json").stdout)["running"] is False

    def test_drain_reaches_the_service(self, cluster: Service) -> None:
        assert call("cluster", "drain").exit_code == 0
        assert json.loads(call("cluster", "drain", "--json").stdout) == {"draining": True}
        assert cluster.gateway.asked == [("drain",)] * 2

    def test_a_remote_service_is_stopped_through_rest(self, service: Service) -> None:
        done = call("cluster", "stop", "-m", f"127.0.0.1:{service.server.port}")
        assert done.exit_code == 0
        assert service.gateway.is_shut_down
        assert "3 jobs keep running" in done.stdout

    def test_stop_can_cancel_all_jobs_first(self, service: Service) -> None:
        gateway = service.gateway
        cancelled = []

        async def cancel(job_id: str) -> None:
            cancelled.append(job_id)
            gateway.by_id[job_id] = snapshot(job_id, "CANCELED")

        gateway.cancel = cancel
        done = call("cluster", "stop", "--cancel-jobs", "-m", f"127.0.0.1:{service.server.port}")
        assert done.stdout == "The service stopped.\n"
        assert set(cancelled) == {JOBS[state] for state in ("RUNNING", "RESTARTING", "INITIALIZING")}

    def test_stop_without_a_cluster_says_so(self, folder: Path) -> None:
        done = call("cluster", "stop")
        assert done.exit_code == 1
        assert done.stderr.startswith("NoCluster: ")

    def test_a_second_service_in_the_same_directory_is_refused(self, cluster: Service, folder: Path) -> None:
        done = call("cluster", "start")
        assert done.exit_code == 1
        assert f"A service already runs in {folder} as process {os.getpid()}." in done.stderr


class TestWaiting:
    def looks(self, *outcomes: Any) -> Callable[[], Any]:
        left = iter(outcomes)

        def look() -> Any:
            outcome = next(left)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return look

    @pytest.fixture(autouse=True)
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [0.0]
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))

    def test_a_service_that_is_away_for_a_while_is_waited_for(self) -> None:
        away = [ServiceUnreachable("It is away."), NotNow(503, "It starts.")] * 5
        assert patiently(self.looks("no", *away, "no", "yes"), lambda answer: answer == "yes") == "yes"

    def test_a_service_that_stays_away_is_an_error(self) -> None:
        def look() -> str:
            raise ServiceUnreachable("It is away.")

        with pytest.raises(ServiceUnreachable):
            patiently(look, lambda answer: True)

    def test_a_refusal_is_not_repeated(self) -> None:
        with pytest.raises(NotNow):
            patiently(self.looks(NotNow(409, "The job has ended."), "yes"), lambda answer: True)
