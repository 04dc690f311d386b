"""The driver's side of an epoch, with a scripted engine: attempts, manifests, sinks, bases."""

import pytest
from epoch_jobs import GROUPS, STATES, Clock, CommitLog, program

from penstock.checkpoint.manifest import Fenced, latest, manifest_name
from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.epoch_errors import EngineLost, EpochFailed, UserFunctionFailed
from penstock.driver.epoch_settings import Settings
from penstock.driver.epochs import EpochDriver
from penstock.driver.memory_limit import StateTooLarge
from penstock.driver.slots import Slots, SlotSettings
from penstock.errors import PenstockError
from penstock.graph.builder import build
from penstock.runtime.report import DeltaHandle, OperatorReport, Report, encode_report
from penstock.runtime.rows import FAILURE, REPORT, Failure, encode_struct
from penstock.state.access import StateAccess
from penstock.state.backends import Backend
from penstock.state.blocks import blocks_for
from penstock.state.descriptors import ValueStateDescriptor
from penstock.state.driver_storage import DriverStorage
from penstock.state.engines.memory import MemoryEngine
from penstock.state.keys import encode_key
from penstock.state.overlay import Nothing, Overlay
from penstock.state.replica import Replicas


class Engine:
    """Runs every epoch as scripted: `plan` holds replacements for the next attempts."""

    def __init__(self):
        self.plan = []
        self.attempts = []
        self.records = 10
        self.committable = None
        self.values = {}

    def execute(self, parameters):
        self.attempts.append(parameters)
        if self.plan:
            return self.plan.pop(0)(parameters)
        return self.succeed(parameters)

    def succeed(self, parameters):
        number = parameters.number
        count = OperatorReport(uid="count", states=STATES, deltas=deltas_of(number, self.values))
        out = OperatorReport(uid="out", states={}, deltas=[], committable=self.committable)
        operators = [count] if self.committable is None else [count, out]
        return [
            (REPORT, encode_report(report(0, number, records_in=self.records))),
            (REPORT, encode_report(report(1, number, operators=operators))),
        ]


def report(chain, epoch, records_in=0, operators=()):
    return Report(
        chain=chain, subtask=0, epoch=epoch, records_in=records_in, sent=[], received=[], operators=list(operators)
    )


def deltas_of(epoch, values):
    """Return the deltas of a task that set these keys to these values."""
    overlay = Overlay(GROUPS)
    state = overlay.register(ValueStateDescriptor("n", int))
    overlay.begin(epoch, Nothing())
    for key, value in values.items():
        overlay.key = encode_key(key)
        state.update(value)
    changes = overlay.changes()
    if not changes:
        return []
    written = StateAccess(None, None, None, 0).write_delta(epoch, changes, blocks_for(1, GROUPS))
    return [
        DeltaHandle(
            name=written.name, size=written.size, entries=written.entries, blocks=written.blocks, inline=written.inline
        )
    ]


def lost(parameters):
    raise EngineLost("executor 2 is gone")


def half_lost(parameters):
    """Lose the executor after one report."""
    yield REPORT, encode_report(report(0, parameters.number, records_in=7))
    raise EngineLost("executor 2 is gone")


def fails(error, from_user):
    failure = Failure(
        operator="count them",
        uid="count",
        subtask=3,
        error=error,
        traceback='  File "job.py", line 1, in f',
        from_user=from_user,
    )
    return lambda parameters: [(FAILURE, encode_struct(failure))]


def silent(parameters):
    return []


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def storage():
    return DriverStorage()


@pytest.fixture
def start(engine, storage):
    """Start a driver on the storage, as a restarted process would."""

    def start(
        graph=None, sink=None, backend="filesystem", clock=None, monotonic=None, probe=lambda point: None, **settings
    ):
        return EpochDriver(
            graph or program(),
            storage,
            Settings(backend=Backend(name=backend), **settings),
            engine.execute,
            {"out": sink or CommitLog()},
            probe,
            clock=clock or Clock(),
            monotonic=monotonic or Clock(),
        )

    return start


