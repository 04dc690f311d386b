"""Tables of states without a declared type: plain values are JSON text with their types, and can be changed."""

import json
import math
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Time, Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, ProcessWindowFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.state.serializers.leaves import decode_any, encode_any
from penstock.tables import Savepoint, SavepointWriter
from penstock.tables.plain_text import object_of, part_of_text, stored_of_text, text_of_part, text_of_stored
from penstock.tables.shapes import NotWritable
from penstock.testing import JobHarness

ANY = Types.PICKLED_BYTE_ARRAY()


class Own:
    """An object that only pickle can encode."""

    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return isinstance(other, Own) and self.n == other.n

    def __hash__(self):
        return hash(self.n)


class Keep(KeyedProcessFunction):
    def open(self, runtime_context):
        self.value = runtime_context.get_state(ValueStateDescriptor("value", ANY))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", ANY))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", ANY, ANY))
        self.nested = runtime_context.get_state(ValueStateDescriptor("nested", Types.LIST(ANY)))

    def process_element(self, record, ctx):
        key, value = record
        if value is not None:
            self.value.update(value)
            self.list.add(value)
            self.map.put(key, value)
            self.nested.update([value, None])
        yield key, self.value.value(), list(self.list.get()), dict(self.map.items()), self.nested.value()


def program():
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([]).uid("records").key_by(lambda record: str(record[0])).process(Keep()).uid("keep")


VALUES = {
    "json": {"id": 1, "user": {"name": "ä", "tags": ["a"]}, "price": 1.5, "ok": None},
    "tuple": ("a", 1, (True, b"x")),
    "set": {1, 2},
    "dated": {"at": datetime(2024, 1, 1, 12, tzinfo=UTC), "amount": Decimal("1.50")},
    "keys": {1: "one", (1, 2): "pair"},
    "pickle": Own(1),
}


@pytest.fixture
def path(tmp_path):
    with JobHarness(program(), parallelism=2) as job:
        job.push(*VALUES.items()).epoch()
        return job.savepoint(tmp_path / "savepoint")


def shown(path, name):
    return {row["key"]: row["value"] for row in Savepoint.load(path).state("keep", name).rows()}


def test_plain_values_are_shown_as_json_with_their_types(path):
    values = shown(path, "value")
    assert values["json"] == '{"id": 1, "user": {"name": "ä", "tags": ["a"]}, "price": 1.5, "ok": null}'
    assert values["tuple"] == '{"$tuple": ["a", 1, {"$tuple": [true, {"$bytes": "eA=="}]}]}'
    assert values["set"] == '{"$set": [1, 2]}'
    assert values["dated"] == '{"at": {"$datetime": "2024-01-01T12:00:00+00:00"}, "amount": {"$decimal": "1.50"}}'
    assert values["keys"] == '{"$dict": [[1, "one"], [{"$tuple": [1, 2]}, "pair"]]}'
    assert json.loads(values["pickle"]).keys() == {"$pickle"}
    assert shown(path, "list") == shown(path, "map") == values
    assert shown(path, "nested") == {key: [text, None] for key, text in values.items()}
    savepoint = Savepoint.load(path)
    assert savepoint.state("keep", "value").schema.field("value").type == pa.string()
    assert {info.name: info.type for info in savepoint.states("keep")} == {
        "value": "any",
        "list": "any",
        "map": "any -> any",
        "nested": "list<any?>",
    }
    assert {row["map_key"] for row in savepoint.state("keep", "map").rows()} == {f'"{key}"' for key in VALUES}


def test_values_are_objects_with_allow_pickle(path):
    for name in ("value", "list", "map"):
        frame = Savepoint.load(path).state("keep", name, allow_pickle=True).to_pandas()
        assert dict(zip(frame["key"], frame["value"], strict=True)) == VALUES


