"""Formats: a source reads the files of a sink, and errors name the file, line and column of broken data."""

import bz2
import datetime
import gzip
import lzma
import pickle
import zlib
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_helpers import BASE, Attempts, files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common import Encoder, Row, SimpleStringSchema, Types
from penstock.common.serialization import BulkWriterFactory
from penstock.connectors.dead_letters import UnreadableRecord
from penstock.datastream.connectors.file_system import BulkFormat, FileSink, FileSource, RollingPolicy, StreamFormat
from penstock.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from penstock.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from penstock.errors import PenstockError

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass
class Order:
    id: int
    name: str
    price: float | None = None
    paid: bool = False


class Word(TypedDict):
    word: str
    n: int


ORDERS = [Order(1, "a,b"), Order(-(2**40), 'say "hi"', 1.5, True), Order(3, "two\nlines é \U0001f600", 0.1, False)]


def written(base, format, values, per_epoch=2):
    """Write values with a FileSink in several epochs, and return the files."""
    if isinstance(format, Encoder):
        builder = FileSink.for_row_format(base, format).with_rolling_policy(
            RollingPolicy.default_rolling_policy(rollover_interval=10**9, inactivity_interval=10**9)
        )
    else:
        builder = FileSink.for_bulk_format(base, format)
    # As in a job, the tasks use a copy.
    job = Attempts(pickle.loads(pickle.dumps(builder.with_bucket_assigner(BASE).build())))
    for at in range(0, len(values), per_epoch):
        job.run(*values[at : at + per_epoch])
    job.run(end=True)
    return files(base)


def read(format, *paths):
    """Return all records of a FileSource, in order."""
    format = pickle.loads(pickle.dumps(format))
    how = FileSource.for_bulk_file_format if isinstance(format, BulkFormat) else FileSource.for_record_stream_format
    source = how(format, *map(str, paths)).build()
    positions = source.advance(source.start(1), None)
    return [record for path, end in positions.items() for record in source.read(path, None, end)]


def stored(tmp_path, data, name="file"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


class TestRoundTrips:
    """Written by a sink, read by a source."""

    @pytest.mark.parametrize(
        ("writes", "reads", "values"),
        [
            (Encoder.simple_string_encoder(), StreamFormat.text_line_format(), ["a", "", "é\u2028\x0b\x85", " x "]),
            (
                Encoder.simple_string_encoder("UTF-16"),
                StreamFormat.text_line_format("UTF-16"),
                ["a", "\U0001f600", "", "x"],
            ),
            (
                Encoder.simple_string_encoder("ISO-8859-1"),
                StreamFormat.text_line_format("ISO-8859-1"),
                ["é", "ÿ"],
            ),
            (Encoder.json_lines(), StreamFormat.json_lines(Order), ORDERS),
            (Encoder.json_lines(), StreamFormat.json_lines(), [{"a": [1, None, "\n"]}, 3, "x", None, [True]]),
            (Encoder.json_lines(), StreamFormat.json_lines(Word), [{"word": "a", "n": 1}]),
            (Encoder.csv(Order), StreamFormat.csv(value_type=Order, header=False), ORDERS),
            (Encoder.csv(Order, header=True), StreamFormat.csv(value_type=Order), ORDERS),
            (
                Encoder.csv(["a", "b"], delimiter="|", quote="'", null_text="\\N"),
                StreamFormat.csv(["a", "b"], delimiter="|", quote="'", null_text="\\N"),
                [Row(a="x|y", b=None), Row(a="", b="'"), Row(a="'a\r\nb'", b="\\")],
            ),
            (BulkWriterFactory.parquet(Order), BulkFormat.parquet(value_type=Order), ORDERS),
            (BulkWriterFactory.parquet(Order, row_group_size=1), BulkFormat.parquet(value_type=Order), ORDERS),
        ],
    )
    def test_a_source_reads_the_records_that_a_sink_wrote(self, tmp_path, writes, reads, values):
        written(tmp_path / "out", writes, values, per_epoch=len(values))
        assert read(reads, tmp_path / "out") == values

    def test_a_part_written_over_several_epochs_is_read_back(self, tmp_path):
        found = written(tmp_path, Encoder.csv(Order, header=True), ORDERS, per_epoch=1)
        assert len(found) == 1
        assert read(StreamFormat.csv(value_type=Order), tmp_path) == ORDERS

    @quick
    @given(values=st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))))
    def test_any_lines_are_read_back(self, tmp_path_factory, values):
        base = tmp_path_factory.mktemp("lines") / "out"
        base.mkdir()
        written(base, Encoder.simple_string_encoder(), values, per_epoch=3)
        assert read(StreamFormat.text_line_format(), base) == values

    @quick
    @given(
        values=st.lists(st.tuples(*[st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))] * 2))
    )
    def test_any_csv_fields_are_read_back(self, tmp_path_factory, values):
        base = tmp_path_factory.mktemp("csv") / "out"
        base.mkdir()
        written(base, Encoder.csv(["a", "b"]), values, per_epoch=3)
        assert read(StreamFormat.csv(["a", "b"]), base) == [Row(a=a, b=b) for a, b in values]

    @quick
    @given(values=st.lists(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-99, 99))))
    def test_any_json_objects_are_read_back(self, tmp_path_factory, values):
        base = tmp_path_factory.mktemp("json") / "out"
        base.mkdir()
        written(base, Encoder.json_lines(), values, per_epoch=3)
        assert read(StreamFormat.json_lines(), base) == values