class TestABatch:
    """One epoch is the entire job."""

    class Killed(BaseException):
        pass

    def killed_at(self, point):
        def probe(reached):
            if reached == point:
                raise self.Killed

        return probe

    @pytest.fixture
    def batch(self, engine, storage):
        """Start a driver that runs a batch. Its manifest outlives it, or not."""
        engine.committable = b"page"

        def start(stores_manifests, sink, probe=lambda point: None):
            settings = Settings(backend=Backend(name="filesystem"))
            return EpochDriver(
                program(), storage, settings, engine.execute, {"out": sink}, probe,
                clock=Clock(), monotonic=Clock(), single_epoch=True, stores_manifests=stores_manifests,
            )  # fmt: skip

        return start

    def test_a_batch_that_died_before_its_commit_is_committed_by_the_next_driver(self, batch, engine):
        dead, sink = CommitLog(), CommitLog()
        with pytest.raises(self.Killed):
            batch(True, dead, self.killed_at("published")).run_epoch(None, {}, ends_input=True)
        last = batch(True, sink).recover()
        assert last is not None
        assert last.ended
        assert (dead.committed, sink.committed, len(engine.attempts)) == ([], [(0, b"page")], 1)
        # Attempts of other drivers at this epoch might have left something behind.
        assert sink.cleaned_up == [1]

    def test_a_batch_that_died_before_its_manifest_runs_again(self, batch):
        sink = CommitLog()
        with pytest.raises(self.Killed):
            batch(True, CommitLog(), self.killed_at("collected")).run_epoch(None, {}, ends_input=True)
        driver = batch(True, sink)
        assert driver.recover() is None
        driver.run_epoch(None, {}, ends_input=True)
        assert sink.committed == [(0, b"page")]

    def test_a_driver_that_was_presumed_dead_does_not_commit_a_batch_twice(self, batch):
        slow_sink = CommitLog()
        slow, fast = batch(True, slow_sink), batch(True, CommitLog())
        for driver in (slow, fast):
            assert driver.recover() is None
        fast.run_epoch(None, {}, ends_input=True)
        with pytest.raises(Fenced):
            slow.run_epoch(None, {}, ends_input=True)
        assert slow_sink.committed == []

    def test_a_batch_that_is_run_by_hand_stores_no_manifest(self, batch, storage):
        batch(False, CommitLog()).run_epoch(None, {}, ends_input=True)
        assert storage.list("manifests/") == []


class TestAnEpoch:
    def test_an_epoch_goes_from_trigger_to_committed_sinks_in_order(self, start, engine, storage):
        passed = []

        class Watching(CommitLog):
            def commit(self, commits, context):
                passed.append(f"commit with {len(storage.list('manifests/'))} manifests")

        engine.committable = b"page"
        start(sink=Watching(), probe=passed.append).run_epoch(0, {})
        assert passed == ["triggered", "collected", "published", "commit with 1 manifests", "committed"]

    def test_an_epoch_publishes_a_manifest_with_records_deltas_and_sparks_log(self, start, engine, storage):
        engine.values = {"a": 1}
        driver = start()
        driver.run_epoch(7, {"offsets/7": b"v1"})
        manifest, version = latest(storage)
        assert (manifest.id, manifest.batch, manifest.parent, manifest.ended) == (1, 7, b"", False)
        assert manifest.records == {"numbers": 10}
        assert manifest.spark_log == {"offsets/7": b"v1"}
        assert manifest.operators["count"].states == STATES
        assert manifest.operators["count"].deltas == deltas_of(1, {"a": 1})
        assert (driver.last, driver.version) == (manifest, version)

    def test_an_epoch_builds_on_the_previous_one(self, start, engine, storage):
        driver = start()
        versions = []
        for _ in range(3):
            driver.run_epoch(None, {})
            versions.append(driver.version)
        assert [parameters.wanted for parameters in engine.attempts] == [None, *versions[:2]]
        manifest, _ = latest(storage)
        assert (manifest.id, manifest.parent, manifest.records) == (3, versions[1].digest, {"numbers": 30})

    def test_the_last_epoch_marks_the_end_of_the_input(self, start, engine, storage):
        start().run_epoch(None, {}, ends_input=True)
        assert engine.attempts[0].ends_input
        assert latest(storage)[0].ended

    def test_an_epoch_has_statistics(self, start, engine):
        clock = Clock()

        def slow(parameters):
            clock.now += 2.5
            return engine.succeed(parameters)

        engine.plan, engine.values = [slow], {"a": 1, "b": 2}
        statistics = start(monotonic=clock).run_epoch(None, {})
        assert (statistics.number, statistics.records, statistics.duration_ms) == (1, 10, 2500)
        (delta,) = deltas_of(1, engine.values)
        assert (statistics.delta_entries, statistics.delta_bytes, statistics.state_bytes) == (2, delta.size, delta.size)


