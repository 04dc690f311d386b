"""Keyed state behaves like a dict for a function, across epochs, crashes, engines and modified objects."""

import copy
import itertools
import shutil
import tempfile
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from penstock.checkpoint.bases import all_blocks, merge_block
from penstock.checkpoint.manifest import FORMAT, Manifest, OperatorSnapshot, publish
from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.common import Row, Types
from penstock.datastream import KeyedProcessFunction
from penstock.datastream.functions import AggregateFunction
from penstock.runtime.report import DeltaHandle
from penstock.state.access import StateAccess
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.driver_storage import DriverStorage
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.engines.rocksdb import RocksDbEngine
from penstock.state.entries import StateError, state_id
from penstock.state.keyed import KeyedState
from penstock.state.keys import encode_key
from penstock.state.overlay import OVERLAY_BYTES, Nothing, Overlay
from penstock.testing import keyed_harness

BACKENDS = ["memory", "filesystem", "rocksdb"]


class Average(AggregateFunction):
    """The accumulator is (sum, count)."""

    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


DESCRIPTORS = {
    "value": ValueStateDescriptor("value", int),
    "list": ListStateDescriptor("list", str),
    "map": MapStateDescriptor("map", str, int),
    "reducing": ReducingStateDescriptor("reducing", lambda a, b: (a * 10 + b) % 1_000_003, int),
    "aggregating": AggregatingStateDescriptor("aggregating", Average(), Types.TUPLE([Types.LONG(), Types.LONG()])),
}


class Job:
    """A keyed operator on real replicas. Its epochs end in manifests; a crash loses everything not in a manifest."""

    def __init__(self, engine, max_parallelism=4, limit=OVERLAY_BYTES):
        self.limit = limit
        self.max_parallelism = max_parallelism
        self.storage = DriverStorage()
        self.engine = engine
        self.directory = None if engine == "memory" else tempfile.mkdtemp(prefix="penstock-overlay-")
        self.memory = {}
        self.version = None
        self.bases = {}
        self.replicas = None
        self.start()

    def start(self):
        """Start a new process, in which functions are opened again."""
        self.overlay = Overlay(self.max_parallelism)
        self.states = {name: self.overlay.register(descriptor) for name, descriptor in DESCRIPTORS.items()}
        self.begin()

    def begin(self):
        self.number = 1 if self.version is None else self.version.id + 1
        history = ManifestChain(self.storage, self.version)
        self.access = StateAccess(history, None, self.open_engine, 0, blocks={"uid": self.overlay.blocks})
        self.replicas = self.access.replicas("uid")
        self.overlay.begin(self.number, self.replicas, limit=self.limit)

    def open_engine(self, uid, groups):
        if self.directory is None:
            return self.memory.setdefault(groups, MemoryEngine())
        return (RocksDbEngine if self.engine == "rocksdb" else LmdbEngine)(f"{self.directory}/{groups.start}")

    def cut(self):
        """End the epoch and start the next one."""
        changes = list(self.overlay.changes())
        written = self.access.write_delta(self.number, changes, self.overlay.blocks)
        delta = DeltaHandle(
            name=written.name, size=written.size, entries=written.entries, blocks=written.blocks, inline=written.inline
        )
        snapshot = OperatorSnapshot(
            name="name",
            parallelism=1,
            max_parallelism=self.max_parallelism,
            states=self.overlay.schemas(),
            deltas=[delta] if changes else [],
        )
        self.replicas.close()
        manifest = Manifest(
            format=FORMAT,
            lineage="lineage",
            id=self.number,
            batch=None,
            parent=b"" if self.version is None else self.version.digest,
            token="token",
            timestamp=0,
            ended=False,
            operators={"uid": snapshot},
            committables=[],
            records={},
            spark_log={},
            log_index={},
            bases={"uid": self.bases},
            blocks={"uid": self.overlay.blocks},
            since_base={},
        )
        self.version = publish(self.storage, manifest)
        self.begin()
        return changes

    def merge(self):
        if self.version is not None:
            self.bases = {
                block.groups.start: merge_block(self.storage, self.version, block)
                for block in all_blocks("uid", self.overlay.blocks)
            }

    def crash(self):
        self.replicas.close()
        self.start()

    def lose_replicas(self):
        self.replicas.close()
        self.memory.clear()
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
        self.begin()

    def close(self):
        self.replicas.close()
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)


