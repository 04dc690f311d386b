"""`ds.to_spark(schema)` without a JVM: the records that tasks log, the rows in the driver, and rejected input."""

from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.common import Row
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.driver.epoch_settings import Settings
from penstock.graph.logical import GraphError
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

PAIRS = StructType().add("id", LongType(), nullable=False).add("name", StringType())
POINTS = [
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


class Frames:
    """Stands in for a session: runs the executors' function when a DataFrame is created."""

    def range(self, start, end, step, partitions):
        assert partitions == end
        self.places = [pa.RecordBatch.from_pydict({"id": [place]}) for place in range(end)]
        return self

    def mapInArrow(self, function, schema):  # a method of Spark
        return [row for place in self.places for batch in function(iter([place])) for row in batch.to_pylist()]


def job(records, schema, function, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    env._spark = Frames()
    env.from_collection(records).rebalance().to_spark(schema).foreach_epoch(function).uid("rows")
    return JobHarness(env, parallelism=2, **options)


def one_epoch(records, schema):
    rows = []
    with job(records, schema, lambda df, epoch: rows.extend(df)) as harness:
        harness.run()
    return rows


@pytest.fixture(params=["memory", "files"])
def options(request, tmp_path):
    if request.param == "memory":
        return {}
    return {"storage": LocalStorage(tmp_path), "settings": Settings(inline_bytes=0, asynchronous=False)}


@pytest.mark.parametrize("point", POINTS)
def test_a_repeated_epoch_is_recognized_by_its_key(point, options):
    seen = {}

    def take(df, epoch):
        assert epoch.again or epoch.key not in seen
        assert seen.setdefault(epoch.key, df) == df

    with job([(n, str(n)) for n in range(40)], PAIRS, take, **options) as harness:
        harness.epoch(10)
        harness.crash_at(point)
        harness.epoch(10)
        harness.run(10)
        assert harness.storage.list("wal/") == []
    assert sorted(row["id"] for rows in seen.values() for row in rows) == list(range(40))
    assert len(seen) == 4


def test_another_run_has_different_keys():
    keys = []
    for _ in range(2):
        with job([(1, "a")], PAIRS, lambda df, epoch: keys.append(epoch.key)) as harness:
            harness.run()
    assert len(set(keys)) == 2


@dataclass
class Pair:
    name: str
    id: int


def test_records_of_any_shape_become_rows():
    records = [Row(name="b", id=1), (2, "b"), [3, "b"], {"name": "b", "id": 4, "more": 0}, Pair("b", 5), Row(6, "b")]
    records.append((np.int32(7), np.str_("b")))
    assert sorted(row["id"] for row in one_epoch(records, PAIRS)) == [1, 2, 3, 4, 5, 6, 7]
    assert {row["name"] for row in one_epoch(records, PAIRS)} == {"b"}


def test_a_list_that_changes_later_is_written_with_its_original_value():
    def grow(values):
        kept = []
        for value in values:
            kept.append(value)
            yield (value, kept)

    schema = StructType().add("id", LongType()).add("all", ArrayType(IntegerType()))
    rows = []
    env = StreamExecutionEnvironment.get_execution_environment()
    env._spark = Frames()
    env.from_collection([[1, 2, 3]]).flat_map(grow).to_spark(schema).foreach_epoch(lambda df, epoch: rows.extend(df))
    with JobHarness(env) as harness:
        harness.run()
    assert [row["all"] for row in rows] == [[1], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (("x", "a"), r"the field 'id' is declared as bigint not null, but its value is 'x' \(str\)"),
        ((None, "a"), r"'id' is declared as bigint not null, but its value is None \(NoneType\): .* not nullable"),
        ((True, "a"), r"the field 'id' is declared as bigint not null, but its value is True \(bool\)"),
        ((1.5, "a"), r"the field 'id' is declared as bigint not null, but its value is 1.5 \(float\)"),
        ((2**63, "a"), r"'id' is declared as bigint not null, but its value is 9223372036854775808 \(int\)"),
        ((1, 2), r"'name' is declared as string, but its value is 2 \(int\): .* The record is {'id': 1, 'name': 2}"),
        ({"id": 1}, r"does not match the schema. {'id': 1} does not have the columns id, name"),
        ((1, "a", 3), r"\(1, 'a', 3\) does not have the columns id, name"),
        (7, "7 does not have the columns id, name"),
    ],
)
def test_a_mismatched_record_is_rejected_with_operator_field_type_and_record(record, said):
    good = [(n, "a") for n in range(20)]
    with pytest.raises(UserFunctionFailed, match=rf"'To Spark: foreach_epoch <lambda>' \(uid 'rows'\)[\s\S]*{said}"):
        one_epoch([*good, record, *good], PAIRS)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ArrayType(IntegerType()), [1, 2.5]),
        (MapType(StringType(), IntegerType()), {"a": 2.5}),
        (StructType().add("x", IntegerType()), {"x": 2.5}),
        (StructType().add("x", IntegerType()), (2.5,)),
        (DateType(), datetime(2026, 1, 1, 5)),
        (StringType(), b"bytes"),
    ],
)
def test_values_are_never_truncated_to_fit(kind, value):
    with pytest.raises(UserFunctionFailed, match=r"the field 'it' is .*: expected .*, got .* The record is"):
        one_epoch([(value,)], StructType().add("it", kind))


