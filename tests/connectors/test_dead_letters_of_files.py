"""Undecodable records in files become letters with file, line and bytes; the rest of the file is read."""

import bz2
import gzip
import lzma
import os
import zlib
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.common import Row
from penstock.connectors.dead_letters import UnreadableRecord
from penstock.connectors.files.input_file import UnreadableFile
from penstock.datastream import OutputTag, StreamExecutionEnvironment
from penstock.datastream.connectors import DeadLetter
from penstock.datastream.connectors.file_system import BulkFormat, FileSource, StreamFormat
from penstock.errors import PenstockError
from penstock.testing import JobHarness

BROKEN = OutputTag("broken")
quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass
class Order:
    id: int
    name: str


def job_over(format, path, letters=True):
    """Return a job that outputs all records of a file and, with `letters`, the dead letters."""
    build = FileSource.for_bulk_file_format if isinstance(format, BulkFormat) else FileSource.for_record_stream_format
    env = StreamExecutionEnvironment.get_execution_environment()
    source = build(format, str(path)).build()
    if not letters:
        return JobHarness(env.from_source(source, source_name="orders").uid("orders"))
    stream = env.from_source(source, source_name="orders", dead_letters=BROKEN).uid("orders")
    return JobHarness(stream.union(stream.get_side_output(BROKEN)))


def read(format, path):
    """Return the records and the letters."""
    given = job_over(format, path).run()
    letters = [each for each in given if isinstance(each, DeadLetter)]
    assert all(letter.source == "orders" and letter.split == str(path) for letter in letters)
    return [each for each in given if not isinstance(each, DeadLetter)], letters