@dataclass
class Model:
    """The expected contents of one key's states."""

    value: int | None
    list: list
    map: dict
    reducing: int | None
    aggregating: tuple | None

    @classmethod
    def empty(cls):
        return cls(None, [], {}, None, None)


KEYS = ["a", "b", 1, 1.0, None, (1, "a"), "long " * 150]
MAP_KEYS = ["x", "y", "", "long " * 150]
numbers = st.integers(-(2**63), 2**63 - 1)
words = st.text(max_size=3)


class OverlayMachine(RuleBasedStateMachine):
    """Any sequence of operations on any keys, with epochs and crashes anywhere, behaves like a dict."""

    engine = ""

    @initialize(cache_limit=st.sampled_from([0, 1, 200_000]), limit=st.sampled_from([0, 5_000, OVERLAY_BYTES]))
    def start(self, cache_limit, limit):
        KeyedState.cache_limit = cache_limit
        self.job = Job(self.engine, limit=limit)
        self.model = {}
        self.committed = {}
        self.use(KEYS[0])

    def teardown(self):
        try:
            for key in KEYS:
                self.use(key)
                self.check()
        finally:
            KeyedState.cache_limit = 200_000
            self.job.close()

    @rule(key=st.sampled_from(KEYS))
    def use(self, key):
        """Process another record."""
        self.key = repr(key), key
        self.job.overlay.key = encode_key(key)

    @property
    def expected(self):
        return self.model.setdefault(self.key[0], Model.empty())

    def state(self, name):
        return self.job.states[name]

    @rule()
    def check(self):
        expected = self.expected
        assert self.state("value").value() == expected.value
        assert list(self.state("list").get()) == expected.list
        assert sorted(self.state("map").items()) == sorted(expected.map.items())
        assert self.state("reducing").get() == expected.reducing
        accumulator = expected.aggregating
        assert self.state("aggregating").get() == (accumulator and accumulator[0] / accumulator[1])

    @rule(value=numbers | st.none())
    def update(self, value):
        self.state("value").update(value)
        self.expected.value = value

    @rule(values=st.lists(words, max_size=3))
    def add_all(self, values):
        self.state("list").add_all(values)
        self.expected.list += values

    @rule(value=words)
    def add(self, value):
        self.state("list").add(value)
        self.expected.list.append(value)

    @rule(values=st.lists(words, max_size=3))
    def replace_list(self, values):
        self.state("list").update(values)
        self.expected.list = list(values)

    @rule(key=st.sampled_from(MAP_KEYS), value=numbers)
    def put(self, key, value):
        self.state("map").put(key, value)
        self.expected.map[key] = value

    @rule(values=st.dictionaries(st.sampled_from(MAP_KEYS), numbers))
    def put_all(self, values):
        self.state("map").put_all(values)
        self.expected.map.update(values)

    @rule(key=st.sampled_from(MAP_KEYS))
    def remove(self, key):
        self.state("map").remove(key)
        self.expected.map.pop(key, None)

    @rule(key=st.sampled_from(MAP_KEYS))
    def look_up(self, key):
        found = self.state("map")
        assert found.get(key) == found[key] == self.expected.map.get(key)
        assert found.contains(key) == (key in found) == (key in self.expected.map)

    @rule()
    def look_around(self):
        found = self.state("map")
        assert sorted(found.keys()) == sorted(found) == sorted(self.expected.map)
        assert sorted(found.values()) == sorted(self.expected.map.values())
        assert found.is_empty() == (not self.expected.map)

    @rule(value=st.integers(0, 9))
    def reduce(self, value):
        self.state("reducing").add(value)
        current = self.expected.reducing
        self.expected.reducing = value if current is None else (current * 10 + value) % 1_000_003

    @rule(value=st.integers(0, 9))
    def aggregate(self, value):
        self.state("aggregating").add(value)
        total, count = self.expected.aggregating or (0, 0)
        self.expected.aggregating = total + value, count + 1

    @rule(name=st.sampled_from(sorted(DESCRIPTORS)))
    def clear(self, name):
        self.state(name).clear()
        setattr(self.expected, name, getattr(Model.empty(), name))

    @rule()
    def cut(self):
        self.job.cut()
        self.committed = copy.deepcopy(self.model)
        self.use(self.key[1])

    @rule()
    def crash(self):
        self.job.crash()
        self.model = copy.deepcopy(self.committed)
        self.use(self.key[1])

    @rule()
    def lose_replicas(self):
        self.job.lose_replicas()
        self.model = copy.deepcopy(self.committed)
        self.use(self.key[1])

    @rule()
    def merge(self):
        self.job.merge()

    @rule()
    def spill(self):
        self.job.overlay.spill()

    @rule(size=st.integers(0, 2000))
    def grow(self, size):
        self.job.overlay.grown(size, 1)


