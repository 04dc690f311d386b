"""State with TTL behaves like a dict of values and times, across epochs and restores."""

import copy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from ttl_job import ENGINES, TtlJob

from penstock.common import Time
from penstock.datastream.state import StateTtlConfig
from penstock.state.keyed import KeyedState

KEYS = ["a", "b", 7]
NAMES = ["value", "list", "map", "reducing", "aggregating"]
Update = StateTtlConfig.UpdateType
Visibility = StateTtlConfig.StateVisibility
Clock = StateTtlConfig.TtlTimeCharacteristic

numbers = st.integers(0, 9)
lengths = st.sampled_from([1, 5, 20, 2**63 - 1])
plain_configs = st.one_of(
    st.none(),
    st.builds(
        lambda ttl, update, visibility, clock: (
            StateTtlConfig.new_builder(Time.milliseconds(ttl))
            .set_update_type(update)
            .set_state_visibility(visibility)
            .set_ttl_time_characteristic(clock)
            .disable_cleanup_in_background()
            .build()
        ),
        lengths,
        st.sampled_from(Update),
        st.sampled_from(Visibility),
        st.sampled_from(Clock),
    ),
)


@st.composite
def cleaning_configs(draw):
    """Configurations with all kinds of cleanup. Cleanup must not be observable, so expired values are never visible."""
    builder = StateTtlConfig.new_builder(Time.milliseconds(draw(lengths)))
    builder.set_update_type(draw(st.sampled_from([Update.OnCreateAndWrite, Update.OnReadAndWrite])))
    builder.set_ttl_time_characteristic(draw(st.sampled_from(Clock)))
    if draw(st.booleans()):
        builder.cleanup_incrementally(draw(st.integers(1, 10)), draw(st.booleans()))
    if draw(st.booleans()):
        builder.cleanup_by_timers()
    if draw(st.booleans()):
        builder.cleanup_full_snapshot()
    return builder.build()


class Oracle:
    """Values with the clock and time of their last access, in dicts. A list state is a list of these."""

    def __init__(self, config):
        self.now = {Clock.ProcessingTime: 0, Clock.EventTime: 0}
        self.values = {}
        """By state and key, and for maps by map key."""
        self.lists = {}
        self.by = self.since = None
        self.configure(config)

    def configure(self, config):
        enabled = config is not None and config.is_enabled()
        by = config.get_ttl_time_characteristic() if enabled else self.by
        if by is not self.by:
            # Enabled for the first time, or a new clock: values without a time of this clock count as accessed now.
            self.by = by
            self.since = self.now[by]
        self.ttl = config.get_ttl().to_milliseconds() if enabled else float("inf")
        self.on_read = enabled and config.get_update_type() is Update.OnReadAndWrite
        self.shows = enabled and config.get_state_visibility() is Visibility.ReturnExpiredIfNotCleanedUp

    @property
    def time(self):
        return 0 if self.by is None else self.now[self.by]

    def accessed(self, value):
        return self.by, self.time, value

    def has_expired(self, held):
        by, time, _ = held
        return (time if by is self.by else self.since) + self.ttl <= self.time

    def write(self, slot, value):
        self.values[slot] = self.accessed(value)

    def read(self, slot):
        if slot not in self.values:
            return None
        held = self.values[slot]
        if self.has_expired(held):
            del self.values[slot]
            return held[2] if self.shows else None
        if self.on_read:
            self.write(slot, held[2])
        return held[2]

    def read_list(self, key):
        held = self.lists.pop(key, [])
        live = [each for each in held if not self.has_expired(each)]
        self.lists[key] = [self.accessed(each[2]) for each in live] if self.on_read else live
        return [each[2] for each in (held if self.shows else live)]

    def map_slots(self, key):
        return [slot for slot in self.values if slot[:2] == ("map", key)]

    def read_map(self, key):
        found = {slot[2]: self.read(slot) for slot in self.map_slots(key)}
        return {map_key: value for map_key, value in found.items() if value is not None}

    def is_empty(self, key):
        return not any(self.shows or not self.has_expired(self.values[slot]) for slot in self.map_slots(key))

    def clear(self, name, key):
        self.lists.pop(key, None) if name == "list" else None
        self.values = {slot: held for slot, held in self.values.items() if slot[:2] != (name, key)}