def stored(tmp_path, data, name="file"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


class TestJson:
    def test_a_broken_line_is_a_letter_with_its_line_and_first_byte(self, tmp_path):
        path = stored(tmp_path, b'{"a": 1}\n{"a": oops}\r\n\n[2]\n"caf\xe9"\n')
        records, letters = read(StreamFormat.json_lines(), path)
        assert records == [{"a": 1}, [2]]
        assert [(each.position, each.raw) for each in letters] == [
            ("line 2, byte 9", b'{"a": oops}'),
            ("line 5, byte 27", b'"caf\xe9"'),
        ]
        assert letters[0].reason.startswith("JSON is malformed")

    def test_a_value_of_the_wrong_type_is_a_letter(self, tmp_path):
        path = stored(tmp_path, b'{"id": 1, "name": "a"}\n{"id": "x", "name": "b"}\n{"id": 2}\n')
        records, letters = read(StreamFormat.json_lines(Order), path)
        assert records == [Order(1, "a")]
        assert [each.reason for each in letters] == [
            "Expected `int`, got `str` - at `$.id`",
            "Object missing required field `name`",
        ]

    @pytest.mark.parametrize("ending", ["", ".gz", ".deflate"])
    def test_byte_positions_count_decompressed_bytes(self, tmp_path, ending):
        data = b"1\n" * 50_000 + b"x\n2\n"
        compress = {"": bytes, ".gz": gzip.compress, ".deflate": zlib.compress}[ending]
        records, letters = read(StreamFormat.json_lines(), stored(tmp_path, compress(data), f"in.json{ending}"))
        assert len(records) == 50_001
        assert [each.position for each in letters] == ["line 50001, byte 100000"]

    def test_a_broken_json_line_fails_the_job_if_letters_are_off(self, tmp_path):
        path = stored(tmp_path, b"1\n{oops\n2\n")
        with pytest.raises(UnreadableRecord) as caught:
            job_over(StreamFormat.json_lines(), path, letters=False).run()
        assert f"Source 'orders' (uid 'orders') cannot read {path}, line 2, byte 2: JSON is malformed" in str(
            caught.value
        )
        assert "The record: {oops" in str(caught.value)


class TestText:
    def test_a_line_with_invalid_bytes_is_a_letter(self, tmp_path):
        path = stored(tmp_path, b"one\rtwo\r\ncaf\xe9\n\nlast")
        records, letters = read(StreamFormat.text_line_format(), path)
        assert records == ["one", "two", "", "last"]
        assert [(each.position, each.raw) for each in letters] == [("line 3, byte 9", b"caf\xe9")]
        assert "can't decode byte 0xe9" in letters[0].reason

    def test_invalid_bytes_are_replaced_as_in_flink_if_letters_are_off(self, tmp_path):
        path = stored(tmp_path, b"caf\xe9\n")
        assert job_over(StreamFormat.text_line_format(), path, letters=False).run() == ["caf\ufffd"]

    @quick
    @given(st.lists(st.text().map(lambda line: "".join(line.split("\n")).replace("\r", ""))), st.sampled_from("\n\r"))
    def test_valid_lines_are_the_same_with_and_without_letters(self, tmp_path, lines, end):
        path = stored(tmp_path, "".join(line + end for line in lines).encode(errors="ignore"))
        records, letters = read(StreamFormat.text_line_format(), path)
        assert (records, letters) == (job_over(StreamFormat.text_line_format(), path, letters=False).run(), [])

    def test_utf_16_lines_are_read_with_letters_enabled(self, tmp_path):
        path = stored(tmp_path, "é\nü\n".encode("utf-16"))
        assert read(StreamFormat.text_line_format("UTF-16"), path) == (["é", "ü"], [])


def celsius(line):
    """Parse `Oslo 12.5`, or raise ValueError."""
    city, degrees = line.split(" ")
    return city, float(degrees)


class TestParsedLines:
    def test_a_function_parses_each_line(self, tmp_path):
        path = stored(tmp_path, b"Oslo 12.5\n\nParis warm\r\nRome\nBern 9\nD\xfcren 11\n")
        records, letters = read(StreamFormat.parsed_lines(celsius), path)
        assert records == [("Oslo", 12.5), ("Bern", 9.0)]
        assert [(each.position, each.raw) for each in letters] == [
            ("line 3, byte 11", b"Paris warm"),
            ("line 4, byte 23", b"Rome"),
            ("line 6, byte 35", b"D\xfcren 11"),
        ]
        assert letters[0].reason == "could not convert string to float: 'warm'"

    def test_the_first_unparsable_line_fails_the_job_if_letters_are_off(self, tmp_path):
        path = stored(tmp_path, b"Oslo 12.5\nParis warm\n")
        with pytest.raises(UnreadableRecord, match=r"line 2, byte 10: could not convert .*\nThe record: Paris warm"):
            job_over(StreamFormat.parsed_lines(celsius), path, letters=False).run()

    def test_an_error_other_than_value_error_is_raised_unchanged(self, tmp_path):
        path = stored(tmp_path, b"Oslo\n")
        with pytest.raises(IndexError):
            job_over(StreamFormat.parsed_lines(lambda line: line.split(" ")[1]), path).run()

    def test_parsed_lines_reject_a_non_function_and_utf_16(self):
        with pytest.raises(PenstockError, match="needs a function of a line, not str"):
            StreamFormat.parsed_lines("celsius")
        with pytest.raises(PenstockError, match="does not support the charset UTF-16"):
            StreamFormat.parsed_lines(celsius, "UTF-16")


class TestCsv:
    format = StreamFormat.csv({"id": int, "name": str})

    @pytest.mark.parametrize(
        ("broken", "reason"),
        [
            (b"x,b", "column 'id' is 'x': Expected `int`, got `str`"),
            (b"2", "it has 1 fields, not 2: id, name"),
            (b'2,"a"b', "',' expected after '\"'"),
            (b"2,caf\xe9", "'utf-8' codec can't decode"),
            (b'x,"two\nlines"', "column 'id' is 'x'"),
        ],
    )
    def test_a_broken_record_is_a_letter_and_the_next_one_is_read(self, tmp_path, broken, reason):
        path = stored(tmp_path, b"1,a\n\n" + broken + b"\n3,c\n")
        records, letters = read(self.format, path)
        assert records == [Row(id=1, name="a"), Row(id=3, name="c")]
        (letter,) = letters
        assert (letter.position, letter.raw) == ("line 3", broken)
        assert reason in letter.reason

    def test_an_unclosed_quote_consumes_the_rest_of_the_file(self, tmp_path):
        records, letters = read(self.format, stored(tmp_path, b'1,a\n2,"b\n3,c\n'))
        assert records == [Row(id=1, name="a")]
        assert [(each.position, each.raw) for each in letters] == [("line 2", b'2,"b\n3,c')]

    def test_a_csv_record_that_its_class_rejects_is_a_letter(self, tmp_path):
        records, letters = read(StreamFormat.csv(value_type=Order), stored(tmp_path, b"id,name\n1,a\nx,b\n"))
        assert records == [Order(1, "a")]
        assert [each.raw for each in letters] == [b"x,b"]

    def test_a_file_with_different_columns_is_one_letter(self, tmp_path):
        path = stored(tmp_path, b"name,id\na,1\n")
        records, letters = read(StreamFormat.csv(["id", "name"], header=True), path)
        assert records == []
        assert [(each.position, each.raw) for each in letters] == [("from line 1 on", b"name,id")]
        assert letters[0].reason == "the header has the columns name, id; expected id, name"

    def test_a_letter_for_a_truncated_file_contains_the_complete_record_so_far(self, tmp_path):
        data = b"1,a\n" + b'2,"' + bytes(range(65, 91)) * 4000 + b'\nmore"\n'
        cut = gzip.compress(data, mtime=0)[:-12]
        records, letters = read(self.format, stored(tmp_path, cut, "in.csv.gz"))
        assert records == [Row(id=1, name="a")]
        (letter,) = letters
        assert letter.position == "from line 2 on"
        assert data[4:].startswith(letter.raw)
        assert len(letter.raw) > 1000


class TestAFileThatIsCutOff:
    @pytest.mark.parametrize(
        ("ending", "compress"),
        [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".deflate", zlib.compress)],
    )
    @pytest.mark.parametrize("format", [StreamFormat.text_line_format(), StreamFormat.json_lines()])
    def test_a_truncated_file_yields_its_readable_records_and_one_letter(self, tmp_path, ending, compress, format):
        lines = [str(zlib.crc32(str(number).encode())) for number in range(40_000)]
        data = "".join(line + "\n" for line in lines).encode()
        path = stored(tmp_path, compress(data)[:-100], f"in{ending}")
        records, letters = read(format, path)
        assert [str(record) for record in records] == lines[: len(records)]
        (letter,) = letters
        start = len("".join(line + "\n" for line in lines[: len(records)]))
        assert letter.position == f"from line {len(records) + 1}, byte {start} on"
        assert data[start:].startswith(letter.raw)
        with pytest.raises(UnreadableRecord, match=rf"'orders' \(uid 'orders'\) cannot read {path}, from line"):
            job_over(format, path, letters=False).run()

    def test_a_file_that_is_not_gzip_is_one_letter(self, tmp_path):
        records, letters = read(StreamFormat.json_lines(), stored(tmp_path, b"[1]\n", "in.json.gz"))
        assert records == []
        assert [(each.position, each.reason) for each in letters] == [
            ("from line 1, byte 0 on", "Not a gzipped file (b'[1')")
        ]

    def test_an_operating_system_error_is_never_a_letter(self, tmp_path, monkeypatch):
        path = stored(tmp_path, b"1\n")

        def refused(path):
            raise PermissionError(13, "Permission denied", path)

        monkeypatch.setattr("penstock.connectors.files.input_file.open_bytes", refused)
        with pytest.raises(UnreadableFile, match=r"cannot be read: .*Permission denied"):
            job_over(StreamFormat.json_lines(), path).run()