def java_lines(data):
    """Split lines like java.io.BufferedReader.readLine."""
    lines, line, at = [], None, 0
    while at < len(data):
        line = line or ""
        if data[at] in "\r\n":
            lines.append(line)
            line = None
            at += 2 if data[at : at + 2] == "\r\n" else 1
        else:
            line += data[at]
            at += 1
    return lines if line is None else [*lines, line]


class TestText:
    @quick
    @given(data=st.text("ab\r\n\x0b\x0c\x1c\x85\u2028\u2029é"))
    def test_lines_end_where_they_do_in_java(self, tmp_path_factory, data):
        path = stored(tmp_path_factory.mktemp("text"), data.encode())
        assert read(StreamFormat.text_line_format(), path) == java_lines(data)

    def test_undecodable_bytes_are_replaced(self, tmp_path):
        path = stored(tmp_path, b"a\xffb\n\xe2\x82\nok")
        assert read(StreamFormat.text_line_format(), path) == ["a\ufffdb", "\ufffd", "ok"]

    def test_utf_16_without_a_byte_order_mark_is_big_endian_as_in_java(self, tmp_path):
        path = stored(tmp_path, "a\nb".encode("utf-16-be"))
        assert read(StreamFormat.text_line_format("UTF-16"), path) == ["a", "b"]

    def test_an_unknown_charset_is_rejected(self):
        with pytest.raises(PenstockError, match="Unknown charset 'UTF-99'"):
            StreamFormat.text_line_format("UTF-99")
        with pytest.raises(PenstockError, match="Unknown charset 'x'"):
            Encoder.simple_string_encoder("x")

    def test_characters_outside_the_charset_are_written_as_question_marks(self, tmp_path):
        assert list(written(tmp_path, Encoder.simple_string_encoder("US-ASCII"), ["é", 1]).values()) == [b"?\n1\n"]

    def test_simple_string_schema_round_trips(self):
        assert SimpleStringSchema().deserialize(SimpleStringSchema().serialize("é")) == "é"


class TestCompression:
    DATA = b"".join(b"line %d\n" % number for number in range(20_000))

    @pytest.mark.parametrize(
        ("ending", "compress"),
        [
            (".gz", gzip.compress),
            (".gzip", gzip.compress),
            (".bz2", bz2.compress),
            (".xz", lzma.compress),
            (".deflate", zlib.compress),
            (".zz", zlib.compress),
        ],
    )
    def test_compression_is_detected_by_the_file_name(self, tmp_path, ending, compress):
        path = stored(tmp_path, compress(self.DATA), f"lines.txt{ending}")
        assert read(StreamFormat.text_line_format(), path) == self.DATA.decode().splitlines()
        half = stored(tmp_path, compress(self.DATA)[:-20], f"half.txt{ending}")
        with pytest.raises(UnreadableRecord, match=rf"cannot read {half}, from line \d+, byte \d+ on: "):
            read(StreamFormat.text_line_format(), half)


