"""State types that change with the program: stored values are read as the new type, or the job is refused."""

import enum
from dataclasses import dataclass
from typing import Annotated

import pytest
from evolutions import (
    ALLOWED,
    FORBIDDEN,
    KEYED,
    KINDS,
    READ,
    Order,
    Reordered,
    State,
    WithOneInFront,
    WithTags,
    called,
    keeping,
)

from penstock.checkpoint.manifest import NotRestorable
from penstock.common import RenamedFrom, Types
from penstock.datastream import KeyedProcessFunction, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import CountTrigger, GlobalWindows
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.errors import PenstockError
from penstock.state.entries import StateTypeChanged
from penstock.state.local_storage import LocalStorage
from penstock.state.serializers import OrPickled
from penstock.state.serializers.migrations import Versions, encode_migration
from penstock.state.stored_types import StoredType, migrations_to
from penstock.testing import JobHarness

BACKENDS = ["memory", "filesystem", "rocksdb"]
RESTORES = ["checkpoint", "savepoint"]


def restarted(job, restore, tmp_path, stream, **options):
    """Return a job that resumes with another program."""
    if restore == "checkpoint":
        return JobHarness(stream, storage=job.storage, **options)
    return JobHarness(stream, from_savepoint=job.savepoint(tmp_path), **options)


def before(cases):
    return {name: (case[0], case[1]) for name, case in cases.items()}


def after(cases):
    return {name: (case[2], case[3]) for name, case in cases.items()}


def in_lists(kind, *values):
    return list(values) if "list" in kind else values[-1]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("restore", RESTORES)
def test_stored_values_are_read_as_the_new_type_in_every_kind_of_state(backend, restore, tmp_path):
    with JobHarness(keeping(before(ALLOWED)), backend=backend) as job:
        job.push(("write", "old"), ("write", "both")).epoch()
        with restarted(job, restore, tmp_path, keeping(after(ALLOWED)), backend=backend) as changed:
            for round in range(3):
                if round == 1:
                    changed.push(("write", "both"), ("write", "new")).epoch()
                if round == 2:
                    changed.lose_replicas()
                    changed.crash()
                changed.push(("read", "old"), ("read", "both"), ("read", "new"), ("read", "none")).epoch()
                read = {(key, name, kind): value for key, name, kind, value in changed.output}
                changed.output.clear()
                for name, (_, _, _, value) in ALLOWED.items():
                    for kind in KEYED:
                        twice = in_lists(kind, value, value) if round else in_lists(kind, value)
                        once = in_lists(kind, value)
                        nothing = in_lists(kind) if "list" in kind else None
                        assert read["old", name, kind] == once, (name, kind)
                        assert type_of(read["old", name, kind]) is type_of(once)
                        assert read["both", name, kind] == twice, (name, kind)
                        assert read["new", name, kind] == (once if round else nothing), (name, kind)
                        assert read["none", name, kind] == nothing
                    writes = 4 if round else 2
                    assert read["old", name, "operator list"] == [value] * writes, name
                    assert read["old", name, "union list"] == [value] * writes, name
                    assert read["old", name, "broadcast"] == value, name


def type_of(value):
    return type(value[0]) if isinstance(value, list) and value else type(value)


@pytest.mark.parametrize("name", FORBIDDEN)
@pytest.mark.parametrize("restore", RESTORES)
def test_incompatible_types_are_refused_in_every_kind_of_state(name, restore, tmp_path):
    case = {name: FORBIDDEN[name]}
    with JobHarness(keeping(before(case)), storage=LocalStorage(str(tmp_path / "checkpoints"))) as job:
        job.push(("write", "a")).epoch()
        for kind in KINDS:
            stream = keeping({name: (case[name][2], None)}, [kind])
            READ.clear()
            with (
                restarted(job, restore, tmp_path, stream) as changed,
                pytest.raises(UserFunctionFailed, match=case[name][3]) as raised,
            ):
                changed.push(("read", "a")).epoch()
            assert changed.output == []
            assert READ == [], "a record was read before the refusal"
            error = str(raised.value)
            assert f"'{kind} {name}' of operator 'keeper' (uid 'keeper')" in error
            assert "Declare it as it was, or give the new state another name." in error
        # Nothing was changed: the old program goes on.
        with restarted(job, restore, tmp_path, keeping(before(case), ["value"])) as again:
            again.push(("read", "a")).epoch()
            assert again.output[-1][-1] == case[name][1]
            assert READ == [("read", "a")]


