"""A program that fails under a restart strategy resumes from its last checkpoint in the same driver."""

from typing import Any

import pytest

from penstock.common import RestartStrategies, RestartStrategyConfiguration
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors import Sink, SinkWriter
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.epoch_errors import EpochFailed, UserFunctionFailed
from penstock.driver.restarts import WITH_CHECKPOINTS
from penstock.state.driver_storage import DriverStorage
from penstock.state.storage import StorageError
from penstock.testing import JobHarness

FAILURES: list[str] = []
"""The errors of the next calls of `Count`. Global, because every restart creates a new function."""
OPENED: list[str] = []


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        OPENED.append("open")
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value: str, ctx: Any) -> Any:
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        if value == "!" and FAILURES:
            raise ValueError(FAILURES.pop())
        yield value, n


@pytest.fixture(autouse=True)
def nothing_fails() -> None:
    FAILURES.clear()
    OPENED.clear()


def counting(strategy: RestartStrategyConfiguration | None, **options: Any) -> JobHarness:
    env = StreamExecutionEnvironment.get_execution_environment()
    if strategy is not None:
        env.set_restart_strategy(strategy)
    counted = env.from_collection([]).uid("words").key_by(lambda word: word).process(Count()).uid("count")
    return JobHarness(counted, **options).set_clock(0)


THREE_TIMES = RestartStrategies.fixed_delay_restart(3, 1000)


@pytest.mark.parametrize("backend", ["memory", "filesystem"])
def test_a_restart_loses_and_duplicates_nothing(backend: str) -> None:
    with counting(THREE_TIMES, backend=backend) as job:
        job.push("a", "!").epoch()
        FAILURES.extend(["first", "second"])
        job.push("a", "!", "a").epoch()
        job.push("a").epoch()
        assert sorted(job.output) == sorted([("a", 1), ("!", 1), ("a", 2), ("!", 2), ("a", 3), ("a", 4)])
        assert job.states("n") == {"a": 4, "!": 2}
        assert (job.checkpoint, job.restarts, job.metrics().restarts) == (3, 2, 2)
        assert job.metrics()["count.numRecordsIn"] == 6
        assert isinstance(job.last_failure, UserFunctionFailed)
        assert "second" not in str(job.last_failure)
        assert "first" in str(job.last_failure)


def test_the_restart_delay_advances_the_clock_of_the_job() -> None:
    with counting(THREE_TIMES) as job:
        FAILURES.extend(["once", "twice"])
        job.push("!").epoch()
        assert job._driver.last is not None
        assert job._driver.last.timestamp == 2000


def test_a_restart_opens_all_functions_again() -> None:
    with counting(THREE_TIMES, parallelism=2) as job:
        job.push("a", "!").epoch()
        before = len(OPENED)
        FAILURES.append("once")
        job.push("a", "!").epoch()
        assert (before, len(OPENED)) == (2, 4)


def test_the_fourth_failure_of_three_allowed_ends_the_job() -> None:
    with counting(THREE_TIMES) as job:
        FAILURES.extend(["fourth", "third", "second", "first"])
        with pytest.raises(UserFunctionFailed, match="fourth"):
            job.push("!").epoch()
        assert (job.restarts, job.checkpoint, FAILURES) == (3, 0, [])


def test_the_fourth_failure_in_ten_seconds_ends_the_job() -> None:
    with counting(RestartStrategies.failure_rate_restart(3, 10_000, 100)) as job:
        for moment in (0, 4000, 8000, 12_000):
            FAILURES.append("again")
            job.set_clock(moment)
            job.push("!").epoch()
        FAILURES.append("too soon")
        with pytest.raises(UserFunctionFailed, match="too soon"):
            job.push("!").epoch()
        assert job.restarts == 4


def test_restart_delays_grow_with_repeated_failures() -> None:
    with counting(RestartStrategies.exponential_delay_restart(4, 1000, 2.3, 60_000, 0)) as job:
        FAILURES.extend(["no"] * 3)
        job.push("!").epoch()
        assert job._driver.last is not None
        assert job._driver.last.timestamp == 4 + 9 + 21


