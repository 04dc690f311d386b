"""Sinks that commit concurrently with the tasks of the next epoch: when the driver waits, and how failures surface."""

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
    """Commits an epoch only when `can_commit` is set."""

    concurrent_commit = True

    def __init__(self):
        self.rows = []
        self.steps = []
        self.can_commit = threading.Event()
        self.asked = threading.Event()
        self.refuses = False

    def __getstate__(self):
        return {}

    def create_writer(self, context):
        return Rows()

    def commit(self, commits, context):
        self.asked.set()
        self.can_commit.wait(60)
        if self.refuses:
            self.refuses = False
            raise ConnectionError("connection refused")
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
"""Values that reached the job's map."""


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
        # Commit in a thread, as on Spark.
        harness._driver.executor = harness._driver._committer._executor = ThreadPoolExecutor(1)
        yield harness
        table.can_commit.set()


@pytest.fixture
def aside():
    """Run a function in a separate thread and return its future."""
    with ThreadPoolExecutor(1) as threads:
        yield threads.submit


def published(job):
    return latest(job.storage)[0].id


def test_an_epoch_ends_before_concurrent_commits_are_complete(job, table):
    job.push(1).epoch()
    assert (published(job), table.rows) == (1, [])


def test_the_next_epoch_runs_during_a_commit_and_is_published_after_it(job, table, aside):
    job.push(1).epoch()
    job.push(2)
    epoch = aside(job.epoch)
    assert [SEEN.get(timeout=60), SEEN.get(timeout=60)] == [1, 2]
    assert (published(job), table.rows) == (1, [])
    table.can_commit.set()
    epoch.result(60)
    assert published(job) == 2
    assert table.rows[0] == 1


def test_the_next_epoch_raises_a_commit_failure_before_it_reads_records(job, table):
    table.refuses = True
    job.push(1).epoch()
    table.can_commit.set()
    job._driver._committer._under_way[1].exception(60)
    with pytest.raises(ConnectionError, match="connection refused"):
        job.push(2).epoch()
    assert SEEN.get() == 1
    assert SEEN.empty()


def test_a_commit_failure_stops_the_epoch_in_progress_and_both_are_repeated(job, table, aside):
    table.refuses = True
    job.push(1).epoch()
    job.push(2)
    epoch = aside(job.epoch)
    assert [SEEN.get(timeout=60), SEEN.get(timeout=60)] == [1, 2]
    table.can_commit.set()
    with pytest.raises(ConnectionError, match="connection refused"):
        epoch.result(60)
    assert published(job) == 1
    job._driver.recover()
    assert table.rows == [1]
    job.epoch()
    job.end()
    assert table.rows == [1, 2, "over"]


def test_a_commit_failure_surfaces_without_another_epoch(job, table):
    table.refuses = True
    job.push(1).epoch()
    job._driver.check_commits()
    table.can_commit.set()
    job._driver._committer._under_way[1].exception(60)
    with pytest.raises(ConnectionError, match="connection refused"):
        job._driver.check_commits()


@pytest.mark.parametrize("concurrent", [True, False])
def test_no_epoch_follows_an_uncommitted_one(job, table, concurrent):
    table.concurrent_commit = concurrent
    table.refuses = True
    job.push(1)
    if concurrent:
        job.epoch()
        table.can_commit.set()
    else:
        table.can_commit.set()
        with pytest.raises(ConnectionError):
            job.epoch()
    # A savepoint request raises the error, and the next epoch must raise it as well.
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
def test_operations_that_need_completed_commits_wait(table, tmp_path, what):
    table.can_commit.set()
    # The sink commits only when a caller waits for it.
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
        # Those that recommit the last epoch do so after the first commit is complete.
        assert table.steps.count("committed 1") == (2 if what in ("recover", "close") else 1)


def test_a_sink_gets_no_other_calls_during_a_commit(job, table, aside):
    job.push(1).epoch()
    job.push("poison")
    epoch = aside(job.epoch)
    assert [SEEN.get(timeout=60), SEEN.get(timeout=60)] == [1, "poison"]
    table.can_commit.set()
    with pytest.raises(Exception, match="poison"):
        epoch.result(60)
    job._driver.stop()
    assert table.steps == ["committed 1", "cleaned up 1", "closed"]
