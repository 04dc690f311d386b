"""File formats, which turn one file into records. Text lines and JSON lines are defined here."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import msgspec

from penstock.common.serialization import python_charset
from penstock.common.typeinfo import TypeInformation, TypeSpec
from penstock.connectors.files.input_file import InputFile
from penstock.errors import PenstockError


class FileFormat(ABC):
    """Base class of file formats. Pickled into the job and used in the tasks."""

    @abstractmethod
    def read(self, file: InputFile) -> Iterator[Any]:
        """Yield the records of a file in order, always the same ones, holding only part of the file in memory.

        For a record that cannot be decoded, yield ``file.unreadable(...)`` instead. Raise BrokenContents if the rest of
        the file cannot be split into records.
        """


class StreamFormat(FileFormat):
    """A format read from start to end. Files named .gz, .bz2, .xz or .deflate are decompressed."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        """Read lines without their terminators (``\\n``, ``\\r\\n`` or ``\\r``).

        Bytes that are invalid in the charset become U+FFFD. If the program collects dead letters, lines with such bytes
        become dead letters instead.
        """
        return _TextLines(charset_name)

    @staticmethod
    def parsed_lines(parse: Callable[[str], Any], charset_name: str = "UTF-8") -> StreamFormat:
        """Apply ``parse`` to each line that is not blank. A line for which it raises ValueError is unreadable."""
        return _ParsedLines(parse, charset_name)

    @staticmethod
    def json_lines(value_type: Any = None) -> StreamFormat:
        """Read one JSON value per line, skipping blank lines.

        Args:
            value_type: Type of the records, such as a dataclass. Defaults to the plain JSON value.
        """
        return _JsonLines(value_type)

    @staticmethod
    def csv(
        columns: Sequence[str] | Mapping[str, Any] | None = None,
        *,
        header: bool | None = None,
        value_type: TypeSpec = None,
        delimiter: str = ",",
        quote: str | None = '"',
        null_text: str | None = None,
        charset_name: str = "UTF-8",
    ) -> StreamFormat:
        """Read CSV as Rows named after the columns, or as objects of ``value_type``.

        Args:
            columns: Column names, or a mapping of names to types. Defaults to the fields of ``value_type``, or to the
                header line.
            header: Whether the first line is a header. Defaults to True if no columns are given.
            value_type: Type of the records.
            delimiter: Field delimiter.
            quote: Quote character; None for no quoting.
            null_text: Field text that stands for None. Empty fields are also None in columns that are not text.
            charset_name: Charset of the files.
        """
        from penstock.common.csv_text import CsvText
        from penstock.connectors.files.csv_format import CsvFormat

        return CsvFormat(columns, header, value_type, CsvText(delimiter, quote, null_text=null_text), charset_name)


class BulkFormat(FileFormat):
    """A format that reads files in batches, such as Parquet."""

    @staticmethod
    def parquet(columns: Sequence[str] | None = None, value_type: Any = None, batch_size: int = 4096) -> BulkFormat:
        """Read Parquet as Rows named after the columns, or as objects of ``value_type``.

        Args:
            columns: Columns to read. Defaults to the fields of ``value_type``, or to all columns.
            value_type: Type of the records.
            batch_size: Records to hold in memory.
        """
        from penstock.connectors.files.parquet_format import ParquetFormat

        return ParquetFormat(columns, value_type, batch_size)


class _TextLines(StreamFormat):
    def __init__(self, charset: str) -> None:
        self._charset = python_charset(charset)

    def read(self, file: InputFile) -> Iterator[Any]:
        with file.open() as data:
            if file.lenient or not ends_lines_as_ascii(self._charset):
                # Without newline= the wrapper splits lines like Java's readLine, and returns each terminator as \n.
                with io.TextIOWrapper(data, _charset_of(data, self._charset), "replace") as lines:
                    for line in lines:
                        yield line[:-1] if line[-1] == "\n" else line
            else:
                yield from self._strict(file, data)

    def _strict(self, file: InputFile, data: IO[bytes]) -> Iterator[Any]:
        start = 0
        for number, line in enumerate(lines_of(data), 1):
            raw = line.rstrip(b"\r\n")
            try:
                yield raw.decode(self._charset)
            except UnicodeDecodeError as error:
                yield file.unreadable(f"line {number}, byte {start}", raw, error)
            start += len(line)


class _ParsedLines(StreamFormat):
    def __init__(self, parse: Callable[[str], Any], charset: str) -> None:
        if not callable(parse):
            raise PenstockError(f"parsed_lines needs a function of a line, not {type(parse).__name__}.")
        self._parse = parse
        self._charset = python_charset(charset)
        if not ends_lines_as_ascii(self._charset):
            raise PenstockError(f"parsed_lines does not support the charset {charset}; write the file in UTF-8.")

    def read(self, file: InputFile) -> Iterator[Any]:
        parse, charset = self._parse, self._charset
        with file.open() as data:
            start = 0
            for number, line in enumerate(lines_of(data), 1):
                raw = line.rstrip(b"\r\n")
                if raw and not raw.isspace():
                    try:
                        record = parse(raw.decode(charset))
                    except ValueError as error:
                        record = file.unreadable(f"line {number}, byte {start}", raw, error)
                    yield record
                start += len(line)


def lines_of(data: IO[bytes]) -> Iterator[bytes]:
    """Yield lines with their terminators: \\n, \\r\\n or \\r."""
    for line in data:
        if b"\r" in line:
            yield from line.splitlines(keepends=True)
        else:
            yield line


def ends_lines_as_ascii(charset: str) -> bool:
    """Return whether lines can be split before decoding, unlike in UTF-16 and UTF-32."""
    try:
        return b"\r\n".decode(charset) == "\r\n"
    except UnicodeDecodeError:
        return False


def _charset_of(file: Any, charset: str) -> str:
    """Return the charset to decode with. As in Java, UTF-16 without a byte order mark is big-endian."""
    if charset == "utf-16" and file.peek(2)[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16-be"
    return charset


class _JsonLines(StreamFormat):
    def __init__(self, value_type: Any) -> None:
        self._type = value_type
        self._decode = json_decoder(value_type)

    def __reduce__(self) -> tuple[Any, ...]:
        return _JsonLines, (self._type,)

    def read(self, file: InputFile) -> Iterator[Any]:
        decode = self._decode
        with file.open() as data:
            for number, line in enumerate(data, 1):
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if text.isspace() or not text:
                    continue
                try:
                    value = decode(text)
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    start = data.tell() - len(line)
                    value = file.unreadable(f"line {number}, byte {start}", line.rstrip(b"\r\n"), error)
                yield value


def json_decoder(value_type: Any) -> Any:
    if isinstance(value_type, TypeInformation):
        raise PenstockError(f"JSON lines need a dataclass, a TypedDict or another type hint, not {value_type!r}.")
    try:
        return msgspec.json.Decoder(Any if value_type is None else value_type).decode
    except TypeError as error:
        raise PenstockError(f"JSON lines cannot be read as {value_type!r}: {error}") from error