def test_a_number_is_not_accepted_as_a_timestamp():
    schema = StructType().add("at", TimestampType())
    assert len(one_epoch([(datetime(2026, 1, 1),), (None,)], schema)) == 2
    with pytest.raises(UserFunctionFailed, match=r"expected datetime, got int"):
        one_epoch([(1_700_000_000_000,)], schema)


class TestWhatIsRefusedBeforeTheJobStarts:
    @pytest.fixture
    def stream(self):
        env = StreamExecutionEnvironment.get_execution_environment()
        return env.from_collection([(1, "a")])

    @pytest.mark.parametrize("schema", [None, 7, StructType(), LongType()])
    def test_a_missing_schema_is_rejected(self, stream, schema):
        with pytest.raises(GraphError, match=r"to_spark needs the schema of the rows.* 'id long, name string'"):
            stream.to_spark(schema)

    def test_a_type_without_an_arrow_equivalent_is_rejected(self, stream):
        with pytest.raises(GraphError, match=r"to_spark: the schema .* has no Arrow types"):
            stream.to_spark(StructType().add("every", CalendarIntervalType()))

    @pytest.mark.parametrize("mode", ["overwrite", "ignore", "error"])
    def test_a_mode_other_than_append_is_rejected(self, stream, mode):
        with pytest.raises(GraphError, match=f"'append', not '{mode}'"):
            stream.to_spark(PAIRS).mode(mode)

    def test_a_file_format_without_a_path_is_rejected(self, stream):
        with pytest.raises(GraphError, match="parquet needs a path"):
            stream.to_spark(PAIRS).mode("append").save()

    def test_text_files_with_several_columns_are_rejected(self, stream):
        with pytest.raises(GraphError, match="text files have one string column"):
            stream.to_spark(PAIRS).format("text").save("/x")

    def test_an_unknown_partition_column_is_rejected(self, stream):
        with pytest.raises(GraphError, match="no column 'day' in the schema, only id, name"):
            stream.to_spark(PAIRS).partition_by("day")

    def test_delta_options_that_penstock_sets_are_rejected(self, stream):
        with pytest.raises(GraphError, match="sets txnVersion itself"):
            stream.to_spark(PAIRS).format("delta").options(txnVersion=1)

    def test_an_object_that_is_not_a_function_is_rejected(self, stream):
        with pytest.raises(GraphError, match="needs a function"):
            stream.to_spark(PAIRS).foreach_epoch("x")


@pytest.mark.parametrize(
    ("end", "guarantee"),
    [
        (lambda rows: rows.format("parquet").save("/x"), "exactly-once"),
        (lambda rows: rows.format("delta").save("/x"), "exactly-once"),
        (lambda rows: rows.format("delta").save_as_table("x"), "exactly-once"),
        (lambda rows: rows.format("jdbc").option("url", "x").save(), "at-least-once"),
        (lambda rows: rows.save_as_table("x"), "at-least-once"),
        (lambda rows: rows.foreach_epoch(print), "at-least-once"),
    ],
)
def test_the_guarantee_depends_on_the_format(end, guarantee):
    env = StreamExecutionEnvironment.get_execution_environment()
    end(env.from_collection([(1, "a")]).to_spark(PAIRS))
    [sink] = env._graph.sinks().values()
    assert sink.guarantee == guarantee
    assert sink.why
