"""Savepoints written from DataFrames or by changing another one: the job sees exactly the changes."""

import datetime
import decimal
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_jobs import DESCRIPTORS, Everything, Item, Place, Remembering, environment, everything, item, rows, saved

from penstock.common import Types
from penstock.common.time import Time
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.tables import (
    OperatorTransformation,
    Savepoint,
    SavepointWriter,
)
from penstock.tables.frames import NotAFrame
from penstock.tables.shapes import NotWritable
from penstock.tables.writer import BadSavepointWrite
from penstock.testing import JobHarness

FRAME = pd.DataFrame({"who": ["a", "b", "c"], "n": [1, 2, 3], "due": [10**13, None, 10**13 + 1]})


AWARE = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)


@dataclass
class Box:
    items: list[Item]
    by_name: dict[str, Item]
    open_for: datetime.timedelta
    closed: tuple[int, datetime.datetime]
    places: dict[str, list[Place]]


def restored(stream, path, **options):
    return JobHarness(stream, from_savepoint=str(path), **options)


NUMBERS = [[("a", 1), ("b", 2), ("a", 3)], [("a", 4), ("c", 5)]]
STATES = [*DESCRIPTORS, "fading"]


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory):
    return saved(everything(), tmp_path_factory.mktemp("savepoints"), *NUMBERS, parallelism=2)


def all_states(job):
    return {name: job.states(name) for name in STATES}


def tables(savepoint):
    """Return all states of a savepoint as rows."""
    return {(info.uid, info.name): rows(savepoint.state(info.uid, info.name)) for info in savepoint.states()}