class TestJson:
    def test_an_error_names_the_file_and_line_of_broken_json(self, tmp_path):
        path = stored(tmp_path, b'{"a": 1}\n\n{"a": \n')
        with pytest.raises(UnreadableRecord, match=rf"cannot read {path}, line 3, byte 10: .*\nThe record: {{\"a\":"):
            read(StreamFormat.json_lines(), path)

    def test_an_error_names_the_json_field_of_the_wrong_type(self, tmp_path):
        path = stored(tmp_path, b'{"id": "x", "name": "y"}\n')
        with pytest.raises(UnreadableRecord, match=r"line 1, byte 0: Expected `int`, got `str` - at `\$.id`"):
            read(StreamFormat.json_lines(Order), path)

    def test_a_byte_order_mark_and_blank_lines_are_skipped(self, tmp_path):
        assert read(StreamFormat.json_lines(), stored(tmp_path, b"\xef\xbb\xbf1\n \n\r\n2\r\n")) == [1, 2]

    def test_rows_are_written_as_json_objects(self, tmp_path):
        values = [Row(a=1, b=Row(c=[2])), Row(1, "x"), {"d": Decimal("1.50")}]
        assert list(written(tmp_path, Encoder.json_lines(), values).values()) == [
            b'{"a":1,"b":{"c":[2]}}\n[1,"x"]\n{"d":"1.50"}\n'
        ]

    def test_json_lines_reject_type_information(self):
        with pytest.raises(PenstockError, match="JSON lines need a dataclass"):
            StreamFormat.json_lines(Types.STRING())


