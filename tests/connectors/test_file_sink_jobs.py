"""A keyed job that writes files: after any crash, every record is in one finished part, and readers see only those."""

import functools
import os
from collections import Counter

import pytest
from files_helpers import BASE, files, lines, rows

from penstock.checkpoint.manifest import Fenced
from penstock.common import Encoder, RestartStrategies
from penstock.connectors.files import writer
from penstock.connectors.files.part_files import hidden_directory, token_of
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import RollingPolicy
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver import epochs
from penstock.driver.epoch_errors import EpochFailed, UserFunctionFailed
from penstock.testing import JobHarness, harness
from penstock.testing.harness import SimulatedCrash

WORDS = [f"{'abcdefg'[i * 3 % 7]}{i * i % 31}" for i in range(120)]
POLICIES = {
    "on checkpoint": RollingPolicy.on_checkpoint_rolling_policy(),
    # With 40 lines per epoch, some parts end within an epoch and some span several.
    "by size": RollingPolicy.default_rolling_policy(part_size=150, rollover_interval=10**9, inactivity_interval=10**9),
    # With epochs 5 seconds apart.
    "by age": RollingPolicy.default_rolling_policy(rollover_interval=12_000, inactivity_interval=10**9),
}
BEGINNING = 10**12
POINTS = [
    *(f"source.{point}" for point in ("processed", "snapshot", "reported")),
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


class Number(KeyedProcessFunction):
    """Yields `word n` for the n-th occurrence of a word."""

    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value, ctx):
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield f"{value} {n}"


def expected(words):
    return sorted(f"{word} {n + 1}" for word, count in Counter(words).items() for n in range(count))


def leftovers(base, job):
    """Return whether the job left hidden files; a driver that crashed before any checkpoint leaves another lineage."""
    return os.path.exists(hidden_directory(base, token_of(job._driver.lineage, "out")))


class Reader:
    """Reads the directory repeatedly, like a consumer. Files that it has seen must not change."""

    def __init__(self, base):
        self.base = base
        self.seen = {}

    def look(self):
        now = files(self.base)
        for path, data in now.items():
            assert data.endswith(b"\n"), f"{path} was visible before it was complete"
            assert self.seen.setdefault(path, data) == data, f"{path} changed after it was visible"
        assert self.seen.keys() <= now.keys(), "a visible file disappeared"


class WatchedHarness(JobHarness):
    """Runs the reader at every point of every epoch."""

    def __init__(self, *args, reader, **options):
        self.reader = reader
        super().__init__(*args, **options)

    def _probe(self, point):
        self.reader.look()
        super()._probe(point)