class TestChangingASavepoint:
    def test_writing_without_changes_makes_a_copy(self, savepoint, tmp_path):
        path = SavepointWriter.from_existing_savepoint(savepoint).write(tmp_path / "copy")
        assert savepoint.differences(Savepoint.load(path)) == []
        with restored(everything(), savepoint.path) as one, restored(everything(), path) as other:
            assert all_states(one) == all_states(other)

    def test_transform_state_changes_only_that_state(self, savepoint, tmp_path):
        def raised(frame):
            frame["value.price"] = frame["value.price"].map(lambda price: str(decimal.Decimal(price) + 1))
            return frame[frame["key"] != "b"]

        writer = SavepointWriter.from_existing_savepoint(savepoint).transform_state("all", "item", raised)
        path = writer.write(tmp_path / "changed")
        before, after = tables(savepoint), tables(Savepoint.load(path))
        assert {name for name in before if before[name] != after[name]} == {("all", "item")}
        with restored(everything(), savepoint.path) as one, restored(everything(), path) as other:
            old, new = all_states(one), all_states(other)
        assert new.pop("item") == {
            key: Item(i.name, i.price + 1, i.seen, i.colour, i.mark) for key, i in old.pop("item").items() if key != "b"
        }
        assert new == old

    def test_transform_state_can_add_keys(self, savepoint, tmp_path):
        def more(table):
            return pa.concat_tables([table, pa.table({"key": ["new"], "value": [42]}, schema=table.schema)])

        writer = SavepointWriter.from_existing_savepoint(savepoint).transform_state("all", "count", more, frame="arrow")
        with restored(everything(), writer.write(tmp_path / "more"), parallelism=3) as job:
            assert job.states("count") == {"a": 3, "b": 1, "c": 1, "new": 42}
            job.push(("new", 1)).epoch()
            assert job.states("count")["new"] == 43

    def test_lists_maps_timers_and_operator_state_can_be_transformed(self, savepoint, tmp_path):
        def reversed_lists(frame):
            frame["index"] = -frame["index"]
            return frame

        def doubled(frame):
            frame["value.x"] *= 2
            return frame

        def later(frame):
            frame = frame[frame["domain"] == "PROCESSING_TIME"].copy()
            frame["timestamp"] += 1000
            return frame

        def evens(frame):
            return frame[frame["value"] % 2 == 0]

        path = (
            SavepointWriter.from_existing_savepoint(savepoint)
            .transform_state("all", "values", reversed_lists)
            .transform_state("all", "places", doubled)
            .transform_state("all", "timers", later)
            .transform_state("remember", "split", evens)
            .transform_state("remember", "rules", doubled)
            .write(tmp_path / "changed")
        )
        after = Savepoint.load(path)
        with restored(everything(), path) as job:
            assert job.states("values") == {"a": [4, 3, 1], "b": [2], "c": [5]}
            assert job.states("places")["a"] == {"p1": Place(8, 2.0), "p0": Place(6, 1.5)}
            job.set_clock(10**14 + 1001)
            assert job.output == [("a", 10**14 + 1001)]
        assert {row["value"] for row in after.state("remember", "split").rows()} == {2, 4}
        assert {row["value"]["x"] for row in after.state("remember", "rules").rows()} == {2, 4, 6, 8, 10}
        before = tables(savepoint)
        changed = {name for name, found in tables(after).items() if before[name] != found}
        assert changed == {
            ("all", "values"),
            ("all", "places"),
            ("all", "timers"),
            ("remember", "split"),
            ("remember", "rules"),
        }

    def test_state_can_be_moved_to_another_uid(self, savepoint, tmp_path):
        writer = SavepointWriter.from_existing_savepoint(savepoint).change_operator_identifier("all", "every")
        path = writer.change_operator_identifier("numbers", "digits").write(tmp_path / "renamed")
        found = Savepoint.load(path)
        assert set(found.metadata.sources) == {"digits"}
        stream = environment().from_collection([]).uid("digits").process(Remembering()).uid("remember")
        with restored(stream.key_by(lambda pair: pair[0]).process(Everything()).uid("every"), path) as job:
            assert job.states("count") == {"a": 3, "b": 1, "c": 1}

    def test_operators_can_be_removed_and_added(self, savepoint, tmp_path):
        bootstrap = OperatorTransformation.bootstrap_with(FRAME).key_by("who").state(DESCRIPTORS["count"](), "n")
        writer = SavepointWriter.from_existing_savepoint(savepoint)
        with pytest.raises(BadSavepointWrite, match=r"remove_operator\('all'\) first"):
            writer.with_operator("all", bootstrap)
        path = writer.remove_operator("all").with_operator("all", bootstrap).write(tmp_path / "replaced")
        with restored(everything(), path) as job:
            assert job.states("count") == {"a": 1, "b": 2, "c": 3}
            assert job.states("values") == {}
        assert {row["value"] for row in Savepoint.load(path).state("remember", "split").rows()} == {1, 2, 3, 4, 5}

    @pytest.mark.parametrize("groups", [1, 7, 1000])
    def test_changing_max_parallelism_repartitions_keys(self, savepoint, tmp_path, groups):
        path = SavepointWriter.from_existing_savepoint(savepoint).change_max_parallelism(groups).write(tmp_path / "new")
        assert tables(Savepoint.load(path)) == tables(savepoint)
        with (
            restored(everything(), savepoint.path) as one,
            restored(everything(), path, max_parallelism=groups, parallelism=min(groups, 3)) as other,
        ):
            assert all_states(one) == all_states(other)
            other.set_clock(10**14 + 1)
            assert other.output == [("a", 10**14 + 1)]

    def test_invalid_transformations_are_rejected(self, savepoint, tmp_path):
        def broken(change):
            return SavepointWriter.from_existing_savepoint(savepoint).transform_state("all", "item", change)

        def no_number(frame):
            frame["value.price"] = "cheap"
            return frame

        def other_columns(frame):
            return frame.rename(columns={"value.price": "value.cost"})

        with pytest.raises(NotWritable, match=r"State 'item' of operator .* \(uid 'all'\).*is not a valid dataclass"):
            broken(no_number).write(tmp_path / "one")
        with pytest.raises(NotAFrame, match=r"no column 'value'"):
            broken(other_columns).write(tmp_path / "two")
        with pytest.raises(NotWritable, match=r"another row has the same key"):
            broken(lambda frame: pd.concat([frame, frame])).write(tmp_path / "three")
        assert not any((tmp_path / name).exists() and list((tmp_path / name).rglob("*")) for name in ("one", "two"))

    @pytest.mark.parametrize("frame", ["pandas", "arrow"])
    def test_unchanged_rows_keep_their_stored_bytes(self, tmp_path, frame):
        box = Box([item(1), item(2)], {"k": item(3)}, datetime.timedelta(hours=1), (5, AWARE), {"p": [Place(1, 0.5)]})
        rows = [{"key": key, "box": box} for key in ("a", "b")]
        bootstrap = OperatorTransformation.bootstrap_with(rows).key_by("key")
        bootstrap.state(ValueStateDescriptor("box", Box), "box").state(ListStateDescriptor("boxes", Box), "box")
        made = SavepointWriter.new_savepoint().with_operator("all", bootstrap).write(tmp_path / "made")
        writer = SavepointWriter.from_existing_savepoint(made)
        for state in ("box", "boxes"):
            writer.transform_state("all", state, lambda table: table, frame=frame)
        again = writer.write(tmp_path / "again")
        assert Savepoint.load(made).differences(Savepoint.load(again)) == []

    def test_write_does_not_overwrite_a_savepoint(self, savepoint):
        with pytest.raises(BadSavepointWrite, match="already"):
            SavepointWriter.from_existing_savepoint(savepoint).write(savepoint.path)


