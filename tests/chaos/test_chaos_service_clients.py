"""The clients of the service rig notice wrong answers and failed operations, and the rig notices when it is blind."""

import argparse
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from chaos.blindness import blind
from chaos.command_line import INCOMPLETE, conclude
from chaos.faults import Violation
from chaos.progress import Outcome, Progress
from chaos.report import Report
from chaos.service import rig as rig_module
from chaos.service import watch as watch_module
from chaos.service.clients import Clients, Done, _poll
from chaos.service.cluster import Cluster
from chaos.service.faults import Hit
from chaos.service.jobs import FINISH, RUN, STOP, Victim
from chaos.service.plan import Step, left_out
from chaos.service.rig import ServiceRig, Shape, _restarted, _unprovoked
from chaos.service.watch import Watch
from penstock.driver.assignment import Verdict
from penstock.rest.client import NotKnown, NotNow, RefusedByService
from penstock.rest.contract import AsynchronousOperationResult, QueueStatus, TriggerResponse
from penstock.rest.own_endpoints import Health


class Node:
    """A Dispatcher that answers from memory."""

    def __init__(self, name: str, leading: bool) -> None:
        self.directory = Path(name)
        self.log = Path("/dev/null")
        self.running = True
        self.health = Health(leading=leading, ready=True, draining=False)
        self.asked = 0

    def client(self, timeout_s: float) -> Any:
        return self

    def get(self, path: str, kind: Any) -> Any:
        assert path == "/ready"
        return self.health


@pytest.fixture
def cluster(tmp_path: Path) -> Any:
    found = Cluster(tmp_path / "cluster", dispatchers=0, zookeeper=0, mounted=False)
    found.dispatchers = [Node("leader", True), Node("standby", False)]  # type: ignore[list-item]
    return found


@pytest.fixture
def job(tmp_path: Path) -> Victim:
    found = Victim(tmp_path / "job")
    found.acknowledged = True
    return found


# -- requests ----------------------------------------------------------------------------------------------------------


def test_requests_go_through_every_living_dispatcher(cluster: Any) -> None:
    seen = {cluster.ask(lambda node: node.directory.name, 1.0) for _ in range(50)}
    assert seen == {"leader", "standby"}
    cluster.dispatchers[1].running = False
    assert {cluster.ask(lambda node: node.directory.name, 1.0) for _ in range(20)} == {"leader"}


@pytest.mark.parametrize("status", [500, 404, 400, 401])
def test_an_answer_that_a_correct_request_never_gets_is_a_violation(cluster: Any, status: int) -> None:
    def request(node: Any) -> None:
        raise RefusedByService(status, "no")

    with pytest.raises(Violation, match=f"answered with status {status}"):
        cluster.ask(request, 1.0)


def test_a_request_is_repeated_while_the_service_is_not_ready_or_its_storage_fails(cluster: Any) -> None:
    answers: list[Exception | None] = [NotNow(503, ""), NotNow(409, ""), RefusedByService(500, "EROFS"), None]
    cluster.mount.fails = True

    def request(node: Any) -> str:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return "done"

    assert cluster.ask(request, 60.0) == "done"


def test_a_cancellation_whose_answer_was_lost_is_acknowledged(cluster: Any, job: Victim) -> None:
    def patch(*args: Any, **query: Any) -> None:
        raise NotNow(409, f"Job {job.id} has ended: it is CANCELED.")

    for node in cluster.dispatchers:
        node.patch = patch
    cluster.cancel(job, 1.0)
    assert job.cancelled_at is not None


def test_a_dispatcher_that_exits_by_itself_and_two_leaders_are_found(cluster: Any) -> None:
    assert cluster.problem() == ""
    cluster.dispatchers[1].health = cluster.dispatchers[0].health
    assert cluster.problem() == "2 Dispatchers lead"
    cluster.dispatchers[1].running = False
    with pytest.raises(Violation, match="standby exited by itself"):
        cluster.problem()


def test_an_unknown_operation_is_told_apart_from_an_unknown_job() -> None:
    def client(text: str) -> Any:
        def get(*args: Any) -> None:
            raise NotKnown(404, text)

        return SimpleNamespace(get=get)

    assert _poll(client("Job 0 has no operation 'a'."), "/jobs/0/savepoints/a") is None
    with pytest.raises(NotKnown):
        _poll(client("The cluster has no job 0."), "/jobs/0/savepoints/a")


# -- operations --------------------------------------------------------------------------------------------------------