class MemoryMachine(OverlayMachine):
    engine = "memory"


class LmdbMachine(OverlayMachine):
    engine = "lmdb"


class RocksDbMachine(OverlayMachine):
    engine = "rocksdb"


TestOverMemory = MemoryMachine.TestCase
TestOverMemory.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestOverLmdb = LmdbMachine.TestCase
TestOverLmdb.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestOverRocksDb = RocksDbMachine.TestCase
TestOverRocksDb.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


@pytest.fixture(params=["memory", "lmdb", "rocksdb"])
def job(request):
    job = Job(request.param)
    job.overlay.key = encode_key("key")
    yield job
    job.close()


@pytest.fixture
def overlay():
    overlay = Overlay(4)
    overlay.begin(1, Nothing())
    overlay.key = encode_key("key")
    return overlay


def fill(states):
    states["value"].update(1)
    states["list"].add("a")
    states["map"].put("x", 1)
    states["reducing"].add(1)
    states["aggregating"].add(1)


def contents(states):
    return (
        states["value"].value(),
        list(states["list"].get()),
        dict(states["map"].items()),
        states["reducing"].get(),
        states["aggregating"].get(),
    )


class TestClearing:
    FULL = (1, ["a"], {"x": 1}, 1, 1.0)
    EMPTY = (None, [], {}, None, None)

    @pytest.mark.parametrize("cuts", [(), ("before",), ("after",), ("before", "after")], ids=str)
    def test_clear_removes_all_state_of_the_key_and_of_no_other_key(self, job, cuts):
        for key in ("key", "other"):
            job.overlay.key = encode_key(key)
            fill(job.states)
        if "before" in cuts:
            job.cut()
        job.overlay.key = encode_key("key")
        for state in job.states.values():
            state.clear()
        if "after" in cuts:
            job.cut()
        job.overlay.key = encode_key("key")
        assert contents(job.states) == self.EMPTY
        assert job.states["map"].is_empty()
        assert "x" not in job.states["map"]
        job.overlay.key = encode_key("other")
        assert contents(job.states) == self.FULL

    @pytest.mark.parametrize("cut", [False, True])
    def test_values_written_after_a_clear_are_kept(self, job, cut):
        fill(job.states)
        job.cut()
        job.overlay.key = encode_key("key")
        for state in job.states.values():
            state.clear()
        fill(job.states)
        if cut:
            job.cut()
            job.overlay.key = encode_key("key")
        assert contents(job.states) == self.FULL

    def test_a_map_whose_entries_were_all_removed_is_empty(self, job):
        state = job.states["map"]
        state.put_all({"x": 1, "y": 2})
        job.cut()
        job.overlay.key = encode_key("key")
        state.remove("x")
        assert not state.is_empty()
        state.remove("y")
        assert state.is_empty()
        assert list(state.items()) == []


# -- mutable values --------------------------------------------------------------------------------------------------


@dataclass
class Basket:
    items: list[int]


class Box:
    """A class that only pickle supports."""

    def __init__(self, items):
        self.items = items


@dataclass
class Mutable:
    """A kind of mutable value: how it is declared, created and inspected."""

    type: object
    make: object
    items: object


KINDS = {
    "list": Mutable(list[int], lambda items: list(items), lambda value: value),
    "dict": Mutable(dict[str, list[int]], lambda items: {"items": list(items)}, lambda value: value["items"]),
    "dataclass": Mutable(Basket, lambda items: Basket(list(items)), lambda value: value.items),
    "Row": Mutable(
        Types.ROW_NAMED(["items"], [Types.LIST(Types.INT())]),
        lambda items: Row(items=list(items)),
        lambda value: value["items"],
    ),
    "pickled": Mutable(Types.PICKLED_BYTE_ARRAY(), lambda items: Box(list(items)), lambda value: value.items),
}


def spoil(kind, value):
    """Do what a careless function does to an object it still holds."""
    KINDS[kind].items(value).append(-1)