class TestAttempts:
    @pytest.mark.parametrize("what", [lost, half_lost, silent, fails("disk full", from_user=False)])
    def test_an_epoch_that_the_engine_lost_is_retried(self, start, engine, storage, what):
        engine.plan = [what, what]
        start(retries=3).run_epoch(None, {})
        assert [parameters.number for parameters in engine.attempts] == [1, 1, 1]
        # Abandoned attempts are not counted.
        assert latest(storage)[0].records == {"numbers": 10}

    def test_retries_are_limited(self, start, engine, storage):
        engine.plan = [lost] * 10
        with pytest.raises(EpochFailed, match="Epoch 1 was declined: executor 2 is gone"):
            start(retries=2).run_epoch(None, {})
        assert len(engine.attempts) == 3
        assert latest(storage) is None

    def test_a_user_failure_is_not_retried(self, start, engine, storage):
        engine.plan = [fails("ValueError: no", from_user=True)]
        with pytest.raises(UserFunctionFailed) as caught:
            start(retries=3).run_epoch(None, {})
        assert str(caught.value) == (
            "Operator 'count them' (uid 'count') failed in subtask 3 of epoch 1:\n"
            '  File "job.py", line 1, in f\n'
            "ValueError: no"
        )
        assert len(engine.attempts) == 1
        assert latest(storage) is None

    def test_a_missing_acknowledgement_is_named(self, start, engine):
        engine.plan = [silent] * 2
        with pytest.raises(EpochFailed, match="Epoch 1 was declined: no acknowledgement from chain 1 subtask 0"):
            start(retries=1).run_epoch(None, {})

    def test_an_epoch_that_takes_too_long_expires(self, start, engine, storage):
        clock = Clock()

        def slow(parameters):
            clock.now += 61
            return engine.succeed(parameters)

        engine.plan = [slow] * 2
        with pytest.raises(
            EpochFailed, match="expired: it took 61000 ms, more than the checkpoint timeout of 60000 ms"
        ):
            start(retries=1, monotonic=clock, timeout_ms=60_000).run_epoch(None, {})
        assert latest(storage) is None

    def test_a_failed_epoch_can_be_run_again(self, start, engine, storage):
        driver = start(retries=0)
        engine.plan = [lost]
        with pytest.raises(EpochFailed):
            driver.run_epoch(None, {})
        assert driver.run_epoch(None, {}).number == 1


class TestTwoDrivers:
    def test_a_driver_presumed_dead_is_fenced_and_touches_no_sink(self, start, engine, storage):
        engine.committable = b"page"
        old_sink, new_sink = CommitLog(), CommitLog()
        old, new = start(sink=old_sink), start(sink=new_sink)
        new.run_epoch(None, {})
        with pytest.raises(Fenced, match="already published"):
            old.run_epoch(None, {})
        assert (old_sink.committed, new_sink.committed) == ([], [(0, b"page")])
        assert latest(storage)[0].token == new.token != old.token


