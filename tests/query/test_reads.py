"""Reads of queryable state, compared with a dict for each checkpoint."""

import random
from dataclasses import dataclass

import pytest
from query_jobs import descriptors, environment, every_kind, new_follower

from penstock.common.time import Time
from penstock.common.typeinfo import Types
from penstock.datastream.functions import (
    BroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
)
from penstock.datastream.window import CountTrigger, TumblingEventTimeWindows, TumblingProcessingTimeWindows
from penstock.query.errors import (
    BadRequest,
    CheckpointGone,
    CheckpointNotReached,
    NotEnabled,
    UnknownKey,
    UnknownQueryableState,
    WrongKeyType,
    WrongKind,
)
from penstock.query.reads import MapRange, Reads
from penstock.query.replica import BlockReplica
from penstock.query.values import DescribedValues, PickledValue, Values
from penstock.runtime.windows.window import TimeWindow
from penstock.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.keys import decode_key, encode_key
from penstock.state.ttl_config import StateTtlConfig
from penstock.tables.windows import name_of
from penstock.testing import JobHarness

pytestmark = pytest.mark.usefixtures("server_backend")


@pytest.fixture
def entries_read(monkeypatch):
    """How many entries each read of a range of a replica has returned."""
    counts = []
    between = BlockReplica.between

    def counted(self, *arguments, **options):
        found = between(self, *arguments, **options)
        counts.append(len(found))
        return found

    monkeypatch.setattr(BlockReplica, "between", counted)
    return counts


class Reader:
    """Reads the state of a job in this process, decoded."""

    def __init__(self, job, **options):
        self.follower = new_follower(job.storage, **options)
        self.reads = Reads(self.follower)

    def poll(self):
        assert self.follower.poll()
        return self

    def values(self, name, number=None, descriptor=None, **options):
        state = self.reads.state(self.follower.at(number), name).state
        if descriptor is None:
            return Values(state.kind, state.type)
        return DescribedValues(state.kind, state.type, descriptor, **options)

    def get(self, name, key, number=None, window=b"", descriptor=None, **options):
        parts = self.reads.get(self.follower.at(number), name, encode_key(key), window)
        return self.values(name, number, descriptor, **options).decode(parts)

    def find(self, name, key, number=None):
        """Return the value of a key, or None if it has nothing."""
        try:
            return self.get(name, key, number)
        except UnknownKey:
            return None

    def get_many(self, name, keys, number=None):
        values = self.values(name, number)
        found = self.reads.get_many(self.follower.at(number), name, [*map(encode_key, keys)])
        return [values.decode(parts) if parts else None for parts in found]

    def entries(self, name, key, number=None, limit=None, cursor=None, **bounds):
        wanted = MapRange(limit=limit, cursor=cursor, **{each: encode_key(value) for each, value in bounds.items()})
        page = self.reads.entries(self.follower.at(number), name, encode_key(key), wanted)
        values = self.values(name, number)
        return dict(values.entry(*part) for part in page.parts), page.cursor

    def scan(self, name, number=None, **options):
        _, batches = self.reads.scan(self.follower.at(number), name, **options)
        return [row for batch in batches for row in batch.to_pylist()]


def apply(values, state, rows):
    """Apply changes to a dict by key."""
    for change in rows:
        key = decode_key(change.key), change.window
        if change.map_key is None:
            state.pop(key, None)
            if change.parts is not None:
                state[key] = values.decode(change.parts)
        elif change.parts is None:
            entries = state.get(key, {})
            entries.pop(values.map_key(change.map_key), None)
            if not entries:
                state.pop(key, None)
        else:
            name, value = values.entry(change.map_key, change.parts[0][1])
            state.setdefault(key, {})[name] = value


NAMES = [*descriptors()]


def committed(job):
    """Return the state of each kind that the job has committed, by queryable name."""
    found = {name: job.states(each.name) for name, each in descriptors().items()}
    found["the map"] = {key: value for key, value in found["the map"].items() if value}
    return found


def records(rng):
    return [(f"k{rng.randrange(12)}", rng.choice([-1, 0, *range(1, 50)])) for _ in range(20)]


