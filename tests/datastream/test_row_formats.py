"""JSON and CSV messages as rows, and CSV files: the values are those that PyFlink 2.3 gives."""

import datetime
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Row, RowFieldExtractorSchema, Types
from penstock.common.json_messages import JsonRowDeserializationSchema, JsonRowSerializationSchema, type_of_schema
from penstock.datastream import OutputTag, StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, FileSource
from penstock.datastream.formats.csv import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
    CsvSchema,
    CsvSchemaBuilder,
)
from penstock.errors import PenstockError
from penstock.testing import JobHarness

ID_NAME = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
DOUBLES = Types.ROW_NAMED(["a", "b"], [Types.DOUBLE(), Types.DOUBLE()])
FOUR = Types.ROW_NAMED(["id", "name", "x", "b"], [Types.INT(), Types.STRING(), Types.DOUBLE(), Types.BOOLEAN()])
LISTED = Types.ROW_NAMED(["id", "l"], [Types.INT(), Types.OBJECT_ARRAY(Types.INT())])
NESTED = Types.ROW_NAMED(["id", "r"], [Types.INT(), ID_NAME])


class TestReadingJson:
    def read(self, data: bytes, type_info: Any = ID_NAME, configure: Callable[[Any], Any] = lambda b: b) -> Any:
        schema = configure(JsonRowDeserializationSchema.builder().type_info(type_info)).build()
        # A job gets a copy.
        return pickle.loads(pickle.dumps(schema)).deserialize(data)

    def test_every_type_is_read(self) -> None:
        fields: dict[str, tuple[Any, str, Any]] = {
            "id": (Types.INT(), "1", 1),
            "name": (Types.STRING(), '"a"', "a"),
            "x": (Types.DOUBLE(), "1.5", 1.5),
            "f": (Types.FLOAT(), "0.1", 0.1),
            "b": (Types.BOOLEAN(), "true", True),
            "l": (Types.OBJECT_ARRAY(Types.INT()), "[1,2]", [1, 2]),
            "m": (Types.MAP(Types.STRING(), Types.INT()), '{"a": 1}', {"a": 1}),
            "d": (Types.SQL_DATE(), '"2020-01-02"', datetime.date(2020, 1, 2)),
            "t": (Types.SQL_TIME(), '"10:11:12Z"', datetime.time(10, 11, 12)),
            "ts": (
                Types.SQL_TIMESTAMP(),
                '"2020-01-02T10:11:12.123Z"',
                datetime.datetime(2020, 1, 2, 10, 11, 12, 123000),
            ),
            "dec": (Types.BIG_DEC(), "1.10", Decimal("1.1")),
            "big": (Types.BIG_INT(), str(123456789012345678901234567890), 123456789012345678901234567890),
            "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), '"YWI="', b"ab"),
            "tup": (Types.ROW([Types.INT(), Types.STRING()]), '{"f0": 1, "f1": "x"}', Row(f0=1, f1="x")),
        }
        row_type = Types.ROW_NAMED(list(fields), [kind for kind, _, _ in fields.values()])
        text = "{" + ", ".join(f'"{name}": {json}' for name, (_, json, _) in fields.items()) + "}"
        assert self.read(text.encode(), row_type) == Row(**{name: value for name, (_, _, value) in fields.items()})

    @pytest.mark.parametrize(
        ("data", "row"),
        [
            (b'{"id": 1}', Row(id=1, name=None)),
            (b'{"id": null, "name": null}', Row(id=None, name=None)),
            (b'{"id": 1, "name": "a", "z": 3}', Row(id=1, name="a")),
            (b'{"id": "12", "name": 5}', Row(id=12, name="5")),
            (b'{"id": 1.7, "name": true}', Row(id=1, name="true")),
            (b'{"id": 1, "name": {"a": 1}}', Row(id=1, name='{"a":1}')),
        ],
    )
    def test_values_are_converted_as_in_flink(self, data: bytes, row: Row) -> None:
        assert self.read(data) == row

    @pytest.mark.parametrize(
        "data", [b'{"id": ', b'{"id": "x", "name": "a"}', b'{"id": 3000000000, "name": ""}', b"[1]", b"", b"\xff"]
    )
    def test_an_invalid_message_is_refused(self, data: bytes) -> None:
        with pytest.raises(PenstockError, match=r"Cannot read .* ignore_parse_errors"):
            self.read(data)

    def test_a_missing_field_can_be_refused(self) -> None:
        with pytest.raises(PenstockError, match="field 'name' is missing"):
            self.read(b'{"id": 1}', configure=lambda builder: builder.fail_on_missing_field())

    def test_errors_can_be_ignored(self) -> None:
        def lenient(builder: Any) -> Any:
            return builder.ignore_parse_errors()

        assert self.read(b'{"id": ', configure=lenient) is None
        assert self.read(b'{"id": "x", "name": "a"}', configure=lenient) == Row(id=None, name="a")

    def test_invalid_builders_are_refused(self) -> None:
        builder = JsonRowDeserializationSchema.builder()
        with pytest.raises(PenstockError, match="needs a row type"):
            builder.build()
        with pytest.raises(PenstockError, match="needs a row type"):
            builder.type_info(Types.INT()).build()
        with pytest.raises(PenstockError, match="cannot both fail on missing fields and ignore errors"):
            builder.type_info(ID_NAME).fail_on_missing_field().ignore_parse_errors().build()
        with pytest.raises(TypeError, match="must not be None"):
            builder.json_schema(None)  # type: ignore[arg-type]
        with pytest.raises(PenstockError, match="JSON cannot contain"):
            JsonRowDeserializationSchema.builder().type_info(Types.ROW([Types.PICKLED_BYTE_ARRAY()])).build()

    def test_a_json_schema_determines_the_type(self) -> None:
        text = '{"type": "object", "properties": {"id": {"type": "integer"}, "x": {"type": "number"}}}'
        schema = JsonRowDeserializationSchema.builder().json_schema(text).build()
        row = schema.deserialize(b'{"id": 12345678901234567890, "x": 1.5}')
        assert row == Row(id=Decimal(12345678901234567890), x=Decimal("1.5"))

    def test_json_schemas_can_nest_and_refer(self) -> None:
        text = """{"definitions": {"point": {"type": "object", "properties": {"at": {"type": ["null", "boolean"]}}}},
            "type": "object", "properties": {"p": {"$ref": "#/definitions/point"},
            "l": {"type": "array", "items": {"type": "string", "format": "date"}},
            "raw": {"type": "string", "contentEncoding": "base64"}}}"""
        assert type_of_schema(text) == Types.ROW_NAMED(
            ["p", "l", "raw"],
            [
                Types.ROW_NAMED(["at"], [Types.BOOLEAN()]),
                Types.OBJECT_ARRAY(Types.SQL_DATE()),
                Types.PRIMITIVE_ARRAY(Types.BYTE()),
            ],
        )

    @pytest.mark.parametrize("text", ["{", '{"type": "string"}', '{"type": ["string", "integer"]}', "[]"])
    def test_an_invalid_json_schema_is_refused(self, text: str) -> None:
        with pytest.raises(PenstockError, match="JSON schema"):
            type_of_schema(text)