@pytest.mark.parametrize("name", ["value", "list", "map", "nested"])
def test_the_job_reads_values_changed_as_text(path, name, tmp_path):
    changes = {"json": {"id": 2}, "tuple": ("b", 2), "set": frozenset({Decimal(1)}), "dated": date(2024, 2, 29)}

    def changed(table):
        texts = {key: text_of_part(part_of_text(_typed(value))) for key, value in changes.items()}
        rows = table.to_pylist()
        for row in rows:
            if row["key"] in texts:
                text = texts[row["key"]]
                row["value"] = [text, None] if name == "nested" else text
        return pa.Table.from_pylist(rows, table.schema)

    writer = SavepointWriter.from_existing_savepoint(path).transform_state("keep", name, changed, frame="arrow")
    with JobHarness(program(), from_savepoint=writer.write(str(tmp_path / "changed"))) as job:
        job.push(*((key, None) for key in VALUES)).epoch()
        read = {key: dict(zip(("value", "list", "map", "nested"), states)) for key, *states in job.output}
    for key, before in VALUES.items():
        for each in ("value", "list", "map", "nested"):
            value = changes.get(key, before) if each == name else before
            expected = {"list": [value], "map": {key: value}, "nested": [value, None]}.get(each, value)
            assert read[key][each] == expected
            assert type(read[key]["value"]) is type(changes.get(key, before) if name == "value" else before)


def _typed(value):
    """Return the expected text of a value."""
    texts = {
        dict: lambda: json.dumps(value),
        tuple: lambda: json.dumps({"$tuple": list(value)}),
        frozenset: lambda: '{"$frozenset": [{"$decimal": "1"}]}',
        date: lambda: json.dumps({"$date": value.isoformat()}),
    }
    return texts[type(value)]()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "NaN",
        '{"$what": 1}',
        '{"a": 1, "$b": 2}',
        '{"$tuple": 5}',
        '{"$decimal": "x"}',
        '{"$set": [[1]]}',
        '[{"$pickle": "gAVLAS4="}]',
    ],
)
def test_invalid_text_is_rejected_and_nothing_is_written(path, text, tmp_path):
    def changed(table):
        table.loc[table["key"] == "json", "value"] = text
        return table

    writer = SavepointWriter.from_existing_savepoint(path).transform_state("keep", "value", changed)
    with pytest.raises(NotWritable, match="State 'value' of operator"):
        writer.write(str(tmp_path / "changed"))
    assert not (tmp_path / "changed").exists()


@pytest.mark.parametrize(
    "value",
    [
        None,
        2**9000,
        math.inf,
        -0.0,
        "\udc80",
        {"$tuple": [1]},
        {"a": {"$b": 1}},
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1), "one")),
        time(1, 2, tzinfo=timezone(timedelta(minutes=90))),
        timedelta(days=-5, microseconds=3),
        UUID(int=7),
        frozenset({(1, "a"), b"x"}),
        [[], {}, (), set()],
    ],
    ids=repr,
)
def test_a_value_round_trips_through_text(value):
    for text in (text_of_stored(encode_any(value)), text_of_part(part_of_text(text_of_stored(encode_any(value))))):
        text.encode()
        again = decode_any(stored_of_text(text))
        assert (type(again), again) == (type(value), value)
        assert repr(again) == repr(value) or isinstance(value, frozenset)
        assert object_of(text) == value


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_arbitrary_text_is_parsed_or_rejected(text):
    for given_text in (text, json.dumps(text), json.dumps({f"${text}": text})):
        with suppress(ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            stored_of_text(given_text)


class Size(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, len(list(elements))


def test_the_contents_of_a_window_over_json_records_are_readable(tmp_path):
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda record, _: record["at"])
    env = StreamExecutionEnvironment.get_execution_environment()
    records = env.from_collection([]).uid("records").assign_timestamps_and_watermarks(strategy)
    windows = records.key_by(lambda record: record["user"]).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    record = {"user": "ada", "at": 100, "items": [{"name": "tea", "n": 2}]}
    with JobHarness(windows.process(Size()).uid("sizes")) as job:
        job.push(record, {**record, "at": 200}).epoch()
        path = job.savepoint(tmp_path)
    rows = list(Savepoint.load(path).state("sizes", "window contents").rows())
    assert [(row["key"], row["window_start"], json.loads(row["value"])) for row in rows] == [
        ("ada", 0, record),
        ("ada", 0, {**record, "at": 200}),
    ]