class TtlMachine(RuleBasedStateMachine):
    engine = ""

    @initialize(
        cache_limit=st.sampled_from([0, 1, 200_000]),
        config=st.one_of(plain_configs.map(lambda c: (c, False)), cleaning_configs().map(lambda c: (c, True))),
    )
    def start(self, cache_limit, config):
        KeyedState.cache_limit = cache_limit
        config, self.cleans = config
        self.job = TtlJob(self.engine, config)
        self.oracle = Oracle(config)
        self.committed = copy.deepcopy(self.oracle)
        self.key = KEYS[0]
        self.use(KEYS[0])

    def teardown(self):
        try:
            if hasattr(self, "job"):
                for key in KEYS:
                    self.use(key)
                    self.read("value")
                    self.read("list")
                    self.read("map")
                    self.read("reducing")
                    self.read("aggregating")
        finally:
            KeyedState.cache_limit = 200_000
            if hasattr(self, "job"):
                self.job.close()

    @rule(key=st.sampled_from(KEYS))
    def use(self, key):
        self.key = key
        self.job.use(key)

    @rule(name=st.sampled_from(NAMES), number=numbers, map_key=st.sampled_from("xyz"))
    def write(self, name, number, map_key):
        oracle, slot = self.oracle, (name, self.key)
        if name == "value":
            self.job.value.update(number)
            oracle.write(slot, number)
        elif name == "list":
            self.job.list.add(number)
            oracle.lists.setdefault(self.key, []).append(oracle.accessed(number))
        elif name == "map":
            self.job.map.put(map_key, number)
            oracle.write((*slot, map_key), number)
        elif name == "reducing":
            self.job.reducing.add(number)
            oracle.write(slot, (oracle.read(slot) or 0) + number)
        else:
            self.job.aggregating.add(number)
            total, count = oracle.read(slot) or (0, 0)
            oracle.write(slot, (total + number, count + 1))

    @rule(name=st.sampled_from(NAMES))
    def read(self, name):
        oracle, slot = self.oracle, (name, self.key)
        if name == "list":
            assert list(self.job.list) == oracle.read_list(self.key)
        elif name == "map":
            assert dict(self.job.map.items()) == oracle.read_map(self.key)
        elif name == "aggregating":
            held = oracle.read(slot)
            assert self.job.aggregating.get() == (None if held is None else held[0] / held[1])
        else:
            state = getattr(self.job, name)
            assert (state.value() if name == "value" else state.get()) == oracle.read(slot)

    @rule(map_key=st.sampled_from("xyz"), contains=st.booleans())
    def look_up(self, map_key, contains):
        held = self.oracle.read(("map", self.key, map_key))
        if contains:
            assert self.job.map.contains(map_key) is (held is not None)
        else:
            assert self.job.map.get(map_key) == held

    @rule()
    def look_whether_the_map_is_empty(self):
        assert self.job.map.is_empty() == self.oracle.is_empty(self.key)

    @rule(name=st.sampled_from(NAMES))
    def clear(self, name):
        getattr(self.job, name).clear()
        self.oracle.clear(name, self.key)

    @rule(values=st.lists(numbers, max_size=3))
    def replace_the_list(self, values):
        self.job.list.update(values)
        self.oracle.lists[self.key] = [self.oracle.accessed(value) for value in values]

    @rule(map_key=st.sampled_from("xyz"))
    def remove_from_the_map(self, map_key):
        self.job.map.remove(map_key)
        self.oracle.values.pop(("map", self.key, map_key), None)

    @rule(processing=st.integers(0, 12), event=st.integers(0, 12))
    def let_time_pass(self, processing, event):
        now = self.oracle.now
        now[Clock.ProcessingTime] += processing
        now[Clock.EventTime] += event
        self.job.at(now[Clock.ProcessingTime], now[Clock.EventTime])

    @rule(records=st.integers(0, 5))
    def cut(self, records):
        self.job.records = records
        self.job.cut()
        self.committed = copy.deepcopy(self.oracle)

    @rule()
    def spill(self):
        self.job.overlay.spill()

    @rule()
    def crash(self):
        # The clocks continue: that of epochs is in the manifest, and the watermark returns with the records.
        now = self.oracle.now
        self.oracle = copy.deepcopy(self.committed)
        self.oracle.now = now
        self.job.crash()

    @rule()
    def lose_replicas(self):
        self.cut(0)
        self.job.lose_replicas()

    @rule()
    def start_from_a_base(self):
        self.job.restore_from_base()
        self.committed = copy.deepcopy(self.oracle)

    @precondition(lambda self: not self.cleans)
    @rule(config=plain_configs)
    def restart_with_another_ttl(self, config):
        self.cut(0)
        self.job.config = config
        self.job.crash()
        self.oracle.configure(config)
        self.cut(0)


@pytest.mark.parametrize("engine", ENGINES)
def test_any_sequence_of_steps_returns_the_same_as_plain_python(engine):
    machine = type("Machine", (TtlMachine,), {"engine": engine}).TestCase
    examples = {"memory": 100, "lmdb": 50}.get(engine, 15)
    machine.settings = settings(max_examples=examples, stateful_step_count=40, deadline=None)
    machine("runTest").runTest()