class TestCsv:
    def test_csv_column_names_come_from_the_header(self, tmp_path):
        path = stored(tmp_path, "\ufeffid,name\r\n1,a\r\n\r\n2,\r\n".encode())
        assert read(StreamFormat.csv(), path) == [Row(id="1", name="a"), Row(id="2", name="")]

    def test_csv_columns_are_converted_to_their_types(self, tmp_path):
        types = {"n": int, "x": float, "b": bool, "d": datetime.date, "m": Decimal, "s": str, "o": str | None}
        path = stored(tmp_path, b"1,2.5,TRUE,2024-02-29,1.50,,\n,,,,,,\n")
        assert read(StreamFormat.csv(types), path) == [
            Row(n=1, x=2.5, b=True, d=datetime.date(2024, 2, 29), m=Decimal("1.50"), s="", o=""),
            Row(n=None, x=None, b=None, d=None, m=None, s="", o=""),
        ]

    def test_csv_accepts_a_row_type(self, tmp_path):
        kind = Types.ROW_NAMED(["id", "ok"], [Types.LONG(), Types.BOOLEAN()])
        path = stored(tmp_path, b"7,false\n")
        assert read(StreamFormat.csv(value_type=kind, header=False), path) == [Row(id=7, ok=False)]

    def test_csv_columns_can_be_in_the_order_of_the_header(self, tmp_path):
        path = stored(tmp_path, b"name,id\na,1\n")
        assert read(StreamFormat.csv(value_type=Order, header=True), path) == [Order(1, "a")]

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"1,a\nx,b\n", r"line 2: column 'id' is 'x': Expected `int`"),
            (b"1,a\n2\n", r"line 2: it has 1 fields, not 2: id, name"),
            (b'1,"a\n', r"line 1: unexpected end"),
            (b'1,"a"b\n', r"line 1: "),
            (b"1_000,a\n", r"line 1: column 'id' is '1_000'"),
        ],
    )
    def test_an_error_names_the_file_line_and_column_of_broken_csv(self, tmp_path, data, message):
        path = stored(tmp_path, data)
        with pytest.raises(UnreadableRecord, match=rf"cannot read {path}, {message}"):
            read(StreamFormat.csv({"id": int, "name": str}), path)

    @pytest.mark.parametrize(
        ("data", "message"), [(b"id,x\n", "expected id, name"), (b"name,id\n", "header has the columns name, id")]
    )
    def test_a_header_must_match_the_given_columns(self, tmp_path, data, message):
        with pytest.raises(UnreadableRecord, match=message):
            read(StreamFormat.csv(["id", "name"], header=True), stored(tmp_path, data))

    def test_csv_requires_the_columns_of_its_type(self, tmp_path):
        with pytest.raises(UnreadableRecord, match=r"line 2: .* required field `name`"):
            read(StreamFormat.csv(value_type=Order), stored(tmp_path, b"id\n1\n"))
        kind = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
        with pytest.raises(UnreadableRecord, match="header has no column name: id"):
            read(StreamFormat.csv(value_type=kind), stored(tmp_path, b"id\n1\n"))
        with pytest.raises(UnreadableRecord, match="names a twice"):
            read(StreamFormat.csv(), stored(tmp_path, b"a,a\n"))

    def test_invalid_csv_settings_are_rejected(self):
        with pytest.raises(PenstockError, match="without a header needs column names"):
            StreamFormat.csv(header=False)
        with pytest.raises(PenstockError, match="delimiter must be one character"):
            StreamFormat.csv(delimiter="::")
        with pytest.raises(PenstockError, match="has no named fields"):
            StreamFormat.csv(value_type=int)

    def test_csv_encodes_records_of_any_shape(self, tmp_path):
        class Point(NamedTuple):
            a: int
            b: object

        values = [(1, "x"), [2, None], {"b": True, "a": 3}, Row(b=datetime.date(2024, 1, 2), a=4), Point(5, [1, 2])]
        assert list(written(tmp_path, Encoder.csv(["a", "b"]), values).values()) == [
            b"1,x\n2,\n3,true\n4,2024-01-02\n5,1;2\n"
        ]

    def test_a_record_without_the_csv_columns_is_rejected(self, tmp_path):
        with pytest.raises(PenstockError, match=r"\{'a': 1\} does not have the columns a, b"):
            written(tmp_path, Encoder.csv(["a", "b"]), [{"a": 1}])

    def test_flinks_csv_classes_write_and_read(self, tmp_path):
        schema = (
            CsvSchema.builder()
            .add_number_column("id")
            .add_number_column("x", Types.DOUBLE())
            .add_string_column("name")
            .add_boolean_column("ok")
            .add_array_column("list", ",", int)
            .set_column_separator("|")
            .set_quote_char("'")
            .set_use_header()
            .set_strict_headers()
            .build()
        )
        assert len(schema) == 5
        values = [Row(id=1, x=0.5, name="a|b", ok=True, list=[1, 2]), Row(id=2, x=1.0, name=None, ok=False, list=None)]
        found = written(tmp_path, CsvBulkWriters.for_schema(schema), values)
        assert list(found.values()) == [b"id|x|name|ok|list\n1|0.5|'a|b'|true|'1,2'\n2|1.0||false|\n"]
        # Flink writes None as an empty field, and reads that as an empty text.
        assert read(CsvReaderFormat.for_schema(schema), tmp_path) == [
            values[0],
            Row(**values[1].as_dict() | {"name": ""}),
        ]

    @pytest.mark.parametrize(
        ("text", "configure", "rows"),
        [
            ('1,"",x\n2,plain,\n', lambda schema: schema, [(1, "", "x"), (2, "plain", "")]),
            ("1,-,-\n", lambda schema: schema.set_null_value("-"), [(1, None, None)]),
            ("1,a,b,c,d\n2,a,b\n", lambda schema: schema.set_any_property_name("rest"), [(1, "a", "b"), (2, "a", "b")]),
            (" 1 , a ,b\n", lambda schema: schema, [(1, " a ", "b")]),
            ("n,s,e\n1,a,b\n", lambda schema: schema.set_skip_first_data_row(True), [(1, "a", "b")]),
        ],
    )
    def test_flinks_csv_classes_read_what_flink_reads(self, tmp_path, text, configure, rows):
        (tmp_path / "in.csv").write_text(text)
        schema = CsvSchema.builder().add_number_column("n").add_string_column("s").add_string_column("e")
        found = read(CsvReaderFormat.for_schema(configure(schema).build()), tmp_path)
        assert [tuple(row) for row in found] == rows

    def test_a_line_with_more_fields_is_unreadable_unless_they_have_a_property(self, tmp_path):
        (tmp_path / "in.csv").write_text("1,a\n")
        schema = CsvSchema.builder().add_number_column("n").build()
        with pytest.raises(UnreadableRecord, match="it has 2 fields, not 1"):
            read(CsvReaderFormat.for_schema(schema), tmp_path)


