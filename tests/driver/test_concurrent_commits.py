"""Sinks that commit beside the tasks of the next epoch: when they are waited for, and what comes of one that fails."""

import json
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.checkpoint.manifest import latest
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import Sink, SinkWriter
from penstock.testing import JobHarness


class Table(Sink):
    """Takes an epoch only when it is let to, by `may_commit`."""

    concurrent_commit = True

    def __init__(self):
        self.rows = []
        self.steps = []
        self.may_commit = threading.Event()
        self.asked = threading.Event()
        self.refuses = False

    def __getstate__(self):
        return {}

    def create_writer(self, context):
        return Rows()

    def commit(self, commits, context):
        self.asked.set()
        self.may_commit.wait(60)
        if self.refuses:
            self.refuses = False
            raise ConnectionError("nobody listens")
        for commit in commits:
            rows = json.loads(commit.payload)
            if rows[0] not in self.rows:
                self.rows += rows
            self.steps.append(f"committed {commit.epoch}")

    def abort(self, commits, context):
        self.steps.append("aborted")

    def clean_up(self, lineage, epoch, states, context):
        self.steps.append(f"cleaned up {epoch}")

    def close(self, context):
        self.steps.append("closed")


class Rows(SinkWriter):
    def begin_epoch(self, epoch):
        self.rows = []

    def write(self, value):
        self.rows.append(value)

    def end_input(self):
        self.rows.append("over")

    def prepare_commit(self):
        return json.dumps(self.rows).encode() if self.rows else None


SEEN = queue.SimpleQueue()
"""What the job's map was given."""


def remember(value):
    SEEN.put(value)
    if value == "poison":
        raise ValueError(value)
    return value


def program(table):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([]).uid("numbers").map(remember).sink_to(table).uid("table")
    return env


@pytest.fixture
def table():
    return Table()


@pytest.fixture
def job(table):
    while not SEEN.empty():
        SEEN.get()
    with JobHarness(program(table)) as harness:
        # As on Spark.
        harness._driver.executor = harness._driver._committer._executor = ThreadPoolExecutor(1)
        yield harness
        table.may_commit.set()


@pytest.fixture
def aside():
    """Runs a function in a thread of its own, and gives its result."""
    with ThreadPoolExecutor(1) as threads:
        yield threads.submit


def published(job):
    return latest(job.storage)[0].id


def test_an_epoch_is_over_before_they_have_committed(job, table):
    job.push(1).epoch()
    assert (published(job), table.rows) == (1, [])


def test_the_next_one_runs_beside_them_and_is_published_behind_them(job, table, aside):
    job.push(1).epoch()
    job.push(2)
    epoch = aside(job.epoch)
    assert [SEEN.get(timeout=60), SEEN.get(timeout=60)] == [1, 2]
    assert (published(job), table.rows) == (1, [])
    table.may_commit.set()
    epoch.result(60)
    assert published(job) == 2
    assert table.rows[0] == 1


def test_a_failure_comes_with_the_next_epoch_and_before_its_records(job, table):
    table.refuses = True
    job.push(1).epoch()
    table.may_commit.set()
    job._driver._committer._under_way[1].exception(60)
    with pytest.raises(ConnectionError, match="nobody listens"):
        job.push(2).epoch()
    assert SEEN.get() == 1
    assert SEEN.empty()


def test_a_failure_beside_the_tasks_stops_their_epoch_and_both_come_again(job, table, aside):
    table.refuses = True
    job.push(1).epoch()
    job.push(2)
    epoch = aside(job.epoch)
    assert [SEEN.get(timeout=60), SEEN.get(timeout=60)] == [1, 2]
    table.may_commit.set()
    with pytest.raises(ConnectionError, match="nobody listens"):
        epoch.result(60)
    assert published(job) == 1
    job._driver.recover()
    assert table.rows == [1]
    job.epoch()
    job.end()
    assert table.rows == [1, 2, "over"]


def test_a_failure_is_heard_of_without_another_epoch(job, table):
    table.refuses = True
    job.push(1).epoch()
    job._driver.check_commits()
    table.may_commit.set()
    job._driver._committer._under_way[1].exception(60)
    with pytest.raises(ConnectionError, match="nobody listens"):
        job._driver.check_commits()


@pytest.mark.parametrize("beside", [True, False])
def test_no_epoch_follows_one_that_was_not_committed(job, table, beside):
    table.concurrent_commit = beside
    table.refuses = True
    job.push(1)
    if beside:
        job.epoch()
        table.may_commit.set()
    else:
        table.may_commit.set()
        with pytest.raises(ConnectionError):
            job.epoch()
    # Who asks for a savepoint hears of it, and the job has to hear of it as well.
    with pytest.raises(ConnectionError), job._driver.pinned_last():
        pass
    job.push(2)
    with pytest.raises(ConnectionError):
        job._driver.run_epoch(None, {})
    assert (published(job), table.rows) == (1, [])
    job._driver.recover()
    job.epoch()
    job.end()
    assert table.rows == [1, 2, "over"]


@pytest.mark.parametrize("what", ["savepoint", "end", "recover", "close", "stop", "finish_sinks"])
def test_whoever_needs_them_done_waits(table, tmp_path, what):
    table.may_commit.set()
    # It commits when it is waited for, and not before.
    with JobHarness(program(table), commits_late=True) as job:
        job.push(1).epoch()
        assert table.rows == []
        if what == "savepoint":
            job.savepoint(str(tmp_path))
        elif what == "end":
            job.end()
        else:
            getattr(job._driver, what)()
        assert table.rows == ([1, "over"] if what == "end" else [1])
        # Those that commit the last one again do it when that is over.
        assert table.steps.count("committed 1") == (2 if what in ("recover", "close") else 1)


def test_nothing_else_is_asked_of_a_sink_meanwhile(job, table, aside):
    job.push(1).epoch()
    job.push("poison")
    epoch = aside(job.epoch)
    assert [SEEN.get(timeout=60), SEEN.get(timeout=60)] == [1, "poison"]
    table.may_commit.set()
    with pytest.raises(Exception, match="poison"):
        epoch.result(60)
    job._driver.stop()
    assert table.steps == ["committed 1", "cleaned up 1", "closed"]