class Answering:
    """A cluster that answers triggers and polls, as a client of itself."""

    def __init__(self, operation: dict[str, Any], stopped_with: str = "") -> None:
        self.operation = operation
        ended = SimpleNamespace(verdict=Verdict.STOPPED, savepoint=stopped_with)
        self._view = SimpleNamespace(verdict=ended if stopped_with else None)

    def ask(self, request: Callable[[Any], Any], patience_s: float) -> Any:
        return request(self)

    def view(self, job: Victim) -> Any:
        return self._view

    def post(self, path: str, kind: Any, body: Any) -> TriggerResponse:
        return TriggerResponse(request_id=body["triggerId"])

    def patch(self, path: str, kind: Any, **query: str) -> TriggerResponse:
        return TriggerResponse(request_id="a")

    def get(self, path: str, kind: Any) -> AsynchronousOperationResult:
        return AsynchronousOperationResult(status=QueueStatus(id="COMPLETED"), operation=self.operation)


FAILED = {"failure-cause": {"class": "E", "stack-trace": "full"}}


def act(answering: Answering, job: Victim, action: str, folder: Path) -> Done:
    clients = Clients(answering, folder, [job], 3, 1.0)  # type: ignore[arg-type]
    return clients.act(action, random.Random(1))


def test_a_successful_operation_is_noted_for_the_final_check(job: Victim, tmp_path: Path) -> None:
    assert act(Answering({"location": "here"}), job, "savepoint", tmp_path).failure == ""
    assert job.saved == ["here"]
    assert act(Answering({}), job, "rescale", tmp_path).failure == ""
    assert job.width in (2, 3)
    assert act(Answering({"location": "there"}, "there"), job, "stop", tmp_path).failure == ""
    assert job.wanted == STOP
    assert job.saved[-1] == "there"


@pytest.mark.parametrize("action", ["savepoint", "rescale", "stop"])
def test_a_failed_operation_is_reported_as_failed(job: Victim, tmp_path: Path, action: str) -> None:
    done = act(Answering(FAILED), job, action, tmp_path)
    assert "full" in done.failure
    assert job.wanted == RUN
    assert _unprovoked(done, [job])
    assert not _unprovoked(done, [])


def test_a_stop_that_the_records_do_not_show_is_a_violation(job: Victim, tmp_path: Path) -> None:
    with pytest.raises(Violation, match="reported as stopped"):
        act(Answering({"location": "here"}), job, "stop", tmp_path)


def test_a_run_whose_operations_fail_without_a_fault_ends_with_a_violation(job: Victim, tmp_path: Path) -> None:
    cluster = Answering(FAILED)
    cluster.await_leader = lambda patience_s: None  # type: ignore[attr-defined]
    clients = Clients(cluster, tmp_path, [job], 3, 1.0)  # type: ignore[arg-type]
    rig = ServiceRig(tmp_path / "work", [], Shape(), lambda text: None)
    with pytest.raises(Violation, match=r"savepoint of .* failed without a fault in its way: .*full"):
        rig._rehearse(cluster, clients, None)  # type: ignore[arg-type]


def test_a_job_that_restarts_although_no_fault_hit_it_is_found(job: Victim) -> None:
    lost = SimpleNamespace(ended=SimpleNamespace(reason="silent"))
    cluster: Any = SimpleNamespace(attempt=lambda job: 2, view=lambda job: SimpleNamespace(attempts=[lost]))
    assert _restarted(cluster, [job], {job.id: 2}) == []
    assert _restarted(cluster, [job], {job.id: 1}) == [f"job {job.id} restarted although nothing hit it: silent"]


def test_a_service_recovers_only_once_every_dispatcher_shows_every_job(job: Victim, tmp_path: Path) -> None:
    answers = [{}, {}, {job.id: "RUNNING"}, {}, {job.id: "FINISHED"}, {job.id: "FINISHED"}]
    job.wanted = FINISH
    cluster: Any = SimpleNamespace(
        problem=lambda: "", dispatchers=[Node("a", True), Node("b", False)], states=lambda node: answers.pop(0)
    )
    watch: Any = SimpleNamespace(jobs=[job], violations=list)
    ServiceRig(tmp_path / "work", [], Shape(), lambda text: None)._recover(cluster, watch, 0.0)
    assert answers == []


def test_a_job_that_no_client_submitted_is_found(tmp_path: Path) -> None:
    cluster: Any = SimpleNamespace(
        problem=lambda: "", dispatchers=[Node("a", True)], states=lambda node: {"stranger": "RUNNING"}
    )
    watch: Any = SimpleNamespace(jobs=[], violations=list)
    rig = ServiceRig(tmp_path / "work", [], Shape(), lambda text: None)
    with pytest.raises(Violation, match="a shows jobs that no client submitted"):
        rig._recover(cluster, watch, 0.0)