def test_savepoints_can_be_written_to_an_object_store(tmp_path):
    bootstrap = OperatorTransformation.bootstrap_with(FRAME).key_by("who").state(DESCRIPTORS["count"](), "n")
    directory = f"memory://{tmp_path.name}"
    made = SavepointWriter.new_savepoint().with_operator("all", bootstrap).write(f"{directory}/made")
    writer = SavepointWriter.from_existing_savepoint(made).change_max_parallelism(64)
    changed = writer.transform_state("all", "count", lambda frame: frame[frame["value"] > 1]).write(f"{directory}/more")
    assert rows(Savepoint.load(changed).state("all", "count")) == [("b", 2), ("c", 3)]
    assert Savepoint.load(changed).state("all", "count").get("b") == [{"key": "b", "value": 2}]


class TestWindows:
    @pytest.mark.parametrize(
        "windows",
        [TumblingEventTimeWindows.of(Time.milliseconds(100)), EventTimeSessionWindows.with_gap(Time.milliseconds(50))],
        ids=["tumbling", "sessions"],
    )
    def test_windows_fire_with_changed_contents_after_repartitioning(self, tmp_path, windows):
        pair = Types.TUPLE([Types.STRING(), Types.LONG()])

        def summed():
            strategy = WatermarkStrategy.for_monotonous_timestamps()
            stream = environment().from_collection([], type_info=pair).uid("numbers")
            stream = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda v, time: v[1]))
            keyed = stream.key_by(lambda p: p[0]).window(windows)
            return keyed.reduce(lambda a, b: (a[0], a[1] + b[1]), output_type=pair).uid("sum")

        def raised(frame):
            frame["value.f1"] += 1000
            return frame

        before = saved(summed(), tmp_path, [("a", 110), ("b", 110)], [("a", 120)])
        writer = SavepointWriter.from_existing_savepoint(before).change_max_parallelism(7)
        path = writer.transform_state("sum", "window contents", raised).write(tmp_path / "changed")
        with restored(summed(), path, max_parallelism=7, parallelism=2) as job:
            job.push(("a", 130), ("a", 500)).epoch()
            assert sorted(job.output) == [("a", 1360), ("b", 1110)]


pairs = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-1000, 1000)), max_size=12)


CHANGES = {
    "count": lambda value: value * 2,
    "largest": lambda value: value - 1,
    "values": lambda value: value + 7,
    "fading": lambda value: value + "!",
}
"""Changes to the individual values of some states."""


@settings(max_examples=12)
@given(
    first=pairs,
    second=pairs,
    state=st.sampled_from(STATES),
    gone=st.sets(st.sampled_from("abcdefgh"), max_size=3),
    changed=st.sets(st.sampled_from("abcdefgh"), max_size=4),
    groups=st.sampled_from([None, 5, 64]),
    parallelism=st.integers(1, 3),
)
def test_the_job_sees_exactly_the_changes(tmp_path_factory, first, second, state, gone, changed, groups, parallelism):
    """Read, change the values of some keys, remove others, write, restore: the job sees exactly that."""
    directory = tmp_path_factory.mktemp("property")
    before = saved(everything(), directory, first, second, parallelism=parallelism)
    change = CHANGES.get(state, lambda value: value)

    def transform(frame):
        frame = frame[~frame["key"].isin(gone)].copy()
        if state in CHANGES:
            picked = frame["key"].isin(changed)
            frame.loc[picked, "value"] = frame.loc[picked, "value"].map(change)
        return frame

    writer = SavepointWriter.from_existing_savepoint(before).transform_state("all", state, transform)
    if groups is not None:
        writer.change_max_parallelism(groups)
    path = writer.write(directory / "changed")
    with (
        restored(everything(), before.path) as one,
        restored(everything(), path, max_parallelism=groups, parallelism=parallelism) as other,
    ):
        old, new = all_states(one), all_states(other)
    expected = {key: value for key, value in old.pop(state).items() if key not in gone}
    for key in changed & expected.keys():
        value = expected[key]
        expected[key] = [change(each) for each in value] if isinstance(value, list) else change(value)
    assert new.pop(state) == expected
    assert new == old
    others = tables(before), tables(Savepoint.load(path))
    assert {name for name in others[0] if others[0][name] != others[1][name]} <= {("all", state)}