@pytest.fixture
def base(tmp_path):
    return str(tmp_path / "out")


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Advance the clock by five seconds before each epoch."""
    now = [1_000_000.0]

    class Driver(epochs.EpochDriver):
        def run_epoch(self, *args, **options):
            now[0] += 5
            return super().run_epoch(*args, **options)

    monkeypatch.setattr(harness, "EpochDriver", functools.partial(Driver, clock=lambda: now[0]))


def start(base, policy, parallelism, storage=None):
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection([]).uid("words").key_by(lambda word: word).process(Number()).uid("number")
    words.sink_to(rows(base, Encoder.simple_string_encoder(), policy=POLICIES[policy])).uid("out")
    return WatchedHarness(env, parallelism=parallelism, storage=storage, reader=Reader(base))


@pytest.mark.parametrize("policy", POLICIES)
class TestCrashes:
    @pytest.mark.parametrize("parallelism", [1, 2])
    @pytest.mark.parametrize("point", POINTS)
    def test_a_crash_at_any_point_leaves_every_record_in_one_finished_part(self, base, point, parallelism, policy):
        with start(base, policy, parallelism) as job:
            job.push(*WORDS)
            for crashing in (True, False, True):
                if crashing:
                    job.crash_at(point)
                    assert job.epoch(20) is None
                job.epoch(20)
            job.crash_at(point)
            job.epoch(20)
            job.run(20)
            job.reader.look()
        assert lines(base) == expected(WORDS)
        assert not leftovers(base, job)

    @pytest.mark.parametrize("point", POINTS)
    def test_a_crash_while_the_input_ends_loses_nothing(self, base, point, policy):
        with start(base, policy, 2) as job:
            job.push(*WORDS).epochs(40)
            job.crash_at(point)
            job.end()
            job.reader.look()
        assert lines(base) == expected(WORDS)
        assert not os.path.exists(f"{base}/.penstock")

    @pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 3), (3, 1)])
    def test_a_crash_and_a_rescaled_restart_lose_nothing(self, base, before, after, policy):
        with start(base, policy, before) as job:
            job.push(*WORDS[:60]).epochs(20)
            job.push(*WORDS[60:]).crash_at("driver.published")
            job.epoch(20)
            with start(base, policy, after, job.storage) as again:
                again.push(*WORDS[80:])
                again.crash_at("level1.snapshot")
                again.epoch(20)
                again.run(10)
                again.reader.look()
        assert lines(base) == expected(WORDS)
        assert not os.path.exists(f"{base}/.penstock")

    def test_a_power_failure_at_any_disk_operation_loses_nothing(self, base, policy, monkeypatch):
        """Every rename, sync, delete and mkdir of the job is, in one of the runs, the last operation.

        The power fails again soon afterwards, when the new driver can still be recovering.
        """
        monkeypatch.setattr(writer, "_FEW", 2)
        power = Power(monkeypatch)
        runs = 0
        while True:
            where = f"{base}-{runs}"
            power.fails_after = [runs, runs % 5]
            with start(where, policy, 2) as job:
                power.watch = job.reader.look
                job.push(*WORDS)
                for _ in range(3):
                    try:
                        job.run(30)
                        break
                    except SimulatedCrash:
                        job.crash()
                job.reader.look()
            assert lines(where) == expected(WORDS), power.failures
            assert not leftovers(where, job), power.failures
            if power.fails_after:
                break
            runs += 1
        assert runs > 40


class Consumer(Reader):
    """Takes each part away when it becomes visible."""

    def look(self):
        for path, data in files(self.base).items():
            assert path not in self.seen, f"{path} became visible twice"
            self.seen[path] = data
            TAKE(os.path.join(self.base, path))

    def lines(self):
        return sorted(line for data in self.seen.values() for line in data.decode().splitlines())


TAKE = os.unlink
"""Not subject to power failures."""


@pytest.mark.parametrize("policy", ["on checkpoint", "by size"])
def test_a_power_failure_loses_nothing_while_a_consumer_takes_parts(base, policy, monkeypatch):
    power = Power(monkeypatch)
    runs = 0
    while True:
        where = f"{base}-{runs}"
        power.fails_after = [runs, runs % 3]
        with start(where, policy, 2) as job:
            job.reader = consumer = Consumer(where)
            power.watch = consumer.look
            job.push(*WORDS[:60])
            for _ in range(3):
                try:
                    job.run(30)
                    break
                except SimulatedCrash:
                    job.crash()
            consumer.look()
        assert consumer.lines() == expected(WORDS[:60]), power.failures
        if power.fails_after:
            break
        runs += 1
    assert runs > 20


class Power:
    """Counts disk operations, and fails before the operation after the given number of them."""

    def __init__(self, monkeypatch):
        self.fails_after = []
        self.failures = []
        self.watch = lambda: None
        for name in ("rename", "unlink", "fsync", "mkdir", "rmdir"):
            monkeypatch.setattr(os, name, self.counted(name, getattr(os, name)))

    def counted(self, name, do):
        def step(*args, **options):
            ours = name == "fsync" or "out" in str(args[0])
            if ours and self.fails_after:
                self.watch()
                if self.fails_after[0] == 0:
                    del self.fails_after[0]
                    self.failures.append((name, args))
                    raise SimulatedCrash(name)
                self.fails_after[0] -= 1
            return do(*args, **options)

        return step


def test_a_cancelled_job_commits_its_last_checkpoint(base):
    with start(base, "by size", 2) as job:
        job.push(*WORDS[:40]).epochs(20)
        job.push("in no checkpoint").crash_at("level1.snapshot")
        job.epoch()
        job._driver.finish_sinks()
        job._driver.finish_sinks()
        job.reader.look()
    assert lines(base) == expected(WORDS[:40])
    assert not os.path.exists(f"{base}/.penstock")


class TestOlderSavepoints:
    """A job is restored from a savepoint whose open part was finished afterwards."""

    def start(self, base, **options):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
        numbers = env.from_collection(range(20)).uid("s").rebalance().map(lambda n: n).uid("m")
        numbers.sink_to(rows(base, Encoder.simple_string_encoder(), policy=POLICIES["by age"])).uid("out")
        return JobHarness(env, **options).set_clock(BEGINNING)

    @pytest.mark.parametrize("consumed", [False, True])
    @pytest.mark.parametrize("pieces", [1, 2])
    @pytest.mark.parametrize("backend", ["memory", "filesystem"])
    def test_a_savepoint_is_rejected_permanently_if_its_open_part_was_finished(
        self, base, tmp_path, backend, pieces, consumed
    ):
        with self.start(base, backend=backend) as first:
            for _ in range(pieces):
                first.epoch(5)
            savepoint = first.savepoint(tmp_path / "savepoints")
            first.set_clock(BEGINNING + 20_000)
            first.epoch(0)
        assert len(files(base)) == 1
        if consumed:
            for name in files(base):
                os.remove(os.path.join(base, name))
        before = files(base)
        for _ in range(2):
            with (
                self.start(base, backend=backend, from_savepoint=savepoint) as second,
                pytest.raises(
                    EpochFailed, match=r"\.chunk', a piece of an unfinished part file .* is missing"
                ) as refused,
            ):
                second.run(5)
            assert not refused.value.retryable
            assert second.restarts == 0
            assert second._driver.last.parent == b"", "an epoch was completed"
            assert files(base) == before

    def test_a_savepoint_continues_a_part_that_is_still_open(self, base, tmp_path):
        with self.start(base) as first:
            first.epoch(5)
            savepoint = first.savepoint(tmp_path / "savepoints")
        with self.start(base, from_savepoint=savepoint, parallelism=3) as second:
            second.crash_at("driver.published")
            second.run(5)
        assert sorted(map(int, lines(base))) == list(range(20))
        assert files(base, hidden=True) == {}


def test_a_fenced_driver_that_commits_late_fails_as_fenced(base):
    first = start(base, "on checkpoint", 1)
    first.push(*WORDS[:20])
    published, commit = [], first._driver._committer.commit

    def late(manifest, records):
        with start(base, "on checkpoint", 1, first.storage) as second:
            second.push(*WORDS[20:40])
            second.epoch()
            published.append(second.checkpoint)
            for name in files(base):
                os.remove(os.path.join(base, name))
        commit(manifest, records)

    first._driver._committer.commit = late
    with pytest.raises(Fenced):
        first.epoch()
    assert published == [2]
    assert files(base) == {}


def test_two_sinks_of_one_job_share_a_directory(base):
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection(WORDS).uid("words")
    for uid in ("one", "two"):
        words.map(lambda word, uid=uid: f"{uid} {word}").sink_to(rows(base, Encoder.simple_string_encoder())).uid(uid)
    with JobHarness(env, parallelism=2) as job:
        job.crash_at("driver.published")
        job.epoch(50)
        job.run(50)
    assert lines(base) == sorted(f"{uid} {word}" for uid in ("one", "two") for word in WORDS)
    assert not os.path.exists(f"{base}/.penstock")


def test_an_error_for_an_unwritable_record_names_the_sink(base):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([{1, 2}, object()]).sink_to(rows(base, Encoder.json_lines(), assigner=BASE)).uid("out").name(
        "o"
    )
    with (
        JobHarness(env) as job,
        pytest.raises(UserFunctionFailed, match=r"(?s)'o'.*Cannot convert <obj.*to JSON"),
    ):
        job.run()