@called("Item")
@dataclass
class First:
    name: str
    size: int


@called("Item")
@dataclass
class Second:
    name: str
    colour: str = "red"


@called("Item")
@dataclass
class Third:
    """`size` is back with another type, and `colour` has another default."""

    title: Annotated[str, RenamedFrom("name")]
    size: str = "unknown"
    colour: str = "blue"


@called("Item")
@dataclass
class Fourth:
    """`colour` no longer needs a default, because every stored item has one."""

    title: str
    size: str
    colour: str


@dataclass
class Elsewhere:
    title: str
    size: str
    colour: str


class Items(KeyedProcessFunction):
    """Stores an item per key, in a value and in a list: (key, fields) stores one, (key, None) emits it."""

    def __init__(self, cls):
        self.cls = cls

    def open(self, runtime_context):
        self.item = runtime_context.get_state(ValueStateDescriptor("item", self.cls))
        self.items = runtime_context.get_state(ValueStateDescriptor("items", list[self.cls]))

    def process_element(self, record, ctx):
        key, fields = record
        if fields is not None:
            self.item.update(self.cls(*fields))
            self.items.update([self.cls(*fields), *(self.items.value() or [])])
        else:
            yield key, self.item.value(), self.items.value()


def items(cls):
    env = StreamExecutionEnvironment.get_execution_environment()
    records = env.from_collection([]).uid("records")
    return records.key_by(lambda record: record[0]).process(Items(cls)).uid("items")


@pytest.mark.parametrize("restore", RESTORES)
def test_every_value_is_migrated_through_all_versions_since_it_was_written(restore, tmp_path):
    jobs = [JobHarness(items(First), storage=LocalStorage(str(tmp_path / "checkpoints")), parallelism=2)]
    jobs[0].push(*((key, ("n", 1)) for key in "abcd")).epoch()
    for cls, key, fields, parallelism in [
        (Second, "b", ("m", "green"), 3),
        (Third, "c", ("t", "large", "black"), 1),
        (Fourth, "d", ("u", "small", "white"), 4),
        (Elsewhere, "e", ("v", "tiny", "grey"), 2),
    ]:
        jobs.append(restarted(jobs[-1], restore, tmp_path, items(cls), parallelism=parallelism))
        jobs[-1].push((key, fields)).epoch()
    last = jobs[-1]
    last.crash()
    last.push(*((key, None) for key in "abcde")).epoch()
    found = {key: (item, held) for key, item, held in last.output}
    # `colour` has the default of the version that added it, though the value was not read then.
    a = Elsewhere("n", "unknown", "red")
    assert found["a"] == (a, [a])
    assert found["b"] == (Elsewhere("m", "unknown", "green"), [Elsewhere("m", "unknown", "green"), a])
    assert found["c"] == (Elsewhere("t", "large", "black"), [Elsewhere("t", "large", "black"), a])
    assert found["d"] == (Elsewhere("u", "small", "white"), [Elsewhere("u", "small", "white"), a])
    assert found["e"] == (Elsewhere("v", "tiny", "grey"), [Elsewhere("v", "tiny", "grey")])
    assert last.states("item") == {key: item for key, (item, _) in found.items()}
    for job in jobs:
        job.close()


def test_an_undeclared_state_keeps_its_type_and_versions(tmp_path):
    storage = LocalStorage(str(tmp_path / "checkpoints"))
    kept = {"kept": (Order, Order(1, 2, "n"))}
    with JobHarness(keeping(kept, ["value"]), storage=storage) as job:
        job.push(("write", "a")).epoch()
    tagged = {"kept": (WithTags, WithTags(3, 4, "m", ["t"]))}
    with JobHarness(keeping(tagged, ["value"]), storage=storage) as job:
        job.push(("write", "b")).epoch()
    with JobHarness(keeping({"other": (int, 1)}, ["value"]), storage=storage) as job:
        job.push(("write", "a")).epoch()
        job.push(("write", "a")).epoch()
    with JobHarness(keeping({"kept": (str, "")}, ["value"]), storage=storage) as job:
        job.push(("read", "a"))
        with pytest.raises(UserFunctionFailed, match="is stored as 'value dataclass"):
            job.epoch()
    with JobHarness(keeping(tagged, ["value"]), storage=storage) as job:
        job.push(("read", "a"), ("read", "b")).epoch()
        assert [value for *_, value in job.output] == [WithTags(1, 2, "n", ["new"]), WithTags(3, 4, "m", ["t"])]