@pytest.fixture(scope="module")
def run(server_backend):
    """Return a reader with 40 readable checkpoints, and the state that the job committed in each."""
    rng = random.Random(5)
    with every_kind(parallelism=3) as job:
        reader = Reader(job, retained=40)
        oracle = {}
        for epoch in range(39):
            if epoch == 20:
                job.rescale(7)
                oracle[job.checkpoint] = committed(job)
            job.push(*records(rng)).epoch()
            oracle[job.checkpoint] = committed(job)
            reader.poll()
        yield reader, oracle


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_state_reads_as_committed_at_each_checkpoint(run, name):
    reader, oracle = run
    plain = {"the aggregating"}
    keys = [f"k{i}" for i in range(12)]
    for number, states in oracle.items():
        if name in plain:
            descriptor = descriptors()[name]
            got = {}
            for key in keys:
                try:
                    got[key] = reader.get(name, key, number, descriptor=descriptor)
                except UnknownKey:
                    pass
            assert got == states[name]
        else:
            assert {key: value for key in keys if (value := reader.find(name, key, number)) is not None} == states[name]
            assert reader.get_many(name, keys, number) == [states[name].get(key) for key in keys]


def test_a_scan_shows_all_keys_of_one_checkpoint(run):
    reader, oracle = run
    for number, states in oracle.items():
        assert {row["key"]: row["value"] for row in reader.scan("the value", number)} == states["the value"]
        entries = {}
        for row in reader.scan("the map", number):
            entries.setdefault(row["key"], {})[row["map_key"]] = row["value"]
        assert entries == states["the map"]


@pytest.mark.parametrize("name", NAMES)
def test_a_scan_of_some_keys_shows_their_rows_of_the_complete_scan(run, name):
    reader, _ = run
    for number in (3, 21, 40):
        everything = reader.scan(name, number)
        for keys in ([], ["k3"], ["k1", "k7", "k1", "none"], [f"k{i}" for i in range(12)]):
            found = reader.scan(name, number, keys=[*map(encode_key, keys)])
            expected = [row for row in everything if row["key"] in keys]
            assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_a_scan_of_some_keys_reads_only_their_entries(entries_read):
    with every_kind() as job:
        job.push(*((f"k{number}", number) for number in range(500))).epoch()
        reader = Reader(job).poll()
        assert len(reader.scan("the value")) == 500
        del entries_read[:]
        assert reader.scan("the value", keys=[encode_key("k7"), encode_key("k9")]) == reader.scan(
            "the value", keys=[*map(encode_key, ["k9", "k7"])]
        )
        assert entries_read == [1, 1, 1, 1]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "the aggregating"])
def test_applying_the_changes_to_an_empty_dict_gives_each_checkpoint(run, name):
    reader, oracle = run
    values = reader.values(name)
    state, since = {}, None
    first = reader.reads.changes(name, reader.follower.oldest - 1)
    assert first.reset
    for start in (1, 17):
        state, since = {(key, b""): value for key, value in oracle[start][name].items()}, start
        while since < 40:
            changes = reader.reads.changes(name, since)
            assert (changes.reset, changes.checkpoint) == (False, since + 1)
            for rows in changes.changes:
                apply(values, state, rows)
            since = changes.checkpoint
            assert {key: value for (key, _), value in state.items()} == oracle[since][name]
        with pytest.raises(CheckpointNotReached):
            reader.reads.changes(name, 40)


def test_a_subscriber_that_fell_behind_gets_the_complete_state(run):
    reader, oracle = run
    for since in (None, 0):
        changes = reader.reads.changes("the list", since)
        assert (changes.reset, changes.checkpoint) == (True, 40)
        state = {}
        for rows in changes.changes:
            apply(reader.values("the list"), state, rows)
        assert {key: value for (key, _), value in state.items()} == oracle[40]["the list"]


def test_the_entries_of_a_map_can_be_read_by_range_and_page_by_page():
    with every_kind() as job:
        job.push(*(("a", number) for number in range(1, 8))).epoch()
        reader = Reader(job).poll()
        everything, cursor = reader.entries("the map", "a")
        assert (list(everything), cursor) == ([f"n{i}" for i in range(7)], None)
        assert [*reader.entries("the map", "a", start="n2", stop="n5")[0]] == ["n2", "n3", "n4"]
        assert [*reader.entries("the map", "a", prefix="n6")[0]] == ["n6"]
        pages, cursor = [], None
        while True:
            page, cursor = reader.entries("the map", "a", limit=3, cursor=cursor, start="n1")
            pages.append([*page])
            if cursor is None:
                break
        assert pages == [["n1", "n2", "n3"], ["n4", "n5", "n6"]]
        with pytest.raises(BadRequest, match="does not compare with the bounds"):
            reader.entries("the map", "a", start=3)
        with pytest.raises(WrongKind, match="only maps have entries"):
            reader.entries("the list", "a")