@dataclass
class Line:
    sku: str
    count: int


@dataclass
class Basket:
    lines: list[Line] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    at: datetime.datetime | None = None
    total: Decimal | None = None


class TestParquet:
    def test_parquet_reads_selected_columns(self, tmp_path):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"a": [1, 2], "b": ["x", None], "c": [[1], []]}), path)
        assert read(BulkFormat.parquet(), path) == [Row(a=1, b="x", c=[1]), Row(a=2, b=None, c=[])]
        assert read(BulkFormat.parquet(["b"], batch_size=1), path) == [Row(b="x"), Row(b=None)]
        with pytest.raises(UnreadableRecord, match="has no column d; its columns are a, b, c"):
            read(BulkFormat.parquet(["d"]), path)

    def test_parquet_stores_nested_records(self, tmp_path):
        basket = Basket([Line("a", 1)], {"x": 2}, datetime.datetime(2024, 1, 2, 3), Decimal("1.5"))
        written(tmp_path, BulkWriterFactory.parquet(Basket), [basket, Basket()])
        rows = read(BulkFormat.parquet(), tmp_path)
        assert rows[0].lines == [{"sku": "a", "count": 1}]
        assert dict(rows[0].tags) == {"x": 2}
        assert rows[0].total == Decimal("1.5")
        assert rows[1] == Row(lines=[], tags=[], at=None, total=None)

    def test_parquet_writes_the_value_a_record_had_when_it_was_written(self, tmp_path):
        job = Attempts(
            FileSink.for_bulk_format(str(tmp_path), BulkWriterFactory.parquet(Basket))
            .with_bucket_assigner(BASE)
            .build()
        )
        basket = Basket([Line("a", 1)])

        def changing():
            for count in (1, 2):
                basket.lines[0].count = count
                yield basket

        job.publish(job.attempt(changing()))
        job.commit()
        assert [row.lines[0]["count"] for row in read(BulkFormat.parquet(), tmp_path)] == [1, 2]

    def test_an_error_names_the_parquet_column_of_a_mismatched_value(self, tmp_path):
        with pytest.raises(PenstockError, match="A value of column 'id' is not of type int64"):
            written(tmp_path, BulkWriterFactory.parquet(Order), [Order("x", "y")])

    def test_an_error_names_a_column_of_an_unsupported_type(self):
        @dataclass
        class Odd:
            what: complex

        with pytest.raises(PenstockError, match="Column 'what' cannot have the type"):
            BulkWriterFactory.parquet(Odd)

    def test_a_file_that_is_not_parquet_is_reported(self, tmp_path):
        with pytest.raises(UnreadableRecord, match="cannot be read as Parquet"):
            read(BulkFormat.parquet(), stored(tmp_path, b"no parquet at all"))

    def test_flinks_parquet_classes_write_and_read(self, tmp_path):
        kind = Types.ROW_NAMED(
            ["s", "l", "m", "r"],
            [
                Types.STRING(),
                Types.LIST(Types.INT()),
                Types.MAP(Types.STRING(), Types.LONG()),
                Types.ROW_NAMED(["x"], [Types.DOUBLE()]),
            ],
        )
        written(tmp_path, ParquetBulkWriters.for_row_type(kind), [Row(s="a", l=[1], m={"k": 1}, r=Row(x=0.5))])
        rows = read(ParquetColumnarRowInputFormat(kind), tmp_path)
        assert rows == [Row(s="a", l=[1], m=[("k", 1)], r={"x": 0.5})]
        assert pq.read_schema(next(Path(tmp_path).glob("part-*"))).field("l").type == pa.list_(pa.int32())


class Loud(Encoder):
    format = "loud"
    header = b"!\n"

    def encode(self, value):
        return value.upper().encode() + b"!\n"


def test_a_user_defined_encoder_writes_its_header_once(tmp_path):
    assert list(written(tmp_path, Loud(), ["a", "b", "c"]).values()) == [b"!\nA!\nB!\nC!\n"]