class TestRecovery:
    def test_recovery_continues_from_the_last_manifest(self, start, engine, storage):
        first = start()
        first.run_epoch(None, {})
        first.run_epoch(None, {})
        second = start()
        assert second.recover() == first.last
        assert (second.version, second.lineage) == (first.version, first.lineage)
        assert second.run_epoch(None, {}).number == 3

    def test_recovery_without_a_manifest_is_a_fresh_start(self, start):
        driver = start()
        assert driver.recover() is None
        assert driver.run_epoch(None, {}).number == 1

    def test_recovery_commits_the_sinks_of_the_last_manifest_again(self, start, engine):
        driver = start()
        for page in (b"first", b"second"):
            engine.committable = page
            driver.run_epoch(None, {})
        sink = CommitLog()
        start(sink=sink).recover()
        assert sink.committed == [(0, b"second")]

    def test_recovery_commits_sinks_that_a_driver_died_before_committing(self, start, engine):
        def die(point):
            if point == "published":
                raise KeyboardInterrupt

        engine.committable = b"page"
        sink = CommitLog()
        with pytest.raises(KeyboardInterrupt):
            start(sink=sink, probe=die).run_epoch(None, {})
        assert sink.committed == []
        start(sink=sink).recover()
        assert sink.committed == [(0, b"page")]

    def test_output_of_a_non_durable_sink_is_committed_once_and_not_in_the_manifest(self, start, engine, storage):
        engine.committable = b"a line on the console"
        console = CommitLog(durable=False)
        start(sink=console).run_epoch(None, {})
        assert console.committed == [(0, b"a line on the console")]
        assert latest(storage)[0].committables == []
        assert b"a line on the console" not in storage.read(manifest_name(1))
        start(sink=console).recover()
        assert len(console.committed) == 1

    def test_recovery_refuses_state_of_an_operator_that_the_program_does_not_have(self, start, engine):
        start().run_epoch(None, {})
        message = r"holds state of operator 'count them' \(uid 'count'\), which this program does not have. Restore the"
        with pytest.raises(PenstockError, match=message):
            start(graph=program(uid="renamed")).recover()

    def test_recovery_refuses_a_changed_number_of_key_groups(self, start, engine):
        start().run_epoch(None, {})
        message = r"'count them' \(uid 'count'\) in 16 key groups, but this program has 32.*set_max_parallelism\(16\)"
        with pytest.raises(PenstockError, match=message):
            start(graph=program(groups=32)).recover()

    def test_recovery_refuses_output_of_a_sink_that_the_program_does_not_have(self, start, engine):
        engine.committable = b"page"
        start().run_epoch(None, {})
        driver = start()
        driver.sinks.clear()
        with pytest.raises(PenstockError, match="holds output of sink 'out', which this program does not have"):
            driver.recover()


def committed_state(driver, keys):
    """Return the values of these keys in a new replica."""
    history = ManifestChain(driver.storage, driver.version)
    replicas = Replicas("count", driver.last.blocks["count"], history, lambda uid, groups: MemoryEngine())
    overlay = Overlay(GROUPS)
    state = overlay.register(ValueStateDescriptor("n", int))
    overlay.begin(0, replicas)
    values = {}
    for key in keys:
        overlay.key = encode_key(key)
        values[key] = state.value()
    replicas.close()
    return values


def bytes_held(storage):
    return sum(
        len(storage.read(name)) for prefix in ("manifests/", "bases/", "deltas/") for name in storage.list(prefix)
    )