class Careless(KeyedProcessFunction):
    """Stores each number, and modifies every object it stored or read without storing it again."""

    def __init__(self, kind):
        self.kind = kind

    def make(self, *items):
        return KINDS[self.kind].make(items)

    def show(self, value):
        return tuple(KINDS[self.kind].items(value))

    def open(self, runtime_context):
        self.state = self.get(runtime_context, KINDS[self.kind].type)

    def process_element(self, value, ctx):
        for read in self.read():
            spoil(self.kind, read)
        stored = self.make(value)
        self.store(stored)
        spoil(self.kind, stored)
        for read in self.read():
            spoil(self.kind, read)
        yield tuple(self.show(read) for read in self.read())


class CarelessValue(Careless):
    def get(self, context, declared):
        return context.get_state(ValueStateDescriptor("s", declared))

    def read(self):
        value = self.state.value()
        return [] if value is None else [value]

    def store(self, value):
        self.state.update(value)

    def expected(self, count):
        return [((number,),) for number in range(count)]


class CarelessList(Careless):
    def get(self, context, declared):
        return context.get_list_state(ListStateDescriptor("s", declared))

    def read(self):
        return list(self.state.get())

    def store(self, value):
        self.state.add(value)

    def expected(self, count):
        return [tuple((each,) for each in range(number + 1)) for number in range(count)]


class CarelessMap(Careless):
    def get(self, context, declared):
        return context.get_map_state(MapStateDescriptor("s", str, declared))

    def read(self):
        values = [self.state.get("odd"), self.state.get("even")]
        return [*self.state.values(), *(value for value in values if value is not None)]

    def store(self, value):
        self.state.put("odd" if KINDS[self.kind].items(value)[0] % 2 else "even", value)

    def expected(self, count):
        both = [((0,), (0,))]
        for number in range(1, count):
            even, odd = number - number % 2, number if number % 2 else number - 1
            # `values` in the order of encoded keys ("odd" is shorter), then odd and even by name.
            both.append(((odd,), (even,), (odd,), (even,)))
        return both


class CarelessReducing(Careless):
    def get(self, context, declared):
        kind = self.kind

        def join(left, right):
            # Modifies and returns its argument, as many reduce functions do.
            KINDS[kind].items(left).extend(KINDS[kind].items(right))
            spoil(kind, right)
            return left

        return context.get_reducing_state(ReducingStateDescriptor("s", join, declared))

    def read(self):
        value = self.state.get()
        return [] if value is None else [value]

    def store(self, value):
        self.state.add(value)

    def expected(self, count):
        return [(tuple(range(number + 1)),) for number in range(count)]


class Gather(AggregateFunction):
    def __init__(self, kind):
        self.kind = kind

    def create_accumulator(self):
        return KINDS[self.kind].make([])

    def add(self, value, accumulator):
        KINDS[self.kind].items(accumulator).extend(KINDS[self.kind].items(value))
        return accumulator

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a


class CarelessAggregating(CarelessReducing):
    def get(self, context, declared):
        return context.get_aggregating_state(AggregatingStateDescriptor("s", Gather(self.kind), declared))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "careless",
    [CarelessValue, CarelessList, CarelessMap, CarelessReducing, CarelessAggregating],
    ids=lambda c: c.__name__,
)
def test_modifying_an_object_without_storing_it_never_changes_state(careless, kind, backend):
    function = careless(kind)
    outputs = []
    for per_epoch in (50, 1):
        options = {"backend": backend, "storage": DriverStorage(), "max_parallelism": 1}
        with keyed_harness(function, key=lambda number: "all", **options) as job:
            job.push(*range(50))
            outputs.append(job.epochs(per_epoch).output)
            assert job.epochs_run == 50 // per_epoch
    in_one, in_fifty = outputs
    assert in_one == function.expected(50)
    assert in_fifty == in_one


# -- rejected values -------------------------------------------------------------------------------------------------


