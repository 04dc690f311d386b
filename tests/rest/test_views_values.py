"""What the answers say about jobs, vertices and results equals what the harness, the plan and the metrics say."""

from __future__ import annotations

import json
import socket

import msgspec
import pytest
from msgspec.structs import replace
from snapshot_jobs import EXECUTOR, WORDS, harness, restarting, vertex_id, view

from penstock.datastream import MapFunction, StreamExecutionEnvironment
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.driver.job_snapshot import JobSnapshot
from penstock.driver.task_states import with_job_state
from penstock.rest.views import VIEWS
from penstock.testing import JobHarness


@pytest.fixture
def job():
    with harness() as running:
        yield running


# -- jobs --------------------------------------------------------------------------------------------------------------


def test_vertices_count_the_records_and_bytes_that_the_metrics_count(job):
    job.push(*WORDS).epoch()
    job.push("z").epoch()
    metrics = job.metrics()
    details = view("", job.snapshot())
    source, last, upper = (vertex["metrics"] for vertex in details["vertices"])
    assert source["read-records"] == source["write-records"] == last["read-records"] == len(WORDS) + 1
    assert last["write-records"] == upper["read-records"] == len(job.output) == metrics["last.numRecordsOut"]
    assert source["write-bytes"] == last["read-bytes"] == metrics["timed.numBytesOut"]
    assert last["write-bytes"] == upper["read-bytes"] == metrics["last.numBytesOut"]
    assert (source["read-bytes"], upper["write-records"]) == (0, 0)


def test_the_plan_has_the_vertices_and_strategies_of_the_execution_plan(job):
    snapshot = job.snapshot()
    nodes = {node["id"]: node for node in view("/plan", snapshot)["plan"]["nodes"]}
    operators = {node["uid"]: node for node in json.loads(snapshot.plan)["nodes"]}
    for uid in ("last", "upper"):
        node = nodes[vertex_id(snapshot, uid)]
        assert [each["ship_strategy"] for each in node["inputs"]] == [
            operators[uid]["predecessors"][0]["ship_strategy"]
        ]
        assert node["parallelism"] == operators[uid]["parallelism"] == 2
    assert [each["id"] for each in nodes[vertex_id(snapshot, "upper")]["inputs"]] == [vertex_id(snapshot, "last")]
    assert nodes[vertex_id(snapshot, "words")]["inputs"] == []
    assert [each["ship_strategy"] for node in nodes.values() for each in node["inputs"]] == ["HASH", "REBALANCE"]
    assert view("", snapshot)["plan"] == view("/plan", snapshot)["plan"]
    assert view("", snapshot)["stream-graph"] == json.loads(snapshot.plan)


def test_times_of_a_job_follow_the_clock(job):
    job.set_clock(5_000_000_000_000)
    job.push("a").epoch()
    with pytest.raises(UserFunctionFailed):
        job.push("fail").epoch()
    details = view("", job.snapshot())
    assert details["state"] == "FAILED"
    assert details["end-time"] == details["timestamps"]["FAILED"] == 5_000_000_000_000
    assert 0 < details["start-time"] <= details["timestamps"]["CREATED"] <= details["timestamps"]["RUNNING"]
    assert details["duration"] == details["end-time"] - details["start-time"]
    assert details["timestamps"]["CANCELED"] == 0


def test_the_overview_counts_subtasks_by_state(job):
    (listed,) = VIEWS["/jobs/overview"]([job.snapshot()], {}, {}).jobs
    assert (listed.tasks["running"], listed.tasks["total"]) == (6, 6)
    assert listed.last_modification == job.snapshot().state_since_ms["RUNNING"]
    with pytest.raises(UserFunctionFailed):
        job.push("fail").epoch()
    details = view("", job.snapshot())
    assert (details["status-counts"]["FAILED"], details["status-counts"]["CANCELED"]) == (1, 5)
    assert [vertex["status"] for vertex in details["vertices"]] == ["FAILED", "CANCELED", "CANCELED"]


def test_a_rescaled_job_shows_its_parallelism_and_keeps_its_totals(job):
    job.push(*WORDS).epoch()
    job.rescale({"last": 4})
    job.push(*WORDS).epoch()
    job.rescale({"last": 1})
    job.push(*WORDS).epoch()
    snapshot = job.snapshot()
    last = next(each for each in view("", snapshot)["vertices"] if each["name"] == "last")
    assert last["parallelism"] == last["tasks"]["RUNNING"] == 1
    assert last["metrics"]["read-records"] == 3 * len(WORDS)
    requirements = view("/resource-requirements", snapshot)["jobVertexResourceRequirements"]
    assert requirements[last["id"]]["parallelism"] == {"lowerBound": 1, "upperBound": 1}