def test_a_key_of_another_type_is_an_error_and_not_a_missing_key():
    class Last(KeyedProcessFunction):
        def open(self, runtime_context):
            descriptor = ValueStateDescriptor("last", Types.LONG())
            descriptor.set_queryable("last")
            self.last = runtime_context.get_state(descriptor)

        def process_element(self, value, ctx):
            self.last.update(value)

    for key_type in (None, Types.LONG()):
        stream = environment().from_collection([]).key_by(lambda n: n, key_type).process(Last()).uid("last")
        with JobHarness(stream, backend="filesystem") as job:
            job.push(1, 2).epoch()
            reader = Reader(job).poll()
            assert reader.get("last", 1) == 1
            with pytest.raises(UnknownKey, match="has nothing for key 3 at checkpoint 1"):
                reader.get("last", 3)
            for key, kind in ((1.0, "float"), (True, "bool"), ("1", "str")):
                with pytest.raises(WrongKeyType, match=f"of type int, but {key!r} is of type {kind}"):
                    reader.get("last", key)
            with pytest.raises(WrongKeyType):
                reader.get_many("last", [1, "1"])


def test_an_unknown_name_is_an_error_that_lists_the_names():
    with every_kind() as job:
        job.push(("a", 1)).epoch()
        with pytest.raises(UnknownQueryableState, match="no queryable state 'sum' at checkpoint 1, only"):
            Reader(job).poll().get("sum", "a")


def test_a_job_without_queryable_states_says_so():
    stream = environment(enabled=False).from_collection([]).key_by(lambda n: n).sum().uid("sum")
    with JobHarness(stream, backend="filesystem") as job:
        job.push(1).epoch()
        with pytest.raises(NotEnabled, match=r"set queryable-state\.enable to true"):
            Reader(job).poll().get("sum", 1)


def test_a_key_that_cannot_be_decoded_is_a_bad_request():
    with every_kind() as job:
        job.push(("a", 1)).epoch()
        reader = Reader(job).poll()
        with pytest.raises(BadRequest, match="cannot be decoded"):
            reader.reads.get(reader.follower.at(), "the value", b"\xc1\xff")


@pytest.mark.parametrize("cleanup", ["none", "default"])
def test_values_expire_by_the_clock_of_the_checkpoint(cleanup):
    builder = StateTtlConfig.new_builder(Time.seconds(10))
    config = (builder.disable_cleanup_in_background() if cleanup == "none" else builder).build()

    class Fading(KeyedProcessFunction):
        def open(self, runtime_context):
            value = ValueStateDescriptor("v", Types.LONG())
            elements = ListStateDescriptor("l", Types.LONG())
            entries = MapStateDescriptor("m", Types.LONG(), Types.LONG())
            for each in (value, elements, entries):
                each.enable_time_to_live(config)
                each.set_queryable(each.name)
            self.v = runtime_context.get_state(value)
            self.l = runtime_context.get_list_state(elements)
            self.m = runtime_context.get_map_state(entries)

        def process_element(self, record, ctx):
            _, number = record
            self.v.update(number)
            self.l.add(number)
            self.m.put(number, number)

    stream = environment().from_collection([]).key_by(lambda record: record[0]).process(Fading()).uid("f")
    with JobHarness(stream, backend="filesystem") as job:
        reader = Reader(job)
        job.set_clock(1_000)
        job.push(("a", 1), ("b", 1)).epoch()
        job.set_clock(8_000)
        job.push(("a", 2)).epoch()
        reader.poll()
        assert (reader.get("v", "b"), reader.get("l", "a"), reader.get("m", "a")) == (1, [1, 2], {1: 1, 2: 2})
        job.set_clock(12_000)
        job.push(("c", 3)).epoch()
        reader.poll()
        assert (reader.get("v", "a"), reader.get("l", "a"), reader.get("m", "a")) == (2, [2], {2: 2})
        assert reader.find("v", "b") is None
        assert {row["key"] for row in reader.scan("v")} == {"a", "c"}
        assert [row["value"] for row in reader.scan("l") if row["key"] == "a"] == [2]
        assert reader.scan("v", keys=[encode_key("b")]) == []
        assert [row["value"] for row in reader.scan("l", keys=[encode_key("a")])] == [2]
        # The checkpoints before it still show them.
        assert reader.get("v", "b", 2) == 1