class TestWrongTypes:
    @pytest.mark.parametrize(
        ("name", "use"),
        [
            ("value", lambda state: state.update("text")),
            ("value", lambda state: state.update(True)),
            ("value", lambda state: state.update(2**63)),
            ("list", lambda state: state.add(1)),
            ("list", lambda state: state.add_all(["fine", 1])),
            ("list", lambda state: state.update(["fine", 1])),
            ("map", lambda state: state.put("key", "text")),
            ("map", lambda state: state.put(1, 1)),
            ("map", lambda state: state.get(1)),
            ("map", lambda state: state.remove(1)),
            ("map", lambda state: 1 in state),
            ("reducing", lambda state: state.add("text")),
            ("aggregating", lambda state: state.add(0.5)),
        ],
    )
    def test_the_error_for_a_value_of_the_wrong_type_names_the_state(self, overlay, name, use):
        state = overlay.register(DESCRIPTORS[name])
        with pytest.raises(StateError, match=f"^State '{name}'"):
            use(state)

    def test_a_rejected_update_leaves_the_state_unchanged(self, overlay):
        state = overlay.register(DESCRIPTORS["list"])
        state.add("before")
        with pytest.raises(StateError):
            state.update(["after", 1])
        assert list(state) == ["before"]

    def test_a_string_that_cannot_be_encoded_raises_an_error_at_the_end_of_the_epoch(self, overlay):
        overlay.register(ValueStateDescriptor("name", str)).update("\ud800")
        with pytest.raises(StateError, match=r"^State 'name': .*is not a string"):
            overlay.changes()

    def test_a_map_key_out_of_range_is_rejected(self, overlay):
        state = overlay.register(MapStateDescriptor("m", int, int))
        with pytest.raises(StateError, match="State 'm', map key: "):
            state.put(2**64, 1)

    def test_numpy_scalars_are_converted_to_python_scalars(self, overlay):
        np = pytest.importorskip("numpy")
        state = overlay.register(DESCRIPTORS["value"])
        state.update(np.int64(7))
        assert type(state.value()) is int
        assert state.value() == 7


class TestNone:
    @pytest.mark.parametrize(
        ("name", "use"),
        [
            ("list", lambda state: state.add(None)),
            ("list", lambda state: state.add_all(["fine", None])),
            ("list", lambda state: state.update(["fine", None])),
            ("reducing", lambda state: state.add(None)),
            ("map", lambda state: state.put("key", None)),
            ("map", lambda state: state.put_all({"key": None})),
        ],
    )
    def test_none_cannot_be_added_to_a_state(self, overlay, name, use):
        state = overlay.register(DESCRIPTORS[name])
        with pytest.raises(StateError, match=f"State '{name}': None cannot be"):
            use(state)

    def test_none_cannot_be_added_even_if_the_type_allows_it(self, overlay):
        state = overlay.register(ListStateDescriptor("any", Types.PICKLED_BYTE_ARRAY()))
        with pytest.raises(StateError, match="None cannot be added"):
            state.add(None)

    def test_updating_a_value_state_with_none_clears_it(self, job):
        state = job.states["value"]
        state.update(1)
        job.cut()
        job.overlay.key = encode_key("key")
        state.update(None)
        assert state.value() is None
        job.cut()
        job.overlay.key = encode_key("key")
        assert state.value() is None

    def test_an_empty_update_empties_a_list(self, job):
        state = job.states["list"]
        state.add_all(["a", "b"])
        job.cut()
        job.overlay.key = encode_key("key")
        state.update([])
        assert list(state.get()) == []
        job.cut()
        job.overlay.key = encode_key("key")
        assert list(state.get()) == []


class UsesStateWhere(KeyedProcessFunction):
    def __init__(self, where):
        self.where = where

    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))
        if self.where == "open":
            self.n.value()

    def process_element(self, value, ctx):
        self.n.update(1)

    def close(self):
        if self.where == "close":
            self.n.update(2)


class TestStateWithoutAKey:
    def test_keyed_state_cannot_be_used_in_open(self):
        message = r"State 'n' was used without a current key: .* not in open\(\) or close\(\)"
        with keyed_harness(UsesStateWhere("open")) as job, pytest.raises(Exception, match=message):
            job.push("a").epoch()

    def test_keyed_state_cannot_be_used_in_close(self):
        job = keyed_harness(UsesStateWhere("close"))
        job.push("a").epoch()
        with pytest.raises(StateError, match="State 'n' was used without a current key"):
            job.close()

    @pytest.mark.parametrize("name", sorted(DESCRIPTORS))
    def test_no_kind_of_keyed_state_can_be_used_without_a_key(self, name):
        overlay = Overlay(4)
        state = overlay.register(DESCRIPTORS[name])
        overlay.begin(1, Nothing())
        reads = {"value": "value", "map": "keys"}
        for method in (reads.get(name, "get"), "clear"):
            with pytest.raises(StateError, match=f"State '{name}' was used without a current key"):
                getattr(state, method)()