def test_the_configuration_has_no_secrets():
    with harness(**{"spark.my.password": "hunter2", "spark.my.name": "visible"}) as job:
        snapshot = job.snapshot()
        entries = {each["key"]: each["value"] for each in view("/jobmanager/config", snapshot)}
        assert (entries["spark.my.name"], entries["spark.my.password"]) == ("visible", "***")
        assert b"hunter2" not in msgspec.json.encode(snapshot)


def test_a_secret_is_masked_in_every_setting_that_repeats_it():
    with harness(**{"spark.my.password": "hunter2!", "spark.note": "log in with hunter2!"}) as job:
        snapshot = job.snapshot()
    entries = {each["key"]: each["value"] for each in view("/jobmanager/config", snapshot)}
    assert entries["spark.note"] == "log in with ***"
    assert b"hunter2" not in msgspec.json.encode(snapshot)


def test_a_secret_of_the_configuration_appears_in_no_failure():
    with harness(**{"spark.my.password": "hunter2!"}) as job:
        with pytest.raises(UserFunctionFailed):
            job.push("my password is hunter2!").epoch()
        snapshot = job.snapshot()
    assert snapshot.checkpoints.latest_failed is not None
    assert "***" in snapshot.exceptions[-1].message
    assert b"hunter2" not in msgspec.json.encode(snapshot)


# -- results -----------------------------------------------------------------------------------------------------------


def test_accumulators_are_the_counters_of_user_functions(job):
    job.push(*WORDS).epoch()
    snapshot = job.snapshot()
    expected = [{"name": "parse.parsed", "type": "LongCounter", "value": str(job.metrics()["parse.parsed"])}]
    assert expected[0]["value"] == str(len(WORDS))
    assert view("/accumulators", snapshot)["user-task-accumulators"] == expected
    words = vertex_id(snapshot, "words")
    assert view("/vertices/:vertexid/accumulators", snapshot, vertexid=words)["user-accumulators"] == expected
    by_subtask = view("/vertices/:vertexid/subtasks/accumulators", snapshot, vertexid=words)["subtasks"]
    assert sum(int(each["value"]) for subtask in by_subtask for each in subtask["user-accumulators"]) == len(WORDS)
    last = vertex_id(snapshot, "last")
    assert view("/vertices/:vertexid/accumulators", snapshot, vertexid=last)["user-accumulators"] == []


def test_exceptions_name_the_error_its_task_and_its_place_newest_first():
    strategy = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "2",
        "restart-strategy.fixed-delay.delay": "1 s",
    }
    with harness(**strategy) as job:
        job.push("a").epoch()
        with pytest.raises(UserFunctionFailed):
            job.push("fail").epoch()
        snapshot = job.snapshot()
    history = view("/exceptions", snapshot)["exceptionHistory"]
    assert [each["failureLabels"] for each in history["entries"]] == [
        {"attempt": "0", "restart": str(n)} for n in (2, 1, 0)
    ]
    assert not history["truncated"]
    newest = history["entries"][0]
    assert newest["exceptionName"] == "ValueError"
    assert 'raise ValueError("cannot parse this")' in newest["stacktrace"]
    assert newest["endpoint"] == socket.gethostname()
    assert newest["taskName"] == "Source: words -> parse -> Timestamps/Watermarks (1/2)"
    limited = view("/exceptions", snapshot, {"maxExceptions": "1"})["exceptionHistory"]
    assert (limited["entries"], limited["truncated"]) == ([newest], True)
    chosen = view("/exceptions", snapshot, {"failureLabelFilter": "restart:1"})["exceptionHistory"]["entries"]
    assert [each["failureLabels"]["restart"] for each in chosen] == ["1"]
    result = view("/execution-result", snapshot)["job-execution-result"]
    assert result["failure-cause"]["class"] == "ValueError"


class Refusing(MapFunction):
    def map(self, value):
        raise ValueError(f"no\nreason: {value}")


