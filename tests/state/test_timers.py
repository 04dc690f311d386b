"""Timers as state fire in order across epochs, crashes, lost replicas and rescales, compared with a plain set."""

import shutil
import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.state import timers as timers_module
from penstock.state.blocks import blocks_for
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.key_groups import key_group_of, range_of_subtask
from penstock.state.keys import decode_key, encode_key
from penstock.state.overlay import OVERLAY_BYTES, Overlay

GROUPS = 32
BLOCKS = blocks_for(1, GROUPS)
KEYS = ["a", "b", 1, None, (1, "x"), "long " * 90]


class Store:
    """Committed state by block, in an engine, below the overlays of new subtasks."""

    def __init__(self, kind):
        self.directory = tempfile.mkdtemp(prefix="penstock-timers-") if kind == "lmdb" else None
        self.engines = {}
        self.version = 0
        self.least = {}

    def engine(self, block):
        if block not in self.engines:
            self.engines[block] = MemoryEngine() if self.directory is None else LmdbEngine(f"{self.directory}/{block}")
        return self.engines[block]

    def commit(self, changes, least):
        for change in changes:
            change.entries.sort()
            engine = self.engine(BLOCKS.of(change.group))
            assert engine.apply(engine.position(), [change], str(self.version).encode())
        self.version += 1
        self.least = least

    def close(self):
        for engine in self.engines.values():
            engine.close()
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)


