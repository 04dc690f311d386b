"""CSV files, read as Rows or as records of a given type."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

import msgspec

from penstock.common.csv_text import CsvText
from penstock.common.fields import columns_of
from penstock.common.row import Row
from penstock.common.serialization import python_charset
from penstock.common.typeinfo import BasicType, BasicTypeInfo, RowTypeInfo, TypeInformation, TypeSpec
from penstock.connectors.files.formats import StreamFormat
from penstock.connectors.files.held_lines import HeldLines
from penstock.connectors.files.input_file import BrokenContents, InputFile
from penstock.errors import PenstockError

# The default limit of the csv module is 128 KiB per field.
csv.field_size_limit(2**31 - 1)

_WHOLE = BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG, BasicType.BIG_INT
_BROKEN = BasicType.FLOAT, BasicType.DOUBLE


class CsvFormat(StreamFormat):
    """`strict` checks the header against the given columns; otherwise the header line is skipped.

    `drops_others` accepts lines with more fields than there are columns.
    """

    def __init__(
        self,
        columns: Sequence[str] | Mapping[str, Any] | None,
        header: bool | None,
        value_type: TypeSpec,
        text: CsvText,
        charset: str = "UTF-8",
        strict: bool = True,
        drops_others: bool = False,
    ) -> None:
        types = dict(columns) if isinstance(columns, Mapping) else dict.fromkeys(columns or (), str)
        self._record = None if value_type is None or isinstance(value_type, RowTypeInfo) else value_type
        if value_type is not None:
            known = columns_of(value_type)
            unknown = [name for name in types if name not in known]
            if unknown:
                raise PenstockError(f"CSV: {value_type!r} has no fields for the columns {', '.join(unknown)}.")
            types = {name: known[name] for name in types} if columns is not None else known
        self._types = {name: _hint(name, kind) for name, kind in types.items()}
        self._named = columns is not None
        self._header = header if header is not None else columns is None
        if not self._header and not self._types:
            raise PenstockError("CSV without a header needs column names: csv(['id', 'name']), or a value_type.")
        self._text = text
        self._charset = python_charset(charset)
        self._strict = strict
        self._drops_others = drops_others

    def read(self, file: InputFile) -> Iterator[Any]:
        held = None if file.lenient else HeldLines(self._charset)
        try:
            with file.open() as data, io.TextIOWrapper(data, self._charset, "replace", newline="") as text:
                if held is not None:
                    yield from self._records(held.rows(data, text, self._text), file, held)
                    return
                reader = (
                    CommentedLines(text, self._text.options())
                    if self._text.comments
                    else csv.reader(text, **self._text.options())
                )
                try:
                    yield from self._records(reader, file, None)
                except csv.Error as error:
                    yield file.unreadable(f"line {reader.line_num}", b"", error)
        except BrokenContents as broken:
            if held is not None and (before := held.raw()):
                broken.raw = (before + broken.raw).rstrip(b"\r\n")
                broken.position = f"from line {held.first} on"
            raise

    def _records(self, rows: Any, file: InputFile, held: HeldLines | None) -> Iterator[Any]:
        names = list(self._types)
        if self._header:
            first: list[str] = next(rows, [])
            if not first:
                return
            if first[0].startswith("\ufeff"):
                first[0] = first[0][1:]
            names = self._names(names, first)
        fields = tuple(names)
        hints = [self._types.get(name, str) for name in names]
        readers = [self._reader(name, hint) for name, hint in zip(names, hints)]
        count, record = len(fields), self._record

        def unreadable(line: list[str], reason: str | Exception) -> Any:
            if held is not None:
                return file.unreadable(f"line {held.first}", held.raw().rstrip(b"\r\n"), reason)
            return file.unreadable(f"line {rows.line_num}", self._text.delimiter.join(line), reason)

        for line in rows:
            if held is not None and self._text.comments and held.raw().startswith(b"#"):
                continue
            if not line:
                if held is not None and held.wrong is not None:
                    yield unreadable(line, held.wrong)
                continue
            if len(line) > count and self._drops_others:
                del line[count:]
            if len(line) != count:
                yield unreadable(line, f"it has {len(line)} fields, not {count}: {', '.join(fields)}")
                continue
            values: list[Any] = []
            try:
                for read, field in zip(readers, line):
                    values.append(read(field))
                made = Row.of(fields, values) if record is None else self._make(dict(zip(fields, values)))
            except (msgspec.ValidationError, ValueError) as error:
                which = len(values)
                column = f"column '{fields[which]}' is {line[which]!r}: " if which < count else ""
                made = unreadable(line, f"{column}{error}")
            yield made

    def _make(self, fields: dict[str, Any]) -> Any:
        return msgspec.convert(fields, self._record, strict=False)

    def _names(self, names: list[str], first: list[str]) -> list[str]:
        if self._named:
            if self._strict and names != first:
                reason = f"the header has the columns {', '.join(first)}; expected {', '.join(names)}"
                raise BrokenContents("from line 1 on", b"", reason)
            return names
        doubled = sorted({name for name in first if first.count(name) > 1})
        # A record type can have defaults, so its own conversion checks for missing fields.
        missing = [name for name in names if name not in first and self._record is None]
        if doubled or missing:
            what = f"names {doubled[0]} twice" if doubled else f"has no column {', '.join(missing)}"
            raise BrokenContents("from line 1 on", b"", f"the header {what}: {', '.join(first)}")
        return first

    def _reader(self, name: str, hint: Any) -> Callable[[str], Any]:
        null = self._text.null_text
        if hint is str:
            return (lambda field: field) if null is None else (lambda field: None if field == null else field)
        known: dict[Any, Callable[[str], Any]] = {int: _int, float: float, bool: _bool}
        convert = known.get(hint) or _convert(hint)
        if get_origin(hint) is list:
            separator, element = (
                self._text.separators.get(name, ";"),
                self._reader(name, _hint(name, get_args(hint)[0])),
            )
            convert = lambda field: [element(part) for part in field.split(separator)]  # noqa: E731
        takes_text = str in get_args(hint) and get_origin(hint) is not list
        nulls = {null} if takes_text else {null, ""}
        return lambda field: None if field in nulls else convert(field)


class CommentedLines:
    """A reader of CSV that skips lines that start with #, except within a quoted field."""

    def __init__(self, text: Iterable[str], options: dict[str, Any]) -> None:
        self._text = iter(text)
        self._between = True
        self._reader = csv.reader(self._lines(), **options)

    @property
    def line_num(self) -> int:
        """The number of lines that were read."""
        return self._reader.line_num

    def _lines(self) -> Iterator[str]:
        for line in self._text:
            if not (self._between and line.startswith("#")):
                self._between = False
                yield line

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        self._between = True
        return next(self._reader)


def _convert(hint: Any) -> Callable[[str], Any]:
    return lambda field: msgspec.convert(field, hint, strict=False)


def _int(field: str) -> int:
    # int() also accepts 1_000 and non-ASCII digits.
    return msgspec.convert(field.strip(), int, strict=False)


def _bool(field: str) -> bool:
    text = field.strip().lower()
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"


def _hint(name: str, kind: TypeSpec) -> Any:
    """Return a column's type as a type hint."""
    if kind is Any:
        return str
    if not isinstance(kind, TypeInformation):
        return kind
    basic = kind.get_basic_type() if isinstance(kind, BasicTypeInfo) else None
    if basic in (BasicType.STRING, BasicType.CHAR):
        return str
    if basic in _WHOLE:
        return int
    if basic in _BROKEN:
        return float
    if basic is BasicType.BOOLEAN:
        return bool
    raise PenstockError(f"CSV: column '{name}' cannot be {kind!r}; use a type hint such as Decimal or datetime.date.")