def test_all_tasks_that_fail_in_an_epoch_are_shown():
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("in").rebalance().map(Refusing()).name("refuse").uid("refuse")
    with JobHarness(stream, parallelism=3) as job:
        with pytest.raises(UserFunctionFailed):
            job.push(*range(30)).epoch()
        snapshot = job.snapshot()
    (entry,) = view("/exceptions", snapshot)["exceptionHistory"]["entries"]
    shown = [entry, *entry["concurrentExceptions"]]
    assert [each["exceptionName"] for each in shown] == ["ValueError"] * 3
    assert {each["taskName"] for each in shown} == {f"refuse -> Collect ({number}/3)" for number in (1, 2, 3)}
    assert all("reason: " in each["stacktrace"] for each in shown)


def test_a_job_remembers_its_last_32_exceptions():
    strategy = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "40"}
    with harness(**strategy) as job:
        with pytest.raises(UserFunctionFailed):
            job.push("fail").epoch()
        snapshot = job.snapshot()
    assert [each.restart for each in snapshot.exceptions] == list(range(9, 41))
    assert snapshot.exceptions_dropped == 9
    assert view("/exceptions", snapshot, {"maxExceptions": "100"})["exceptionHistory"]["truncated"]


def test_a_restarting_job_reports_its_restart():
    snapshot = restarting()
    assert snapshot.state == "RESTARTING"
    assert "cannot parse this" in snapshot.reason
    assert view("/execution-result", snapshot) == {"status": {"id": "IN_PROGRESS"}, "job-execution-result": None}
    (restarts,) = view("/metrics", snapshot, {"get": "numRestarts"})
    assert restarts == {"id": "numRestarts", "value": str(snapshot.restarts)}


# -- vertices and subtasks ---------------------------------------------------------------------------------------------


def test_subtasks_add_up_to_their_vertex_and_run_where_the_tasks_ran(job):
    job.push(*WORDS).epoch()
    snapshot = job.snapshot()
    found = view("/vertices/:vertexid", snapshot, vertexid=vertex_id(snapshot, "last"))
    counts = job.metrics().subtasks("last.numRecordsIn")
    assert {each["subtask"]: each["metrics"]["read-records"] for each in found["subtasks"]} == counts
    assert {each["endpoint"] for each in found["subtasks"]} == {socket.gethostname()}
    read = found["aggregated"]["metrics"]["read-records"]
    assert (read["sum"], read["min"], read["max"]) == (len(WORDS), min(counts.values()), max(counts.values()))
    (host,) = view("/vertices/:vertexid/taskmanagers", snapshot, vertexid=found["id"])["taskmanagers"]
    assert host["metrics"]["read-records"] == len(WORDS)
    assert host["status-counts"]["RUNNING"] == 2


def test_subtasks_are_grouped_by_executor_and_show_its_address(job):
    job.push(*WORDS).epoch()
    snapshot = job.snapshot()
    placed = [
        replace(
            vertex,
            subtasks=[replace(each, executor=str(number)) for number, each in enumerate(vertex.subtasks)],
        )
        for vertex in snapshot.vertices
    ]
    snapshot = replace(snapshot, vertices=placed, executors=[EXECUTOR], application="app-1")
    last = vertex_id(snapshot, "last")
    groups = view("/vertices/:vertexid/taskmanagers", snapshot, vertexid=last)["taskmanagers"]
    assert [each["taskmanager-id"] for each in groups] == ["app-1-0", "app-1-1"]
    # Executor 1 is gone, so only its host is known.
    assert [each["endpoint"] for each in groups] == [EXECUTOR.address, socket.gethostname()]


def test_watermarks_are_those_of_the_last_checkpoint(job):
    job.push(*WORDS).epoch()
    snapshot = job.snapshot()
    found = view("/vertices/:vertexid/watermarks", snapshot, vertexid=vertex_id(snapshot, "last"))
    assert [each["id"] for each in found] == ["0.currentInputWatermark", "1.currentInputWatermark"]
    assert min(int(each["value"]) for each in found) == job.watermark_of("last") == 2999


def test_a_job_before_its_first_watermark_reports_the_lowest_one(job):
    snapshot = job.snapshot()
    found = view("/vertices/:vertexid/watermarks", snapshot, vertexid=vertex_id(snapshot, "last"))
    assert {each["value"] for each in found} == {str(-(2**63))}