class Counts(KeyedProcessFunction):
    """Counts how often each number came with a key, in a map whose keys have this type."""

    def __init__(self, kind):
        self.kind = kind

    def open(self, runtime_context):
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", self.kind, int))

    def process_element(self, record, ctx):
        self.counts.put(record[1], (self.counts.get(record[1]) or 0) + 1)
        yield record[1], self.counts.get(record[1])


def counts(kind):
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([]).uid("records").key_by(lambda record: record[0]).process(Counts(kind)).uid("counts")


def test_map_keys_can_be_widened_if_their_bytes_stay_the_same(tmp_path):
    storage = LocalStorage(str(tmp_path))
    with JobHarness(counts(Types.INT()), storage=storage) as job:
        job.push(("a", 7), ("a", 8)).epoch()
    with JobHarness(counts(int), storage=storage) as job:
        job.push(("a", 7), ("a", 2**40)).epoch()
        assert job.output == [(7, 2), (2**40, 1)]
        assert job.states("counts") == {"a": {7: 2, 8: 1, 2**40: 1}}
    with JobHarness(counts(float), storage=storage) as job:
        job.push(("a", 7.0))
        with pytest.raises(
            UserFunctionFailed, match="In the keys of the map: it was 'long' and is declared as 'double'"
        ):
            job.epoch()


def test_map_keys_can_be_enum_members_that_keep_their_values(tmp_path):
    @called("State")
    class OneMore(enum.Enum):
        REFUNDED = 4
        CANCELLED = 3
        PAID = 2
        OPEN = 1

    storage = LocalStorage(str(tmp_path))
    with JobHarness(counts(State), storage=storage) as job:
        job.push(("a", State.PAID), ("a", State.CANCELLED)).epoch()
    with JobHarness(counts(OneMore), storage=storage) as job:
        job.push(("a", OneMore.PAID), ("a", OneMore.REFUNDED)).epoch()
        assert job.output == [(OneMore.PAID, 2), (OneMore.REFUNDED, 1)]
    with JobHarness(counts(Reordered), storage=storage) as job:
        job.push(("a", Reordered.PAID))
        with pytest.raises(UserFunctionFailed, match="In the keys of the map"):
            job.epoch()


@pytest.mark.parametrize("restore", RESTORES)
def test_an_enum_member_keeps_its_name_across_several_orders(restore, tmp_path):
    jobs = [JobHarness(keeping({"state": (State, State.PAID)}, ["value", "list"]), parallelism=2)]
    jobs[0].push(("write", "1")).epoch()
    for number, (cls, parallelism) in enumerate([(Reordered, 3), (State, 1), (Reordered, 2), (WithOneInFront, 4)], 2):
        program = keeping({"state": (cls, cls.PAID)}, ["value", "list"])
        jobs.append(restarted(jobs[-1], restore, tmp_path, program, parallelism=parallelism))
        jobs[-1].push(("write", str(number))).epoch()
        jobs[-1].crash()
        jobs[-1].lose_replicas()
        jobs[-1].push(*(("read", str(key)) for key in range(1, number + 1))).epoch()
        assert [value for *_, kind, value in jobs[-1].output if kind == "value"] == [cls.PAID] * number
        assert [value for *_, kind, value in jobs[-1].output if kind == "list"] == [[cls.PAID]] * number
    for job in jobs:
        job.close()


def test_a_stored_value_that_never_was_an_enum_member_is_refused():
    versions = Versions((encode_migration(["member", [[1, 2], [2, 1]]], False),))
    assert versions.current(b"\x01") == b"\x02"
    with pytest.raises(PenstockError, match="A stored value is 3, which no member of its enum had"):
        versions.current(b"\x03")