def test_the_first_failure_ends_a_job_without_a_strategy() -> None:
    with counting(None) as job:
        FAILURES.append("once")
        with pytest.raises(UserFunctionFailed):
            job.push("!").epoch()


def test_a_failure_that_is_not_retryable_ends_the_job() -> None:
    before = counting(None)
    before.push("a").epoch()

    class Changed(Count):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.n = runtime_context.get_state(ValueStateDescriptor("n", str))  # type: ignore[assignment]

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_restart_strategy(THREE_TIMES)
    counted = env.from_collection([]).uid("words").key_by(lambda word: word).process(Changed()).uid("count")
    with before, JobHarness(counted, storage=before.storage) as job:
        job.push("a")
        with pytest.raises(EpochFailed, match="'n'"):
            job.epoch()
        assert job.restarts == 0


class FragileSink(Sink):
    """A sink whose first commit fails halfway."""

    def __init__(self) -> None:
        self.shown: dict[tuple[int, int], bytes] = {}
        self.again: list[bool] = []

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return Line()

    def commit(self, commits: list[Any], context: Any) -> None:
        for commit in commits:
            self.shown[commit.epoch, commit.subtask] = commit.payload
            self.again.append(commit.again)
        if len(self.again) == 1:
            raise OSError("the service is down")


class Line(SinkWriter):
    def __init__(self) -> None:
        self.line = ""

    def write(self, value: Any) -> None:
        self.line += value

    def prepare_commit(self) -> bytes | None:
        line, self.line = self.line, ""
        return line.encode()


def test_a_failed_sink_commits_again() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_restart_strategy(THREE_TIMES)
    sink = FragileSink()
    env.from_collection([]).uid("words").sink_to(sink).uid("lines")
    with JobHarness(env) as job:
        job.push("a", "b").epoch()
        job.push("c").epoch()
        assert job.restarts == 1
        assert sink.shown == {(1, 0): b"ab", (2, 0): b"", (3, 0): b"c"}
        assert sink.again[:2] == [False, True]


class ForgetfulStorage(DriverStorage):
    """Publishes the second manifest, but loses the response."""

    def publish(self, name: str, data: bytes) -> None:
        super().publish(name, data)
        if name.endswith("2") and not self.exists("answered"):
            self.write("answered", b"")
            raise StorageError("The connection was reset.")


def test_a_checkpoint_whose_response_was_lost_still_counts() -> None:
    with counting(THREE_TIMES, storage=ForgetfulStorage()) as job:
        job.push("a").epoch()
        job.push("a").epoch()
        job.push("a").epoch()
        assert (job.restarts, job.states("n")) == (1, {"a": 3})


class TestUnderTheDefaultStrategy:
    def counting(self, **options: Any) -> JobHarness:
        job = counting(None, **options)
        job._execution._strategy = WITH_CHECKPOINTS
        job.crash()
        return job

    def test_an_error_from_the_start_ends_the_job_at_the_fifth_failure(self) -> None:
        with self.counting(parallelism=2) as job:
            FAILURES.extend(["wrong address"] * 9)
            with pytest.raises(UserFunctionFailed, match="wrong address"):
                job.push("a", "!").epoch()
            assert (job.restarts, len(FAILURES)) == (4, 4)

    def test_a_later_error_is_retried_more_often(self) -> None:
        with self.counting() as job:
            job.push("a").epoch()
            FAILURES.extend(["out of order"] * 9)
            job.push("!").epoch()
            assert (job.restarts, job.output) == (9, [("a", 1), ("!", 1)])

    def test_a_resumed_job_counts_as_having_made_progress(self) -> None:
        with counting(None) as first:
            first.push("a").epoch()
            with self.counting(storage=first.storage) as job:
                job.crash()
                FAILURES.extend(["out of order"] * 9)
                job.push("a", "!").epoch()
                assert job.restarts == 9