def test_attempts_have_the_number_of_restarts():
    strategy = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1"}
    with harness(**strategy) as job:
        with pytest.raises(UserFunctionFailed):
            job.push("fail").epoch()
        snapshot = job.snapshot()
    path = "/vertices/:vertexid/subtasks/:subtaskindex/attempts/:attempt"
    found = view(path, snapshot, vertexid=vertex_id(snapshot, "words"), subtaskindex="0", attempt="1")
    assert (found["attempt"], found["status"]) == (1, "FAILED")


def test_a_job_that_failed_before_it_ran_shows_the_reason():
    snapshot = JobSnapshot(id="a" * 32, name="job", state="FAILED", reason="no such module", started_ms=5, ended_ms=9)
    (entry,) = view("/exceptions", snapshot)["exceptionHistory"]["entries"]
    assert (entry["stacktrace"], entry["timestamp"], entry["taskName"]) == ("no such module", 9, "")
    result = view("/execution-result", snapshot)["job-execution-result"]
    assert (result["failure-cause"]["stack-trace"], result["net-runtime"]) == ("no such module", 4)


def test_tasks_spend_their_time_in_one_state_after_the_other():
    since = {"CREATED": 1000, "INITIALIZING": 1000, "RUNNING": 1500, "FINISHED": 9500}
    with harness() as job:
        snapshot = replace(job.snapshot(), state="FINISHED", tasks_since_ms=since)
    found = view("/vertices/:vertexid", snapshot, vertexid=snapshot.vertices[0].id)
    assert found["subtasks"][0]["status-duration"] == {
        "CREATED": 0,
        "SCHEDULED": -1,
        "DEPLOYING": -1,
        "INITIALIZING": 500,
        "RUNNING": 8000,
    }
    assert (found["subtasks"][0]["start-time"], found["subtasks"][0]["end-time"]) == (1500, 9500)
    times = view("/vertices/:vertexid/subtasktimes", snapshot, vertexid=snapshot.vertices[0].id)["subtasks"][0]
    assert (times["timestamps"]["INITIALIZING"], times["timestamps"]["FAILED"], times["duration"]) == (1000, 0, 8000)


@pytest.mark.parametrize(
    ("state", "tasks"),
    [
        ("CANCELED", "CANCELED"),
        ("CANCELLING", "CANCELING"),
        ("FAILED", "CANCELED"),
        ("RESTARTING", "CANCELED"),
        ("FINISHED", "FINISHED"),
        ("INITIALIZING", "CREATED"),
    ],
)
def test_tasks_of_a_job_whose_process_is_gone_follow_the_state_of_the_job(state, tasks):
    with harness() as job:
        job.push(*WORDS).epoch()
        snapshot = with_job_state(job.snapshot(), state, since_ms=7_000_000_000_000)
    details = view("", snapshot)
    assert (details["state"], details["timestamps"][state]) == (state, 7_000_000_000_000)
    assert details["status-counts"] == dict.fromkeys(details["status-counts"], 0) | {tasks: 6}
    assert {vertex["status"] for vertex in details["vertices"]} == {tasks}
    assert details["vertices"][0]["metrics"]["read-records"] == len(WORDS)
    assert not details["isStoppable"]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_task_that_does_not_run_has_no_rates(recorded):
    with harness() as job:
        job.set_pace(0.01, "last")
        job.push(*WORDS).epoch()
        running = job.snapshot()
        job.cancel()
        ended = with_job_state(running, "CANCELED", 1) if recorded else job.snapshot()
    wanted = "busyTimeMsPerSecond,backPressuredTimeMsPerSecond,numRecordsInPerSecond,numBytesOutPerSecond,numRecordsIn"
    path, last = "/vertices/:vertexid/subtasks/metrics", vertex_id(running, "last")

    def sums(snapshot):
        found = view(path, snapshot, {"get": wanted, "agg": "sum"}, vertexid=last)
        return {each["id"]: each["sum"] for each in found}

    before, after = sums(running), sums(ended)
    assert before["numRecordsInPerSecond"] > 0
    assert before["busyTimeMsPerSecond"] > 0
    assert after == dict.fromkeys(before, 0) | {"numRecordsIn": before["numRecordsIn"]}


def test_the_task_that_failed_stays_failed_when_the_records_say_so_too():
    with harness() as job:
        with pytest.raises(UserFunctionFailed):
            job.push("fail").epoch()
        snapshot = job.snapshot()
    assert with_job_state(snapshot, "FAILED", 1) == snapshot
    again = with_job_state(snapshot, "RESTARTING", 7_000_000_000_000)
    assert view("", again)["status-counts"]["FAILED"] == 1