class TestParquet:
    def test_a_parquet_row_that_its_class_rejects_is_a_letter(self, tmp_path):
        path = tmp_path / "in.parquet"
        pq.write_table(pa.table({"id": [1, None, 3], "name": ["a", "b", "c"]}), path)
        records, letters = read(BulkFormat.parquet(value_type=Order, batch_size=2), path)
        assert records == [Order(1, "a"), Order(3, "c")]
        assert [(each.position, each.raw, each.reason) for each in letters] == [
            ("row 2", b'{"id":null,"name":"b"}', "Expected `int`, got `null` - at `$.id`")
        ]

    def test_a_file_that_is_not_parquet_is_one_letter(self, tmp_path):
        records, letters = read(BulkFormat.parquet(), stored(tmp_path, b"no Parquet at all"))
        assert records == []
        assert [each.position for each in letters] == ["from row 1 on"]
        assert letters[0].reason.startswith("It cannot be read as Parquet: ")

    def test_a_damaged_row_group_ends_a_parquet_file_with_a_letter(self, tmp_path):
        path = tmp_path / "in.parquet"
        pq.write_table(pa.table({"n": list(range(6000))}), path, row_group_size=3000, compression="gzip")
        group = pq.ParquetFile(path).metadata.row_group(1).column(0)
        start = group.dictionary_page_offset or group.data_page_offset
        data = bytearray(path.read_bytes())
        data[start : start + group.total_compressed_size] = b"\xff" * group.total_compressed_size
        path.write_bytes(data)
        records, letters = read(BulkFormat.parquet(batch_size=1000), path)
        assert [row.n for row in records] == list(range(3000))
        assert [each.position for each in letters] == ["from row 3001 on"]


class Meddled(StreamFormat):
    """JSON lines of a file that is modified after its first record is read."""

    def __init__(self, meddle):
        self.meddle = meddle

    def read(self, file):
        records = StreamFormat.json_lines().read(file)
        yield next(records)
        self.meddle(file.path)
        yield from records


def appended(path):
    with open(path, "a") as file:
        file.write("3\n")


def touched(path):
    os.utime(path, (1, 1))


def overwritten(path):
    with open(path, "r+") as file:
        file.write("x")
    os.utime(path, (1, 1))


def broken_and_longer(path):
    with open(path, "a") as file:
        file.write("{half of a rec")


class TestAFileThatChangesInTheMiddle:
    @pytest.mark.parametrize("letters", [True, False])
    @pytest.mark.parametrize(
        ("meddle", "what"),
        [
            (appended, "its size was 40,004 bytes and is now 40,006"),
            (touched, r"its modification time was 20.* and is now 1970-01-01 00:00:01.000\+00:00"),
            (overwritten, "is now 1970-01-01"),
            (broken_and_longer, "its size was 40,004 bytes and is now 40,018"),
            (os.unlink, "is missing"),
        ],
    )
    def test_a_file_that_changes_while_it_is_read_fails_the_epoch_without_output(self, tmp_path, meddle, what, letters):
        path = stored(tmp_path, b"1\n" + b"2\n" * 20_000 + b"x\n")
        job = job_over(Meddled(meddle), path, letters=letters)
        with pytest.raises(UnreadableFile, match=rf"'orders' \(uid 'orders'\): The file {path} .*{what}"):
            job.run()
        assert job.output == []
