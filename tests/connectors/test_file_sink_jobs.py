"""A keyed job into files: whatever crashes, every record is in one finished part, and a reader sees only such."""

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
    # In 40 lines an epoch: some parts end in the middle, some go on for epochs.
    "by size": RollingPolicy.default_rolling_policy(part_size=150, rollover_interval=10**9, inactivity_interval=10**9),
    # Of epochs 5 seconds apart.
    "by age": RollingPolicy.default_rolling_policy(rollover_interval=12_000, inactivity_interval=10**9),
}
BEGINNING = 10**12
POINTS = [
    *(f"source.{point}" for point in ("processed", "snapshot", "reported")),
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


class Number(KeyedProcessFunction):
    """`word n` for the nth time a word comes."""

    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value, ctx):
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield f"{value} {n}"


def expected(words):
    return sorted(f"{word} {n + 1}" for word, count in Counter(words).items() for n in range(count))


def leftovers(base, job):
    """A driver that crashed before any checkpoint has left a run of the job that nobody goes on with."""
    return os.path.exists(hidden_directory(base, token_of(job._driver.lineage, "out")))


class Reader:
    """Looks at the directory again and again, as a consumer would. What it has seen must stay as it was."""

    def __init__(self, base):
        self.base = base
        self.seen = {}

    def look(self):
        now = files(self.base)
        for path, data in now.items():
            assert data.endswith(b"\n"), f"{path} was seen half written"
            assert self.seen.setdefault(path, data) == data, f"{path} was changed after it was seen"
        assert self.seen.keys() <= now.keys(), "a file was taken back"


class WatchedHarness(JobHarness):
    """A reader looks at the directory at every point of every epoch."""

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
    """Five seconds pass from one look at it to the next epoch."""
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
    def test_at_any_point_put_every_record_into_one_finished_part(self, base, point, parallelism, policy):
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
    def test_while_the_input_ends(self, base, point, policy):
        with start(base, policy, 2) as job:
            job.push(*WORDS).epochs(40)
            job.crash_at(point)
            job.end()
            job.reader.look()
        assert lines(base) == expected(WORDS)
        assert not os.path.exists(f"{base}/.penstock")

    @pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 3), (3, 1)])
    def test_and_a_restart_at_another_parallelism(self, base, before, after, policy):
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

    def test_of_the_power_at_any_step_to_the_disk(self, base, policy, monkeypatch):
        """Every rename, sync, delete and new directory of the whole job is, in one of the runs, the last thing done.

        The power fails once more soon after, when the new driver may still be recovering.
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
    """Takes each part away as soon as it sees it."""

    def look(self):
        for path, data in files(self.base).items():
            assert path not in self.seen, f"{path} was shown twice"
            self.seen[path] = data
            TAKE(os.path.join(self.base, path))

    def lines(self):
        return sorted(line for data in self.seen.values() for line in data.decode().splitlines())


TAKE = os.unlink
"""Without the power failing over it."""


@pytest.mark.parametrize("policy", ["on checkpoint", "by size"])
def test_the_power_fails_at_any_step_while_a_consumer_takes_the_parts(base, policy, monkeypatch):
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
    """Counts what is done to the disk, and fails when so many steps have been taken, before the next."""

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


def test_a_cancelled_job_shows_what_its_last_checkpoint_holds(base):
    with start(base, "by size", 2) as job:
        job.push(*WORDS[:40]).epochs(20)
        job.push("of no checkpoint").crash_at("level1.snapshot")
        job.epoch()
        job._driver.finish_sinks()
        job._driver.finish_sinks()
        job.reader.look()
    assert lines(base) == expected(WORDS[:40])
    assert not os.path.exists(f"{base}/.penstock")


class TestOlderSavepoints:
    """A job goes back to a savepoint whose open part the first run has finished since."""

    def start(self, base, **options):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
        numbers = env.from_collection(range(20)).uid("s").rebalance().map(lambda n: n).uid("m")
        numbers.sink_to(rows(base, Encoder.simple_string_encoder(), policy=POLICIES["by age"])).uid("out")
        return JobHarness(env, **options).set_clock(BEGINNING)

    @pytest.mark.parametrize("consumed", [False, True])
    @pytest.mark.parametrize("pieces", [1, 2])
    @pytest.mark.parametrize("backend", ["memory", "filesystem"])
    def test_are_refused_for_good_if_the_part_was_finished_since(self, base, tmp_path, backend, pieces, consumed):
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
                pytest.raises(EpochFailed, match=r"\.chunk', a piece of an unfinished part file .* is gone") as refused,
            ):
                second.run(5)
            assert not refused.value.retryable
            assert second.restarts == 0
            assert second._driver.last.parent == b"", "an epoch was decided"
            assert files(base) == before

    def test_go_on_with_a_part_that_is_still_open(self, base, tmp_path):
        with self.start(base) as first:
            first.epoch(5)
            savepoint = first.savepoint(tmp_path / "savepoints")
        with self.start(base, from_savepoint=savepoint, parallelism=3) as second:
            second.crash_at("driver.published")
            second.run(5)
        assert sorted(map(int, lines(base))) == list(range(20))
        assert files(base, hidden=True) == {}


def test_a_fenced_driver_that_commits_late_stops_as_fenced(base):
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


def test_a_record_that_cannot_be_written_names_the_sink(base):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([{1, 2}, object()]).sink_to(rows(base, Encoder.json_lines(), assigner=BASE)).uid("out").name(
        "o"
    )
    with (
        JobHarness(env) as job,
        pytest.raises(UserFunctionFailed, match=r"(?s)'o'.*Cannot convert <obj"),
    ):
        job.run()