class TestRegistering:
    def test_registering_a_state_twice_returns_the_same_object(self, overlay):
        first = overlay.register(ValueStateDescriptor("n", int))
        assert overlay.register(ValueStateDescriptor("n", Types.LONG())) is first

    @pytest.mark.parametrize(
        "other",
        [
            ValueStateDescriptor("n", str),
            ListStateDescriptor("n", int),
            MapStateDescriptor("n", str, int),
            ReducingStateDescriptor("n", max, int),
        ],
        ids=lambda descriptor: descriptor.schema(),
    )
    def test_two_states_with_the_same_name_and_different_types_are_rejected(self, overlay, other):
        overlay.register(ValueStateDescriptor("n", int))
        with pytest.raises(StateError, match=r"State 'n' is registered twice with different types: value long and "):
            overlay.register(other)

    def test_two_state_names_with_colliding_ids_are_rejected(self, overlay):
        seen = {}
        for number in itertools.count():
            name = f"s{number}"
            other = seen.setdefault(state_id(name), name)
            if other != name:
                break
        overlay.register(ValueStateDescriptor(other, int))
        with pytest.raises(StateError, match=f"The name '{name}' collides"):
            overlay.register(ValueStateDescriptor(name, int))

    def test_a_snapshot_records_the_schema_of_every_state(self, overlay):
        for descriptor in DESCRIPTORS.values():
            overlay.register(descriptor)
        assert overlay.schemas() == {
            "aggregating": "aggregating tuple<long, long>",
            "list": "list string",
            "map": "map string -> long",
            "reducing": "reducing long",
            "value": "value long",
        }


# -- cost of operations ------------------------------------------------------------------------------------------------


class TestChanges:
    def entries(self, changes):
        return [entry for change in changes for entry in change.entries]

    def test_an_epoch_that_only_reads_changes_nothing(self, job):
        for state in job.states.values():
            state.get("x") if state is job.states["map"] else state.value() if state is job.states[
                "value"
            ] else state.get()
        list(job.states["map"].items())
        assert job.cut() == []

    def test_changing_one_map_entry_writes_one_entry(self, job):
        state = job.states["map"]
        state.put_all({f"key {number}": number for number in range(100)})
        assert len(self.entries(job.cut())) == 100
        job.overlay.key = encode_key("key")
        state["key 50"] = -1
        assert len(self.entries(job.cut())) == 1
        job.overlay.key = encode_key("key")
        del state["key 51"]
        ((_, value),) = self.entries(job.cut())
        assert value is None

    def test_appending_to_a_list_writes_only_the_new_elements_and_reads_nothing(self, job):
        state = job.states["list"]
        state.add_all(["x" * 1000] * 100)
        job.cut()
        job.overlay.key = encode_key("key")
        state.add("y")
        ((_, chunk),) = self.entries(job.overlay.changes())
        assert len(chunk) < 10
        assert job.replicas._readers == {}, "a replica was opened"

    def test_a_delta_is_sorted_regardless_of_the_order_of_writes(self, job):
        for key in ("z", "a", "m", 3, None):
            job.overlay.key = encode_key(key)
            job.states["map"].put_all({"b": 1, "a": 2})
            job.states["value"].update(1)
            job.states["list"].update(["x"])
        changes = job.overlay.changes()
        assert [change.group for change in changes] == sorted(change.group for change in changes)
        for change in changes:
            assert change.entries == sorted(change.entries)
            assert change.cleared == sorted(change.cleared)

    def test_the_same_operations_produce_the_same_delta(self):
        deltas = []
        for _ in range(2):
            job = Job("memory")
            for key in KEYS:
                job.overlay.key = encode_key(key)
                job.states["map"].put_all({"b": 1, "a": 2})
                job.states["list"].update(["x"])
            deltas.append(job.overlay.changes())
            job.close()
        assert deltas[0] == deltas[1]