class TestWritingJson:
    def written(self, type_info: Any, row: Any) -> bytes:
        schema = JsonRowSerializationSchema.builder().with_type_info(type_info).build()
        return pickle.loads(pickle.dumps(schema)).serialize(row)  # type: ignore[no-any-return]

    @pytest.mark.parametrize(
        ("type_info", "row", "text"),
        [
            (ID_NAME, Row(1, 'aé"\n'), '{"id":1,"name":"aé\\"\\n"}'),
            (ID_NAME, Row(id=1, name="a"), '{"id":1,"name":"a"}'),
            (ID_NAME, (None, None), '{"id":null,"name":null}'),
            (DOUBLES, Row(1.0, 1e20), '{"a":1.0,"b":1.0E20}'),
            (DOUBLES, Row(1e-7, 0.1), '{"a":1.0E-7,"b":0.1}'),
            (DOUBLES, Row(1e7, 123456.789), '{"a":1.0E7,"b":123456.789}'),
            (DOUBLES, Row(float("nan"), float("inf")), '{"a":"NaN","b":"Infinity"}'),
            (Types.ROW([Types.INT(), Types.STRING()]), Row(1, "a"), '{"f0":1,"f1":"a"}'),
            (NESTED, Row(1, Row(2, "z")), '{"id":1,"r":{"id":2,"name":"z"}}'),
            (LISTED, Row(1, [1, None]), '{"id":1,"l":[1,null]}'),
            (
                Types.ROW_NAMED(
                    ["d", "t", "ts", "dec", "big"],
                    [Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.BIG_DEC(), Types.BIG_INT()],
                ),
                Row(
                    datetime.date(2020, 1, 2),
                    datetime.time(10, 11, 12),
                    datetime.datetime(2020, 1, 2, 10, 11, 12, 123456),
                    Decimal("1.10"),
                    12345678901234567890,
                ),
                '{"d":"2020-01-02","t":"10:11:12Z","ts":"2020-01-02T10:11:12.123456Z","dec":1.10,'
                '"big":12345678901234567890}',
            ),
        ],
    )
    def test_rows_are_written_as_in_flink(self, type_info: Any, row: Any, text: str) -> None:
        assert self.written(type_info, row) == text.encode()

    def test_a_schema_needs_a_row_type(self) -> None:
        with pytest.raises(TypeError, match="needs a type"):
            JsonRowSerializationSchema.builder().build()
        with pytest.raises(PenstockError, match="needs a row type"):
            JsonRowSerializationSchema.builder().with_type_info(Types.INT()).build()

    @pytest.mark.parametrize("record", [Row(1), 7, Row("x", 1)])
    def test_a_record_of_another_type_is_refused(self, record: Any) -> None:
        with pytest.raises(PenstockError, match="Cannot write"):
            self.written(ID_NAME, record)