class TestTheMemoryBackend:
    def test_the_memory_backend_holds_state_and_not_its_history(self, start, engine, storage):
        """2,000 epochs over 50 keys: the driver's memory does not grow with the number of epochs."""
        driver = start(backend="memory", merge_bytes=64 * 1024)
        model, peaks, peak = {}, [], 0
        for epoch in range(2000):
            # Ten of the fifty keys, different ones each time.
            engine.values = {f"key {(epoch * 7 + each) % 50}": epoch + each for each in range(10)}
            model.update(engine.values)
            driver.run_epoch(None, {})
            peak = max(peak, bytes_held(storage)) if epoch % 20 == 0 else peak
            if epoch % 500 == 499:
                peaks.append(peak)
                peak = 0
        assert max(peaks[1:]) <= 1.1 * peaks[0]
        assert bytes_held(storage) < 512 * 1024
        assert len(driver.coordinator.recent) <= 100
        assert committed_state(driver, model) == model
        assert len(model) == 50

    def test_merging_applies_deletions(self, start, engine, storage):
        driver = start(backend="memory", merge_bytes=0)
        for values in ({"a": 1, "b": 2}, {"a": None}, {"b": 3}, {}):
            engine.values = values
            driver.run_epoch(None, {})
            assert committed_state(driver, ["a", "b"])["a"] == (1 if values.get("a") else None)
        assert committed_state(driver, ["a", "b"]) == {"a": None, "b": 3}

    def test_manifests_older_than_the_bases_are_removed(self, start, engine, storage):
        driver = start(backend="memory", merge_bytes=0)
        for number in range(10):
            engine.values = {"a": number, f"key {number}": number}
            driver.run_epoch(None, {})
        assert len(storage.list("manifests/")) <= 3
        assert committed_state(driver, ["a", "key 3"]) == {"a": 9, "key 3": 3}
        # A key whose block was never written is read without a walk to the beginning.
        assert set(committed_state(driver, [f"never {number}" for number in range(50)]).values()) == {None}

    def test_small_deltas_are_merged_before_there_are_too_many_to_walk(self, start, engine, storage):
        driver = start(backend="memory", merge_bytes=1 << 30)
        for _ in range(600):
            driver.run_epoch(None, {})
        assert len(storage.list("manifests/")) < 510

    def test_a_job_without_state_keeps_only_the_last_manifests(self, engine, storage):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([]).uid("numbers").print().uid("out")
        graph = build(env._graph, parallelism=1)

        def rows(parameters):
            return [(REPORT, encode_report(report(0, parameters.number, records_in=1)))]

        driver = EpochDriver(graph, storage, Settings(), rows, {"out": CommitLog()})
        for _ in range(20):
            driver.run_epoch(None, {})
        assert storage.list("manifests/") == [manifest_name(19), manifest_name(20)]

    def test_manifests_that_sparks_log_needs_are_kept(self, start, engine, storage):
        driver = start(backend="memory", merge_bytes=0)
        for number in range(1, 11):
            engine.values = {"a": number}
            driver.run_epoch(number, {}, log_index={"sources/0/9.compact": 3, f"offsets/{number}": number})
        kept = {int(name[-3:]) for name in storage.list("manifests/")}
        assert {3, 9, 10} <= kept
        assert not {1, 2, 4, 5} & kept

    def test_state_survives_a_driver_that_dies_right_after_merging(self, start, engine, storage):
        for number in range(6):
            driver = start(backend="memory", merge_bytes=0)
            driver.recover()
            engine.values = {"a": number, f"key {number}": number}
            driver.run_epoch(None, {})
        assert committed_state(driver, ["a", "key 0", "key 5"]) == {"a": 5, "key 0": 0, "key 5": 5}

    def test_state_beyond_the_limit_is_refused_with_its_name_and_a_fix(self, start, engine):
        driver = start(backend="memory", memory_limit=20_000)
        engine.values = {f"key {number}": number for number in range(100)}
        driver.run_epoch(None, {})
        engine.values = {f"key {number}": number for number in range(1000)}
        with pytest.raises(StateTooLarge) as caught:
            driver.run_epoch(None, {})
        text = str(caught.value)
        assert text.startswith("State 'n' of operator 'count them' (uid 'count') is too large for the Memory backend")
        assert "state.backend.memory.max-state-size is 20,000" in text
        size = int(text.split(" takes ")[1].split(" bytes")[0].replace(",", ""))
        assert 20_000 < size < 100_000
        assert caught.value.fix == (
            "Store checkpoints in files: set state.checkpoints.dir, e.g. to file:///path/to/checkpoints, and leave "
            "state.backend out, or env.set_state_backend(FsStateBackend('file:///path/to/checkpoints')), or raise the "
            f"limit: env.set_state_backend(MemoryStateBackend(max_state_size={2 * size}))."
        )

    def test_overwritten_state_does_not_count_toward_the_limit(self, start, engine):
        driver = start(backend="memory", memory_limit=40_000)
        for number in range(100):
            engine.values = {f"key {key}": number for key in range(50)}
            driver.run_epoch(None, {})
        assert sum(statistics.delta_bytes for statistics in driver.statistics) > 10 * 40_000