class TestLists:
    def test_elements_added_during_an_iteration_are_not_yielded(self, job):
        state = job.states["list"]
        state.add_all(["a", "b"])
        for word in state.get():
            state.add(word * 2)
        assert list(state) == ["a", "b", "aa", "bb"]

    def test_an_iterator_remains_valid_after_a_clear(self, job):
        state = job.states["list"]
        state.add_all(["a", "b", "c"])
        words = state.get()
        assert next(words) == "a"
        state.clear()
        assert list(words) == ["b", "c"]
        assert list(state) == []

    def test_elements_keep_their_order_across_many_epochs(self, job):
        state = job.states["list"]
        for number in range(300):
            job.overlay.key = encode_key("key")
            state.add(str(number))
            job.cut()
        job.overlay.key = encode_key("key")
        assert list(state) == [str(number) for number in range(300)]

    def test_unused_large_lists_are_evicted_from_the_read_cache(self, job, monkeypatch):
        monkeypatch.setattr(KeyedState, "cache_limit", 1000)
        state = job.states["list"]
        for key in range(20):
            job.overlay.key = encode_key(key)
            state.add_all(["x"] * 500)
        job.cut()
        for key in range(20):
            job.overlay.key = encode_key(key)
            assert len(list(state.get())) == 500
            held = [*state._read.values(), *state._read_before.values()]
            assert sum(map(len, held)) <= 2500

    def test_a_list_in_use_stays_in_the_read_cache_however_long_it_is(self, job, monkeypatch):
        monkeypatch.setattr(KeyedState, "cache_limit", 1000)
        state = job.states["list"]
        for key, length in (("hot", 5000), *((f"cold {number}", 300) for number in range(20))):
            job.overlay.key = encode_key(key)
            state.add_all(["x"] * length)
        job.cut()
        scans = []
        monkeypatch.setattr(state, "_scan", lambda key, scan=state._scan: scans.append(key) or scan(key))
        for number in range(20):
            for key in ("hot", f"cold {number}", "hot"):
                job.overlay.key = encode_key(key)
                next(state.get())
        assert scans.count(encode_key("hot")) == 1
        assert len(scans) == 21


class TestMaps:
    def test_the_order_of_entries_does_not_depend_on_epochs(self, job):
        state = job.states["map"]
        keys = ["b", "a", "ccc", "dd", ""]
        for key in keys:
            state[key] = 1
        at_once = list(state)
        state.clear()
        for key in reversed(keys):
            job.overlay.key = encode_key("key")
            state[key] = 1
            job.cut()
        job.overlay.key = encode_key("key")
        assert list(state) == at_once

    @pytest.mark.parametrize(
        ("key_type", "keys"),
        [
            (int, [-(2**63), -1, 0, 1, 2**63 - 1]),
            (float, [-1.5, 0.0, float("inf")]),
            (Types.TUPLE([Types.STRING(), Types.LONG()]), [("a", 1), ("a", 2), ("", -1)]),
            (bytes, [b"", b"\xff" * 600]),
            (bool, [False, True]),
        ],
        ids=["int", "float", "tuple", "bytes", "bool"],
    )
    def test_map_keys_of_any_type_are_returned_unchanged(self, job, key_type, keys):
        state = job.overlay.register(MapStateDescriptor("other", key_type, str))
        for key in keys:
            state[key] = repr(key)
        for _ in range(2):
            assert {key: state[key] for key in keys} == {key: repr(key) for key in keys}
            assert sorted(map(repr, state)) == sorted(map(repr, keys))
            job.cut()
            job.overlay.key = encode_key("key")


class TestLongKeys:
    """LMDB accepts keys of at most 511 bytes."""

    def test_keys_of_any_length_are_kept_apart(self, job):
        keys = ["k" * length for length in (1, 400, 480, 490, 500, 511, 512, 600, 5000)] + ["k" * 599 + "l"]
        for number, key in enumerate(keys):
            job.overlay.key = encode_key(key)
            job.states["value"].update(number)
            job.states["list"].add(str(number))
            job.states["map"].put_all({"short": number, "m" * 700: number})
        job.cut()
        for number, key in enumerate(keys):
            job.overlay.key = encode_key(key)
            assert job.states["value"].value() == number
            assert list(job.states["list"]) == [str(number)]
            assert dict(job.states["map"].items()) == {"short": number, "m" * 700: number}
        job.overlay.key = encode_key(keys[-2])
        job.states["map"].clear()
        job.states["list"].clear()
        job.cut()
        job.overlay.key = encode_key(keys[-2])
        assert job.states["map"].is_empty()
        job.overlay.key = encode_key(keys[-1])
        assert not job.states["map"].is_empty()