def test_the_state_of_a_window_is_read_by_window():
    class PerWindow(ProcessWindowFunction):
        def process(self, key, context, elements):
            seen = ValueStateDescriptor("seen", Types.LONG())
            names = MapStateDescriptor("names", Types.STRING(), Types.LONG())
            seen.set_queryable("seen")
            names.set_queryable("names")
            context.window_state().get_state(seen).update(len(list(elements)))
            context.window_state().get_map_state(names).put("n", len(list(elements)))
            return []

        def clear(self, context):
            pass

    windows = environment().from_collection([]).key_by(lambda v: v)
    stream = windows.window(TumblingProcessingTimeWindows.of(Time.seconds(1))).process(PerWindow()).uid("w")
    with JobHarness(stream, backend="filesystem") as job:
        job.set_clock(100)
        job.push("a", "a").epoch()
        job.set_clock(1_100)
        job.push("a").epoch()
        job.set_clock(2_500)
        reader = Reader(job).poll()
        first, second = (name_of(start, start + 1000, None) for start in (0, 1000))
        assert (reader.get("seen", "a", window=first), reader.get("seen", "a", window=second)) == (2, 1)
        assert reader.get("names", "a", window=first) == {"n": 2}
        with pytest.raises(UnknownKey):
            reader.get("seen", "a", window=name_of(5000, 6000, None))
        with pytest.raises(WrongKind, match="belongs to windows; the key has 2 of them"):
            reader.get("seen", "a")
        assert [(row["window_start"], row["value"]) for row in reader.scan("seen")] == [(0, 2), (1000, 1)]
        assert reader.scan("seen", keys=[encode_key("a")]) == reader.scan("seen")
        changes = reader.reads.changes("seen", None)
        state = {}
        for rows in changes.changes:
            apply(reader.values("seen"), state, rows)
        assert state == {("a", first): 2, ("a", second): 1}
        assert TimeWindow(0, 1000)


def test_a_map_of_a_window_that_is_cleared_is_a_change_of_this_window():
    class PerWindow(ProcessWindowFunction):
        def open(self, runtime_context):
            self.names = MapStateDescriptor("names", Types.STRING(), Types.LONG())
            self.names.set_queryable("names")

        def process(self, key, context, elements):
            names = context.window_state().get_map_state(self.names)
            if "clear" in [word for _, word in elements]:
                names.clear()
            else:
                names.put("n", len(list(elements)))
            return []

    windows = environment().from_collection([]).key_by(lambda record: record[0])
    windows = windows.window(TumblingEventTimeWindows.of(1000)).trigger(CountTrigger.of(1))
    with JobHarness(windows.process(PerWindow()).uid("w"), backend="filesystem") as job:
        first, second = (name_of(start, start + 1000, None) for start in (0, 1000))
        reader = Reader(job, retained=5)
        state = {}
        for since, (word, time) in enumerate((("x", 10), ("x", 1010), ("clear", 20))):
            job.push(("a", word), timestamp=time).epoch()
            reader.poll()
            for rows in reader.reads.changes("names", since or None).changes:
                apply(reader.values("names"), state, rows)
        assert state == {("a", second): {"n": 1}}
        with pytest.raises(UnknownKey):
            reader.get("names", "a", window=first)


@dataclass
class Order:
    name: str
    amount: int


@dataclass
class Later:
    name: str
    amount: int
    note: str = "none"


Later.__qualname__ = Order.__qualname__ = "Order"


class Keep(KeyedProcessFunction):
    def __init__(self, kind):
        self.kind = kind

    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("order", self.kind)
        descriptor.set_queryable("order")
        self.order = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        self.order.update(self.kind(*value))


def keeping(kind, storage=None):
    stream = environment().from_collection([]).key_by(lambda order: order[0]).process(Keep(kind)).uid("keep")
    return JobHarness(stream, backend="filesystem", storage=storage)