class Subtasks:
    """All subtasks of one operator in one epoch."""

    def __init__(self, store, parallelism, limit=OVERLAY_BYTES):
        self.store = store
        self.contexts = []
        self.readers = {}
        self.parts = []
        for subtask in range(parallelism):
            overlay = Overlay(GROUPS)
            overlay.begin(1, self, store.least, range_of_subtask(subtask, parallelism, GROUPS), limit)
            self.parts.append((overlay, overlay.timers["EVENT_TIME"]))

    def reader(self, group):
        block = BLOCKS.of(group)
        if block not in self.readers:
            context = self.store.engine(block).reader()
            self.contexts.append(context)
            self.readers[block] = context.__enter__()
        return self.readers[block]

    def of(self, key):
        data = encode_key(key)
        group = key_group_of(data, GROUPS)
        overlay, timers = self.parts[group * len(self.parts) // GROUPS]
        overlay.key = data
        return timers

    def fire(self, until):
        fired = [[(time, decode_key(key), ns) for time, key, ns in timers.due(until)] for _, timers in self.parts]
        for each in fired:
            assert [time for time, _, _ in each] == sorted(time for time, _, _ in each)
        return [timer for each in fired for timer in each]

    def take(self, until):
        """Take due timers in bulk, only from subtasks with due timers."""
        taken = []
        for _, timers in self.parts:
            reached = -(2**63)
            while timers.is_due(until):
                some, far = timers.take(until)
                assert all(reached <= timer[0] <= far for timer in some)
                reached = far
                taken += some
        return [(time, decode_key(key), namespace) for time, key, namespace in taken]

    def end(self):
        changes = []
        least = {}
        for overlay, timers in self.parts:
            changes += overlay.changes()
            for block, time in timers.least().items():
                least[block] = min(time, least.get(block, time))
        self.release()
        self.store.commit(changes, {"EVENT_TIME": least})

    def spill(self):
        for overlay, _ in self.parts:
            overlay.spill()

    def release(self):
        for overlay, _ in self.parts:
            overlay.release()
        for context in self.contexts:
            context.__exit__(None, None, None)


times = st.integers(-5, 60) | st.sampled_from([-(2**63), 2**63 - 1])
namespaces = st.sampled_from([b"", b"w1", b"w2"])


class TimerMachine(RuleBasedStateMachine):
    kind = ""

    @initialize(portion=st.sampled_from([1, 2, 3, 1000]), limit=st.sampled_from([0, OVERLAY_BYTES]))
    def start(self, portion, limit):
        timers_module._PORTION = portion
        timers_module._BETWEEN_LOOKS = portion
        self.limit = limit
        self.store = Store(self.kind)
        self.epoch = Subtasks(self.store, 1, limit)
        self.model = set()
        self.stored = set()
        self.committed = set()
        self.exact = True

    def teardown(self):
        timers_module._PORTION, timers_module._BETWEEN_LOOKS = 32_768, 1024
        if hasattr(self, "store"):
            self.epoch.release()
            self.store.close()

    @rule(key=st.sampled_from(KEYS), time=times, namespace=namespaces)
    def register(self, key, time, namespace):
        self.epoch.of(key).register(time, namespace)
        self.model.add((time, key, namespace))

    @rule(key=st.sampled_from(KEYS), time=times, namespace=namespaces)
    def delete(self, key, time, namespace):
        self.epoch.of(key).delete(time, namespace)
        self.model.discard((time, key, namespace))

    @rule(until=times, at_once=st.booleans())
    def advance(self, until, at_once):
        due = {timer for timer in self.model if timer[0] <= until}
        fired = self.epoch.take(until) if at_once else self.epoch.fire(until)
        assert len(fired) == len(set(fired))
        assert set(fired) == due
        self.model -= due

    @precondition(lambda self: self.limit > 0)
    @rule(time=times)
    def look_at_one_time(self, time):
        expected = {key_group_of(encode_key(key), GROUPS) for at, key, _ in self.stored if at == time}
        parts = self.epoch.parts
        owners = [parts[group * len(parts) // GROUPS][1] for group in range(GROUPS)]
        assert {group for group, timers in enumerate(owners) if timers.is_stored(time, group)} == expected

    @rule(parallelism=st.sampled_from([1, 2, 3, 7]))
    def next_epoch(self, parallelism):
        self.epoch.end()
        self.stored = self.committed = set(self.model)
        self.epoch = Subtasks(self.store, parallelism, self.limit)
        # Three or seven subtasks share blocks: one can still count a timer that the other deleted.
        self.exact = self.exact and parallelism in (1, 2)

    @rule()
    def spill(self):
        self.epoch.spill()
        self.stored = set(self.model)

    @rule()
    def crash(self):
        self.epoch.release()
        self.model = set(self.committed)
        self.stored = self.committed
        self.epoch = Subtasks(self.store, 2, self.limit)

    @invariant()
    def the_least_time_is_kept_for_each_block(self):
        if hasattr(self, "store"):
            expected = {}
            for time, key, _ in self.committed:
                block = BLOCKS.of(key_group_of(encode_key(key), GROUPS))
                expected[block] = min(time, expected.get(block, time))
            least = self.store.least.get("EVENT_TIME", {})
            if self.exact:
                assert least == expected
            assert all(least[block] <= time for block, time in expected.items())


class MemoryTimers(TimerMachine):
    kind = "memory"


class LmdbTimers(TimerMachine):
    kind = "lmdb"


TestMemoryTimers = MemoryTimers.TestCase
TestMemoryTimers.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLmdbTimers = LmdbTimers.TestCase
TestLmdbTimers.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_a_timer_that_sets_the_next_one_fires_until_the_given_time():
    store = Store("memory")
    epoch = Subtasks(store, 1)
    timers = epoch.of("a")
    timers.register(10)
    seen = []
    for time, _, _ in timers.due(35):
        seen.append(time)
        epoch.of("a").register(time + 10)
    assert seen == [10, 20, 30]
    epoch.end()
    assert list(store.least["EVENT_TIME"].values()) == [40]


def test_an_epoch_without_due_timers_reads_nothing():
    store = Store("memory")
    epoch = Subtasks(store, 1)
    epoch.of("a").register(100)
    epoch.end()

    class Untouchable(Subtasks):
        def reader(self, group):
            raise AssertionError("the replica was read")

    epoch = Untouchable(store, 1)
    assert epoch.fire(99) == []
    assert not epoch.of("a").is_due(99)
    assert epoch.of("a").is_due(100)
    with pytest.raises(AssertionError, match="the replica was read"):
        epoch.fire(100)