def test_a_state_with_an_unchanged_type_is_stored_without_a_version(tmp_path):
    """It costs nothing: its values carry no version, and reads and writes use the serializer's functions directly."""
    with JobHarness(items(First)) as job:
        job.push(("a", ("n", 1))).epoch()
        (overlay,) = (run.overlay for run in job._engine.runs.values() if run.overlay is not None)
        state = overlay.states["item"]
        assert state._decode is state.descriptor.serializer.decode
        assert state._encode is state.descriptor.serializer.encode


@called("Seen")
@dataclass
class Seen:
    n: int


@called("Seen")
@dataclass
class NewSeen:
    n: float
    since: int = 7


class Windowed(ProcessWindowFunction):
    """Keeps per-window state, which is accessed only when a window fires."""

    def __init__(self, cls, *fields):
        self.cls = cls
        self.fields = fields

    def process(self, key, context, elements):
        state = context.window_state().get_state(ValueStateDescriptor("seen", self.cls))
        before = state.value()
        state.update(self.cls(1 if before is None else before.n + 1, *self.fields))
        yield key, before

    def clear(self, context):
        pass


def windowed(cls, *fields):
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection([]).uid("records").key_by(lambda record: record)
    windows = keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(1))
    return windows.process(Windowed(cls, *fields)).uid("windowed")


def test_a_state_accessed_by_only_some_subtasks_has_one_type(tmp_path):
    """The other subtasks report its previous type."""
    storage = LocalStorage(str(tmp_path))
    keys = list("abcdefgh")
    with JobHarness(windowed(Seen), storage=storage, parallelism=4) as job:
        job.push(*keys).epoch()
    with JobHarness(windowed(NewSeen, 9), storage=storage, parallelism=4) as job:
        for key in keys:
            job.push(key).epoch()
        assert job.output == [(key, NewSeen(1.0, 7)) for key in keys]
    with JobHarness(windowed(NewSeen), storage=storage, parallelism=3) as job:
        job.push(*keys).epoch()
        assert sorted(job.output) == [(key, NewSeen(2.0, 9)) for key in keys]


def counted_by(key_type):
    """Count records by their first field, which key_by declares to be of this type."""
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection([]).uid("records").key_by(lambda record: record[0], key_type)
    return keyed.process(Counts(int)).uid("counts")


@pytest.mark.parametrize("restore", RESTORES)
class TestTheTypeOfKeys:
    def test_the_key_type_can_be_widened_omitted_and_declared_again(self, restore, tmp_path):
        with JobHarness(counted_by(Types.INT()), storage=LocalStorage(str(tmp_path / "checkpoints"))) as job:
            job.push((1, 7)).epoch()
            for key_type in (Types.LONG(), None, int):
                job = restarted(job, restore, tmp_path, counted_by(key_type))
                job.push((1, 7)).epoch()
            assert job.output == [(7, 4)]

    def test_the_key_type_cannot_change_to_an_incompatible_one(self, restore, tmp_path):
        with JobHarness(counted_by(Types.INT()), storage=LocalStorage(str(tmp_path / "checkpoints"))) as job:
            job.push((1, 7)).epoch()
            # A program without a declaration does not erase the stored type.
            job = restarted(job, restore, tmp_path, counted_by(None))
            job.epoch(0)
            problem = r"\(uid 'counts'\) in .* is stored by keys of type 'int', but key_by now declares 'string'"
            with pytest.raises(NotRestorable, match=problem):
                restarted(job, restore, tmp_path, counted_by(str))


def test_a_type_stored_by_class_name_only_is_accepted_unchanged():
    descriptor = ValueStateDescriptor("s", list[Order])
    descriptor.serializer = OrPickled(list[Order])
    before = StoredType("value list<dataclass evolutions.Order> or pickle")
    assert migrations_to(before, descriptor, "State 's'") == ()
    with pytest.raises(StateTypeChanged, match="State 's' is stored as"):
        migrations_to(StoredType("value list<dataclass evolutions.Other> or pickle"), descriptor, "State 's'")