@pytest.mark.parametrize("spared", [True, False])
def test_an_operation_can_only_fail_or_be_lost_if_the_fault_hit_its_job(
    job: Victim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spared: bool
) -> None:
    monkeypatch.setattr(rig_module, "inject", lambda *rest: Hit("hit", None if spared else job))
    monkeypatch.setattr(ServiceRig, "_recover", lambda *rest: 1.0)
    rig = ServiceRig(tmp_path / "work", [], Shape(), lambda text: None)
    cluster: Any = SimpleNamespace(await_leader=lambda patience_s: None, attempt=lambda job: 1)

    def step(done: Done) -> Outcome:
        clients: Any = SimpleNamespace(running=lambda: [job], act=lambda action, dice: done)
        watch: Any = None
        return rig._step(cluster, clients, watch, Step(0, "worker-kill", "rescale", 0, 1), 0)

    job.width = 3
    step(Done("rescale", "rescaled", job))
    assert job.width == 3
    failed = Done("rescale", "rescale failed", job, "no slots")
    if spared:
        with pytest.raises(
            Violation, match="worker-kill: hit, and rescale failed although nothing hit the job: no slots"
        ):
            step(failed)
    else:
        assert step(failed).failure == "no slots"


# -- cancelled jobs ----------------------------------------------------------------------------------------------------


class WatchedCluster:
    def __init__(self) -> None:
        self.led = True
        self.running = [1]

    def leader(self) -> Any:
        return self if self.led else None

    def runs(self, job: Victim) -> list[int]:
        return self.running


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(watch_module.time, "monotonic", lambda: clock.now)
    return clock


def cancelled_watch(cluster: WatchedCluster, job: Victim, clock: Any) -> Watch:
    watch = Watch(cluster)  # type: ignore[arg-type]
    job.cancelled_at = clock.now
    watch.jobs.append(job)
    watch.look()
    return watch


def test_a_cancelled_job_that_still_runs_when_its_time_is_over_is_found(job: Victim, clock: Any) -> None:
    watch = cancelled_watch(WatchedCluster(), job, clock)
    clock.now += 14
    watch.look()
    assert watch.violations() == []
    clock.now += 2
    watch.look()
    assert watch.violations() == [f"job {job.id}: attempt 1 still runs, more than 10 s after the cancellation"]


def test_a_cancelled_job_that_ended_in_time_is_not_reported(job: Victim, clock: Any) -> None:
    cluster = WatchedCluster()
    watch = cancelled_watch(cluster, job, clock)
    cluster.running = []
    clock.now += 16
    watch.look()
    assert job.watched
    assert watch.violations() == []


def test_a_cancelled_job_has_more_time_only_while_no_dispatcher_leads(job: Victim, clock: Any) -> None:
    cluster = WatchedCluster()
    watch = cancelled_watch(cluster, job, clock)
    cluster.led = False
    clock.now += 16
    watch.look()
    cluster.led = True
    clock.now += 1
    watch.look()
    assert not job.watched
    clock.now += 16
    watch.look()
    assert watch.violations() != []


# -- the run as a whole ------------------------------------------------------------------------------------------------


def test_actions_that_mostly_fail_are_reported_as_blindness() -> None:
    outcomes = [
        Outcome(each, "dispatcher-kill", "", 1.0, action="stop", failure="no" * (each < 2)) for each in range(3)
    ]
    assert blind(outcomes) == ["stop: 2 of 3 failed; the rig is blind"]


def test_a_service_whose_faults_mostly_miss_ends_with_a_violation(tmp_path: Path) -> None:
    rig = ServiceRig(tmp_path / "work", [], Shape(), lambda text: None)
    rig.progress.outcomes = [Outcome(each, "worker-kill", "", 1.0, missed=True) for each in range(3)]
    assert rig.run()
    assert rig.progress.violations == ["worker-kill: 3 of 3 faults found no target; the rig is blind"]


def test_a_run_without_the_faults_that_the_host_prevents_does_not_look_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert left_out(3, mount=True) == []
    lacks = left_out(0, mount=False)
    assert lacks == ["records-read-only", "records-full"]
    progress = Progress("", finished=True)
    chosen = argparse.Namespace(summary=tmp_path / "table", work=tmp_path)

    def end(report: Report) -> int:
        return conclude(report, chosen, Console(width=300), over=True, command="", success="all is well")

    assert end(Report(progress, [], lacks)) == INCOMPLETE
    said = capsys.readouterr().out
    assert "all is well" not in said
    assert "Incomplete: these faults are not possible on this host: records-read-only, records-full." in said
    assert "incomplete, without records-read-only and records-full" in (tmp_path / "table").read_text()
    assert end(Report(progress, [])) == 0


def test_what_clients_did_is_part_of_the_progress(tmp_path: Path) -> None:
    progress = Progress("plan", [Outcome(0, "worker-kill", "", 1.0, action="stop", failure="no")])
    progress.save(tmp_path)
    assert Progress.load(tmp_path, "plan") == progress
    assert json.loads((tmp_path / "progress.json").read_text())["outcomes"][0]["action"] == "stop"