class TestReadingCsv:
    def read(self, data: bytes, type_info: Any = FOUR, configure: Callable[[Any], Any] = lambda b: b) -> Any:
        schema = configure(CsvRowDeserializationSchema.Builder(type_info)).build()
        return pickle.loads(pickle.dumps(schema)).deserialize(data)

    @pytest.mark.parametrize(
        ("data", "configure", "row"),
        [
            (b"1,a,1.5,true", lambda b: b, Row(id=1, name="a", x=1.5, b=True)),
            (b"1,a,1.5,true\n", lambda b: b, Row(id=1, name="a", x=1.5, b=True)),
            (b'1,"a,""b",1.5,true', lambda b: b, Row(id=1, name='a,"b', x=1.5, b=True)),
            (b" 1 , a , 1.5 , true ", lambda b: b, Row(id=1, name=" a ", x=1.5, b=True)),
            (
                b"n/a,n/a,n/a,n/a",
                lambda b: b.set_null_literal("n/a"),
                Row(id=None, name=None, x=None, b=None),
            ),
            (b"1,a", lambda b: b.set_ignore_parse_errors(True), Row(id=1, name="a", x=None, b=None)),
            (b"x,a,1.5,true", lambda b: b.set_ignore_parse_errors(True), Row(id=None, name="a", x=1.5, b=True)),
            (b"1,a,1.5,true,zzz", lambda b: b.set_ignore_parse_errors(True), None),
            (
                b"1;'a;b';1.5;true",
                lambda b: b.set_field_delimiter(";").set_quote_character("'"),
                Row(id=1, name="a;b", x=1.5, b=True),
            ),
            (b"1,a\\,b,1.5,true", lambda b: b.set_escape_character("\\"), Row(id=1, name="a,b", x=1.5, b=True)),
            (
                b"#no\n1,a,1.5,true",
                lambda b: b.set_allow_comments(True),
                Row(id=1, name="a", x=1.5, b=True),
            ),
        ],
    )
    def test_lines_are_read_as_in_flink(self, data: bytes, configure: Callable[[Any], Any], row: Row | None) -> None:
        assert self.read(data, configure=configure) == row

    @pytest.mark.parametrize(
        "data", [b"1,,,", b",a,1.0,true", b"1,a", b"1,a,1.5,true,zzz", b"x,a,1.5,true", b"", b"\xff"]
    )
    def test_an_invalid_line_is_refused(self, data: bytes) -> None:
        with pytest.raises(PenstockError, match=r"Cannot read .* set_ignore_parse_errors"):
            self.read(data)

    def test_a_comment_has_no_fields(self) -> None:
        with pytest.raises(PenstockError, match="no fields"):
            self.read(b"#1,a,1.5,true", configure=lambda b: b.set_allow_comments(True))

    def test_arrays_and_rows_are_read_from_one_field(self) -> None:
        assert self.read(b"1,1;2;3", LISTED) == Row(id=1, l=[1, 2, 3])
        assert self.read(b"1,1:2", LISTED, lambda b: b.set_array_element_delimiter(":")) == Row(id=1, l=[1, 2])
        assert self.read(b"1,1;x", NESTED) == Row(id=1, r=Row(id=1, name="x"))

    def test_every_type_is_read(self) -> None:
        kinds = [
            *(Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.BIG_DEC(), Types.FLOAT()),
            *(Types.BYTE(), Types.SHORT(), Types.LONG(), Types.BIG_INT()),
        ]
        row = self.read(b"2020-01-02,10:11:12,2020-01-02 10:11:12.5,1.10,0.1,1,2,3,4", Types.ROW(kinds))
        assert list(row) == [
            datetime.date(2020, 1, 2),
            datetime.time(10, 11, 12),
            datetime.datetime(2020, 1, 2, 10, 11, 12, 500000),
            Decimal("1.10"),
            *(0.1, 1, 2, 3, 4),
        ]
        assert row.f5 == 1

    def test_a_schema_needs_a_row_type(self) -> None:
        with pytest.raises(TypeError, match="must not be None"):
            CsvRowDeserializationSchema.Builder(None)
        with pytest.raises(PenstockError, match="need a row type"):
            CsvRowDeserializationSchema.Builder(Types.INT())