def test_values_of_an_earlier_version_of_a_type_read_as_the_last_version():
    with keeping(Order) as job:
        job.push(("ann", 1)).epoch()
        with keeping(Later, job.storage) as later:
            reader = Reader(later, retained=5).poll()
            assert reader.get("order", "ann") == {"name": "ann", "amount": 1}
            later.push(("bob", 2)).epoch()
            reader.poll()
            assert reader.get("order", "ann", 1) == {"name": "ann", "amount": 1}
            assert reader.get("order", "ann") == {"name": "ann", "amount": 1, "note": "none"}
            assert reader.get("order", "bob") == {"name": "bob", "amount": 2, "note": "none"}
            descriptor = ValueStateDescriptor("order", Later)
            assert reader.get("order", "ann", descriptor=descriptor) == Later("ann", 1)


def test_a_descriptor_of_another_type_is_refused():
    with every_kind() as job:
        job.push(("a", 1)).epoch()
        reader = Reader(job).poll()
        assert reader.get("the value", "a", descriptor=ValueStateDescriptor("any name", Types.LONG())) == 1
        with pytest.raises(WrongKind, match="declares 'value string', but the state is 'value long'"):
            reader.get("the value", "a", descriptor=ValueStateDescriptor("value", Types.STRING()))


def test_a_pickle_is_never_loaded_unless_the_caller_asks_for_it():
    env = environment()
    env.from_collection([]).key_by(lambda record: record[0]).as_queryable_state("last").uid("end")
    any_value = ValueStateDescriptor("last", Types.PICKLED_BYTE_ARRAY())
    with JobHarness(env, backend="filesystem") as job:
        job.push(("plain", {1, 2}), ("object", Order("ann", 1))).epoch()
        reader = Reader(job).poll()
        assert reader.get("last", "plain") == ("plain", {1, 2})
        assert reader.get("last", "plain", descriptor=any_value) == ("plain", {1, 2})
        pickled = reader.get("last", "object", descriptor=any_value)
        assert isinstance(pickled, bytes)
        assert b"Order" in pickled
        loaded = reader.get("last", "object", descriptor=any_value, allow_pickle=True)
        assert loaded == ("object", Order("ann", 1))


def test_a_nested_pickle_needs_permission():
    descriptor = ListStateDescriptor("l", Types.LIST(Types.PICKLED_BYTE_ARRAY()))
    with pytest.raises(PickledValue, match="allow_pickle=True"):
        DescribedValues("list", descriptor.serializer.schema(), descriptor)
    assert DescribedValues("list", descriptor.serializer.schema(), descriptor, allow_pickle=True)


def test_broadcast_and_operator_state_are_read_as_tables():
    rules = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
    rules.set_queryable("all rules")

    class Apply(BroadcastProcessFunction):
        def process_element(self, value, ctx):
            yield value

        def process_broadcast_element(self, rule, ctx):
            ctx.get_broadcast_state(rules).put(*rule)

    env = environment()
    values, given = env.from_collection([]).name("values"), env.from_collection([]).name("rules")
    stream = values.connect(given.broadcast(rules)).process(Apply()).uid("apply")
    with JobHarness(stream, backend="filesystem", parallelism=2) as job:
        job.push(("x", 1), ("y", 2), source="rules").epoch()
        reader = Reader(job).poll()
        assert {row["map_key"]: row["value"] for row in reader.scan("all rules")} == {"x": 1, "y": 2}
        with pytest.raises(WrongKind, match="operator state of kind broadcast, which has no keys"):
            reader.get("all rules", "x")


def test_a_part_of_the_key_groups_answers_for_its_keys():
    with every_kind() as job:
        keys = [f"k{i}" for i in range(60)]
        job.push(*((key, number) for number, key in enumerate(keys, 1))).epoch()
        readers = [Reader(job, blocks=frozenset(range(first, 16, 2))).poll() for first in range(2)]
        rows = [{row["key"]: row["value"] for row in reader.scan("the value")} for reader in readers]
        assert all(rows)
        assert rows[0] | rows[1] == {key: number for number, key in enumerate(keys, 1)}


def test_a_read_of_a_retired_checkpoint_fails_instead_of_showing_another():
    with every_kind() as job:
        reader = Reader(job, retained=2)
        for number in range(5):
            job.push(("a", number)).epoch()
            reader.poll()
        before = reader.follower.at(4)
        for number in range(5):
            job.push(("a", number)).epoch()
            reader.poll()
        with pytest.raises(CheckpointGone):
            reader.reads.get(before, "the value", encode_key("a"))
        with pytest.raises(CheckpointGone):
            list(reader.reads.scan(before, "the value")[1])
