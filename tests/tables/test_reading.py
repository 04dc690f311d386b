"""Tables contain the same state that a job's functions see, for every kind of state."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from table_jobs import DESCRIPTORS, Place, environment, everything, item, rows, saved

from penstock.common import Row, Types
from penstock.common.time import Time
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import CountTumblingWindowAssigner, TumblingEventTimeWindows
from penstock.tables.keys import MixedKeys
from penstock.tables.snapshot import NoSuchState
from penstock.testing import JobHarness

NUMBERS = [[("a", 1), ("b", 2), ("a", 3)], [("a", 4), ("c", 5)]]


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory):
    return saved(everything(), tmp_path_factory.mktemp("savepoints"), *NUMBERS, parallelism=2)


class TestASavepoint:
    def test_a_savepoint_lists_its_operators_and_states(self, savepoint):
        found = {(info.uid, info.name): f"{info.kind} {info.type}" for info in savepoint.states()}
        assert found["all", "count"] == "value long"
        assert found["all", "places"] == "map string -> namedtuple table_jobs.Place(x: long, y: double)"
        assert found["all", "mean"] == "aggregating tuple<long, long>"
        assert found["all", "timers"] == "timers timer"
        assert found["remember", "union"] == "union list string"
        assert found["remember", "rules"].startswith("broadcast map string -> namedtuple")
        assert found["remember", "raw operator state"] == "raw bytes"
        assert {info.ttl_ms for info in savepoint.states("all") if info.name == "fading"} == {60_000}

    def test_an_unknown_state_or_operator_is_rejected_with_the_existing_ones(self, savepoint):
        with pytest.raises(NoSuchState, match=r"no state 'cuont', only \['anything', 'colours', 'count'"):
            savepoint.state("all", "cuont")
        with pytest.raises(NoSuchState, match=r"no operator with uid 'al'.*'remember', 'all'"):
            savepoint.state("al", "count")


class TestEachKindOfState:
    def test_a_table_shows_what_the_functions_read(self, savepoint):
        with JobHarness(everything(), from_savepoint=savepoint.path) as job:
            seen = {name: job.states(name) for name in (*DESCRIPTORS, "fading")}
        assert dict(rows(savepoint.state("all", "count"))) == seen["count"] == {"a": 3, "b": 1, "c": 1}
        assert dict(rows(savepoint.state("all", "largest"))) == seen["largest"]
        assert dict(rows(savepoint.state("all", "fading"), "key", "value")) == seen["fading"]
        lists = {}
        for key, index, value in rows(savepoint.state("all", "values")):
            lists.setdefault(key, []).append((index, value))
        assert {key: [value for _, value in sorted(found)] for key, found in lists.items()} == seen["values"]
        maps = {}
        for key, map_key, value in rows(savepoint.state("all", "places")):
            maps.setdefault(key, {})[map_key] = Place(**value)
        assert maps == seen["places"]
        assert rows(savepoint.state("all", "mean"), "key", "value") == [
            ("a", {"f0": 8, "f1": 3}),
            ("b", {"f0": 2, "f1": 1}),
            ("c", {"f0": 5, "f1": 1}),
        ]
        read = {row["key"]: row["value"] for row in savepoint.state("all", "item").rows()}
        for key, value in seen["item"].items():
            shown = read[key]
            assert Decimal(shown["price"]) == value.price
            assert (shown["name"], shown["seen"], shown["colour"]) == (value.name, value.seen, value.colour.name)
            assert shown["mark"] == (None if value.mark is None else str(value.mark))
        assert {key: Row(**value) for key, value in rows(savepoint.state("all", "row"))} == seen["row"]
        assert rows(savepoint.state("all", "colours")) == [("a", "RED", 4), ("b", "RED", 2), ("c", "RED", 5)]

    def test_columns_have_types(self, savepoint):
        schema = savepoint.state("all", "item").schema
        assert schema.field("value").type == pa.struct(
            [
                ("name", pa.string()),
                ("price", pa.string()),
                ("seen", pa.timestamp("us")),
                ("colour", pa.string()),
                ("mark", pa.string()),
            ]
        )
        assert savepoint.state("all", "values").schema.names == ["key", "index", "value"]
        assert savepoint.state("all", "places").schema.names == ["key", "map_key", "value"]

    def test_a_state_with_ttl_shows_when_values_expire(self, savepoint):
        for row in savepoint.state("all", "fading").rows():
            assert row["expires"] == row["last_access"] + 60_000
            assert 0 < row["last_access"] <= savepoint.metadata.clock

    def test_timers_are_shown_as_a_table(self, savepoint):
        assert set(rows(savepoint.state("all", "timers"), "key", "timestamp", "domain")) == {
            (key, base + number, domain)
            for key, number in [pair for epoch in NUMBERS for pair in epoch]
            for base, domain in ((10**12, "EVENT_TIME"), (10**14, "PROCESSING_TIME"))
        }

    def test_operator_state_is_shown_as_tables(self, savepoint):
        assert sorted(row["value"] for row in savepoint.state("remember", "split").rows()) == [1, 2, 3, 4, 5]
        assert {row["value"] for row in savepoint.state("remember", "union").rows()} == {f"u{i}" for i in range(1, 6)}
        rules = {row["map_key"]: row["value"] for row in savepoint.state("remember", "rules").rows()}
        assert rules == {f"r{i}": {"x": i, "y": 0.5} for i in range(1, 6)}
        assert {row["value"] for row in savepoint.state("remember", "raw operator state").rows()} == {b"raw bytes"}


class TestPandas:
    def test_pandas_frames_have_a_column_for_each_field(self, savepoint):
        frame = savepoint.state("all", "item").to_pandas()
        assert list(frame.columns) == [
            "key",
            "value.name",
            "value.price",
            "value.seen",
            "value.colour",
            "value.mark",
        ]
        found = frame.set_index("key").loc["c"]
        assert (found["value.name"], found["value.colour"]) == (item(5).name, "RED")

    def test_pandas_frames_show_untyped_values_as_json_or_as_objects(self, savepoint):
        frame = savepoint.state("all", "anything").to_pandas()
        assert dict(zip(frame["key"], frame["value"], strict=True))["b"] == '{"number": 2}'
        allowed = savepoint.state("all", "anything", allow_pickle=True).to_pandas()
        assert dict(zip(allowed["key"], allowed["value"], strict=True))["b"] == {"number": 2}


class KeepLast(KeyedProcessFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", int))

    def process_element(self, value, ctx):
        self.last.update(value[1])
        yield value


def keyed_by(key, directory, *records):
    stream = environment().from_collection([]).uid("numbers").key_by(key).process(KeepLast()).uid("keep")
    return saved(stream, directory, records, max_parallelism=8)


class TestKeys:
    def test_keys_of_several_fields_become_several_columns(self, tmp_path):
        table = keyed_by(lambda pair: (pair[0], pair[1] % 2), tmp_path, ("a", 1), ("a", 2)).state("keep", "last")
        assert rows(table) == [({"f0": "a", "f1": 0}, 2), ({"f0": "a", "f1": 1}, 1)]
        assert list(table.to_pandas().columns) == ["key.f0", "key.f1", "value"]

    def test_row_keys_keep_their_field_names(self, tmp_path):
        table = keyed_by(lambda pair: Row(who=pair[0], odd=pair[1] % 2), tmp_path, ("a", 1)).state("keep", "last")
        assert rows(table) == [({"who": "a", "odd": 1}, 1)]

    @pytest.mark.parametrize(
        "key",
        [
            5,
            -1,
            "text",
            b"bytes",
            1.5,
            True,
            Decimal("1.5"),
            datetime.date(2024, 1, 2),
            datetime.datetime(2024, 1, 2),
            None,
        ],
    )
    def test_keys_of_any_type_become_a_column(self, tmp_path, key):
        table = keyed_by(lambda pair: pair[0], tmp_path, (key, 7)).state("keep", "last")
        assert rows(table) == [(str(key) if isinstance(key, Decimal) else key, 7)]
        assert table.get(key) == [{"key": str(key) if isinstance(key, Decimal) else key, "value": 7}]

    def test_none_keys_are_null(self, tmp_path):
        table = keyed_by(lambda pair: pair[0], tmp_path, *((n, n) for n in range(50)), (None, 7)).state("keep", "last")
        assert {row["key"] for row in table.rows()} == {*range(50), None}

    def test_keys_of_several_types_are_shown_as_text(self, tmp_path):
        table = keyed_by(lambda pair: pair[0], tmp_path, (1, 10), ("1", 20), (2, 30)).state("keep", "last")
        assert rows(table) == [("'1'", 20), ("1", 10), ("2", 30)]
        assert table.get("1") == [{"key": "'1'", "value": 20}]

    def test_keys_unlike_the_sampled_ones_raise_mixed_keys(self, tmp_path, monkeypatch):
        monkeypatch.setattr("penstock.tables.contents._SAMPLE", 1)
        # Short keys come first within a key group, so a sample of one key per block sees only numbers.
        many = [(number, number) for number in range(100)]
        found = keyed_by(lambda pair: pair[0], tmp_path, *many, *((f"number {n}", n) for n in range(100)))
        table = found.state("keep", "last")
        assert table.schema.field("key").type == pa.int64()
        with pytest.raises(MixedKeys, match=r"keys_as_text=True"):
            list(table.batches())
        assert len(table.to_pandas()) == 200
        assert len(rows(found.state("keep", "last", keys_as_text=True))) == 200


def timed(stream):
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda value, time: value[1]))


class TestWindows:
    def test_time_windows_have_start_and_end_columns(self, tmp_path):
        pair = Types.TUPLE([Types.STRING(), Types.LONG()])
        stream = timed(environment().from_collection([], type_info=pair).uid("numbers")).key_by(lambda pair: pair[0])
        windows = stream.window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
        summed = windows.reduce(lambda a, b: (a[0], a[1] + b[1]), output_type=pair)
        found = saved(summed.uid("sum"), tmp_path, [("a", 110), ("a", 120), ("b", 130), ("a", 250)])
        table = found.state("sum", "window contents")
        assert rows(table, "key", "window_start", "window_end", "value") == [("a", 200, 300, {"f0": "a", "f1": 250})]
        timers = found.state("sum", "timers")
        assert rows(timers, "key", "timestamp", "window_start", "window_end") == [("a", 299, 200, 300)]

    def test_count_windows_have_an_id_column(self, tmp_path):
        stream = environment().from_collection([]).uid("numbers").key_by(lambda pair: pair[0])
        counted = stream.window(CountTumblingWindowAssigner.of(2)).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sum")
        found = saved(counted, tmp_path, [("a", 1), ("a", 2), ("a", 3)])
        table = found.state("sum", "window contents", allow_pickle=True)
        assert rows(table, "key", "window_start", "window_end", "window_id") == [("a", None, None, 1)]
        assert list(table.to_pandas()["value"]) == [("a", 3)]


class TestStreaming:
    def test_arrow_readers_accept_a_table(self, savepoint):
        reader = savepoint.state("all", "count").to_arrow()
        assert isinstance(reader, pa.RecordBatchReader)
        assert pa.table(savepoint.state("all", "count")).num_rows == 3
        assert reader.read_all().num_rows == 3

    def test_get_returns_the_rows_of_one_key(self, savepoint):
        assert savepoint.state("all", "values").get("a") == [
            {"key": "a", "index": index, "value": value} for index, value in enumerate([1, 3, 4])
        ]
        assert savepoint.state("all", "values").get("missing") == []
        assert [row["value"] for row in savepoint.state("remember", "rules").get("r3")] == [{"x": 3, "y": 0.5}]