class TestWritingCsv:
    def written(self, type_info: Any, row: Any, configure: Callable[[Any], Any] = lambda b: b) -> str:
        schema = configure(CsvRowSerializationSchema.Builder(type_info)).build()
        data: bytes = pickle.loads(pickle.dumps(schema)).serialize(row)
        return data.decode()

    QUOTED = ["a b", "a,b", "a\nb", " a", "#a", "a#b", "a'b", "a\tb"]
    PLAIN = ["é", "a;b", "1", "a-b", "a_b", "a.b", "true", "a:b", "A", "a/b", "a@b", ""]

    @pytest.mark.parametrize("text", QUOTED)
    def test_text_with_blanks_or_most_punctuation_is_quoted(self, text: str) -> None:
        assert self.written(Types.ROW([Types.STRING(), Types.INT()]), Row(text, 1)) == f'"{text}",1\n'

    @pytest.mark.parametrize("text", PLAIN)
    def test_other_short_text_is_not_quoted(self, text: str) -> None:
        assert self.written(Types.ROW([Types.STRING(), Types.INT()]), Row(text, 1)) == f"{text},1\n"

    def test_text_of_more_than_24_characters_is_quoted(self) -> None:
        strings = Types.ROW([Types.STRING(), Types.STRING()])
        assert self.written(strings, Row("a" * 24, "b" * 25)) == f'{"a" * 24},"{"b" * 25}"\n'

    @pytest.mark.parametrize(
        ("number", "text"),
        [
            (1.0, "1.0"),
            (1e20, "1.0E20"),
            (1e-7, "1.0E-7"),
            (0.1, "0.1"),
            (1e7, "1.0E7"),
            (123456789.0, "1.23456789E8"),
            (float("nan"), "NaN"),
            (-0.0, "-0.0"),
            (0.001, "0.001"),
            (0.00099, "9.9E-4"),
        ],
    )
    def test_numbers_are_written_as_in_java(self, number: float, text: str) -> None:
        assert self.written(DOUBLES, Row(number, 1.0)) == f"{text},1.0\n"

    @pytest.mark.parametrize(
        ("row", "configure", "text"),
        [
            (Row(1, "a", 1.5, True), lambda b: b, "1,a,1.5,true\n"),
            (Row(1, 'a"b', 1.5, True), lambda b: b, '1,"a""b",1.5,true\n'),
            (Row(None, None, None, None), lambda b: b, ",,,\n"),
            (Row(None, None, None, None), lambda b: b.set_null_literal("n/a"), "n/a,n/a,n/a,n/a\n"),
            (
                Row(1, "a;b", 1.5, True),
                lambda b: b.set_field_delimiter(";").set_line_delimiter("\r\n"),
                '1;"a;b";1.5;true\r\n',
            ),
            (Row(1, "a;b", 1.5, True), lambda b: b.set_line_delimiter(""), "1,a;b,1.5,true"),
            (Row(1, "a,b", 1.5, True), lambda b: b.disable_quote_character(), "1,a,b,1.5,true\n"),
            (Row(1, "a,'b", 1.5, True), lambda b: b.set_quote_character("'"), "1,'a,''b',1.5,true\n"),
            (Row(1, 'a,"b\\', 1.5, True), lambda b: b.set_escape_character("\\"), '1,"a,""b\\\\",1.5,true\n'),
        ],
    )
    def test_dialects_are_written_as_in_flink(self, row: Row, configure: Callable[[Any], Any], text: str) -> None:
        assert self.written(FOUR, row, configure) == text

    def test_arrays_and_rows_are_written_into_one_field(self) -> None:
        assert self.written(LISTED, Row(1, [1, 2])) == "1,1;2\n"
        assert self.written(LISTED, Row(1, [1, 2]), lambda b: b.set_array_element_delimiter(":")) == "1,1:2\n"
        assert self.written(NESTED, Row(1, Row(2, "x y"))) == '1,"2;x y"\n'

    def test_dates_and_times_are_written(self) -> None:
        kinds = [Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.BIG_DEC()]
        row = Row(
            datetime.date(2020, 1, 2),
            datetime.time(10, 11, 12),
            datetime.datetime(2020, 1, 2, 10, 11, 12, 123456),
            Decimal("1.10"),
        )
        assert self.written(Types.ROW(kinds), row) == '2020-01-02,10:11:12,"2020-01-02 10:11:12.123456",1.10\n'

    def test_another_line_delimiter_is_refused(self) -> None:
        with pytest.raises(PenstockError, match="line delimiter must be"):
            CsvRowSerializationSchema.Builder(FOUR).set_line_delimiter("x")


