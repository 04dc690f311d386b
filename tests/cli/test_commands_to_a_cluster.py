"""Commands for jobs of a service: the requests they send and their output. The cluster behind REST is a fake."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from called_commands import call, succeed
from fake_gateway import JOB, JOBS, snapshot
from http_service import Service

from penstock.cli.cluster_jobs import patiently
from penstock.cluster.gateway import ClusterState, Conflict
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
from penstock.rest.client import NotNow, ServiceUnreachable

SAVEPOINT = "/savepoints/savepoint-counts-1"
OF_HAND = "77" * 16


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
        assert "The service of this host was killed" in done.stderr


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


def test_a_job_by_hand_has_no_log_file(cluster: Service, by_hand: list[Request]) -> None:
    done = call("logs", "ticks")
    assert done.exit_code == 1
    assert done.stderr.startswith("NoLog: The job was started by hand")


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

    def test_stop_goes_on_if_a_job_ends_before_it_is_cancelled(self, service: Service) -> None:
        gateway = service.gateway

        async def cancel(job_id: str) -> None:
            gateway.by_id[job_id] = snapshot(job_id, "FINISHED")
            raise Conflict(f"Job {job_id} has ended: it is FINISHED.")

        gateway.cancel = cancel
        done = call("cluster", "stop", "--cancel-jobs", "-m", f"127.0.0.1:{service.server.port}")
        assert (done.exit_code, done.stdout) == (0, "The service stopped.\n")

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