def test_the_driver_keeps_statistics_of_recent_epochs_only(start, engine, monkeypatch):
    monkeypatch.setattr("penstock.driver.epoch_statistics._STATISTICS_KEPT", 5)
    driver = start()
    for _ in range(8):
        driver.run_epoch(None, {})
    assert [statistics.number for statistics in driver.statistics] == [4, 5, 6, 7, 8]


@pytest.mark.parametrize(("tasks", "inline_bytes"), [(0, 400), (1, 400), (2, 400), (3, 333), (4, 250), (2000, 0)])
def test_tasks_share_the_space_for_deltas_inside_a_manifest(tasks, inline_bytes):
    assert Settings(inline_bytes=400, inline_total=1000).inline_limit(tasks) == inline_bytes


def test_tasks_put_smaller_deltas_into_the_manifest_if_there_are_many(engine, storage):
    env = StreamExecutionEnvironment.get_execution_environment()
    counted = env.from_collection([]).key_by(lambda n: n).process(lambda n, ctx: [n]).uid("one")
    counted.key_by(lambda n: n).process(lambda n, ctx: [n]).uid("two").print().uid("out")
    graph = build(env._graph, parallelism=5, max_parallelism=GROUPS)
    settings = Settings(inline_total=1000, retries=0)
    driver = EpochDriver(graph, storage, settings, engine.execute, {"out": CommitLog()})
    engine.plan = [silent]
    with pytest.raises(EpochFailed):
        driver.run_epoch(0, {})
    assert engine.attempts[0].inline_bytes == 100


class TestEngineProperties:
    def test_a_source_that_the_engine_reads_as_two_has_two_lines_in_the_manifest(self, engine, storage):
        lines = ["numbers", "numbers"]
        driver = EpochDriver(program(), storage, Settings(), engine.execute, {"out": CommitLog()}, source_lines=lines)
        driver.run_epoch(0, {})
        assert driver.sources == latest(storage)[0].sources == lines

    def test_each_source_is_one_line_by_default(self, start, storage):
        driver = start()
        driver.run_epoch(0, {})
        assert driver.sources == latest(storage)[0].sources == ["numbers"]

    def test_the_metrics_include_slots_and_restarts(self, engine, storage):
        slots = Slots("job", program, lambda: 3, SlotSettings(), lambda: True)
        driver = EpochDriver(program(), storage, Settings(), engine.execute, {"out": CommitLog()}, slots=slots)
        assert (driver.metrics.read().restarts, driver.metrics.read().slots_available) == (0, 0)
        slots.await_enough()
        driver.metrics.restarted(2)
        metrics = driver.metrics.read()
        assert (metrics.restarts, metrics.slots_needed, metrics.slots_available) == (2, 1, 3)