class TestCsvFiles:
    ROWS = (
        *(Row(1, "a b", 1.0, 0.1, True), Row(2, "a,b", 1e20, 1e10, False), Row(3, 'a"b', 1e-7, 1.5, True)),
        *(Row(4, "", 123456789.0, 1.0, True), Row(5, None, None, None, None), Row(6, " a", 1.5, 2.5, True)),
        *(Row(7, "#x", 1e7, 1e7, True), Row(8, "a'b\nc", 0.001, 0.001, True)),
        Row(9, "plain", float("nan"), float("inf"), True),
    )
    TYPE = Types.ROW_NAMED(
        ["id", "s", "x", "f", "b"], [Types.INT(), Types.STRING(), Types.DOUBLE(), Types.FLOAT(), Types.BOOLEAN()]
    )

    def builder(self) -> CsvSchemaBuilder:
        columns = CsvSchema.builder().add_number_column("id", Types.INT()).add_string_column("s")
        return (
            columns.add_number_column("x", Types.DOUBLE()).add_number_column("f", Types.FLOAT()).add_boolean_column("b")
        )

    def written(self, schema: CsvSchema, rows: Any, row_type: Any, folder: Path) -> str:
        env = StreamExecutionEnvironment.get_execution_environment()
        sink = FileSink.for_bulk_format(str(folder), CsvBulkWriters.for_schema(schema)).build()
        env.from_collection(list(rows), row_type).sink_to(sink)
        with JobHarness(env) as job:
            job.run()
        (file,) = list(folder.rglob("part-*"))
        return file.read_text()

    def test_a_file_has_the_bytes_that_flink_writes(self, tmp_path: Path) -> None:
        assert self.written(self.builder().build(), self.ROWS, self.TYPE, tmp_path) == (
            '1,"a b",1.0,0.1,true\n2,"a,b",1.0E20,1.0E10,false\n3,"a""b",1.0E-7,1.5,true\n4,,1.23456789E8,1.0,true\n'
            '5,,,,\n6," a",1.5,2.5,true\n7,"#x",1.0E7,1.0E7,true\n8,"a\'b\nc",0.001,0.001,true\n'
            "9,plain,NaN,Infinity,true\n"
        )

    def test_a_delimiter_that_sorts_after_letters_quotes_all_text(self, tmp_path: Path) -> None:
        schema = self.builder().set_column_separator("|").build()
        text = self.written(schema, self.ROWS[:1] + self.ROWS[8:], self.TYPE, tmp_path)
        assert text == '1|"a b"|1.0|0.1|true\n9|"plain"|NaN|Infinity|true\n'

    def test_none_header_and_missing_quotes_are_written_as_in_flink(self, tmp_path: Path) -> None:
        schema = self.builder().set_null_value("null").set_use_header().build()
        text = self.written(schema, self.ROWS[4:5], self.TYPE, tmp_path / "null")
        assert text == "id,s,x,f,b\n5,null,null,null,null\n"
        schema = self.builder().disable_quote_char().build()
        assert self.written(schema, self.ROWS[1:2], self.TYPE, tmp_path / "plain") == "2,a,b,1.0E20,1.0E10,false\n"

    def test_lists_are_written_into_one_field(self, tmp_path: Path) -> None:
        schema = CsvSchema.builder().add_number_column("id", Types.INT()).add_array_column("l", ";", int).build()
        assert self.written(schema, [Row(1, [1, 2]), Row(2, [])], LISTED, tmp_path) == "1,1;2\n2,\n"

    def test_the_separator_of_lists_can_be_removed_and_set(self) -> None:
        builder = CsvSchema.builder().add_number_column("id").add_array_column("l", ":", int)
        assert builder.size() == len(builder) == 2
        assert builder.build().text.separators == {"l": ":"}
        assert builder.remove_array_element_separator(1).build().text.separators == {"l": ";"}
        assert builder.set_array_element_separator("/").build().text.separators == {"l": "/"}
        with pytest.raises(PenstockError, match="list column 'l' has no separator"):
            builder.disable_array_element_separator().build()

    @pytest.mark.parametrize("lenient", [False, True])
    def test_comments_are_skipped_outside_of_quotes(self, tmp_path: Path, lenient: bool) -> None:
        (tmp_path / "in.csv").write_text('#id,name\n1,"a\n#b"\n# "no\n2,#c\n')
        columns = CsvSchema.builder().add_number_column("id").add_string_column("name").set_allow_comments().build()
        source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(columns), str(tmp_path)).build()
        env = StreamExecutionEnvironment.get_execution_environment()
        broken = OutputTag("broken")
        stream = env.from_source(source, dead_letters=broken if lenient else None)
        if lenient:
            stream.get_side_output(broken).print()
        with JobHarness(stream) as job:
            assert job.run() == [Row(id=1, name="a\n#b"), Row(id=2, name="#c")]


class TestRowFieldExtractor:
    def test_the_extractor_writes_the_bytes_of_one_field(self) -> None:
        row = Row(b"key", bytearray(b"value"), None)
        assert [RowFieldExtractorSchema(index).serialize(row) for index in range(3)] == [b"key", b"value", None]

    def test_a_negative_index_is_refused(self) -> None:
        with pytest.raises(ValueError, match="must not be negative, but is -1"):
            RowFieldExtractorSchema(-1)

    @pytest.mark.parametrize("record", [Row(1), Row(), "text"])
    def test_a_field_that_is_not_bytes_is_refused(self, record: Any) -> None:
        with pytest.raises(PenstockError, match=r"RowFieldExtractorSchema\(0\)"):
            RowFieldExtractorSchema(0).serialize(record)
