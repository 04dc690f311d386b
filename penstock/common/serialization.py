"""How records become the bytes of a file or a message, and come back."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from penstock.absent import explain_absent
from penstock.common.display import shower
from penstock.common.row import Row
from penstock.common.time import Instant
from penstock.common.typeinfo import TypeSpec
from penstock.errors import PenstockError

__all__ = [
    "BulkWriter",
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "JsonSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]


class Encoder(ABC):
    """Makes a file of a row format: a header, then each record with its end. Subclass it for a format of your own.

    The writer calls `prepare` for each record at once and `pack` for many prepared ones later. A subclass needs only
    `encode`; the other two save time where records can be joined before they are encoded.
    """

    format = ""
    """What it writes, in words: a part file that was begun in another format is closed and not gone on with."""
    header = b""
    """What every part file begins with."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """One record, with its end."""

    def prepare(self, value: Any) -> Any:
        """Something that does not change when the record does."""
        return self.encode(value)

    def pack(self, prepared: list[Any]) -> bytes:
        """Return many prepared records as bytes."""
        return b"".join(prepared)

    def for_type(self, value_type: TypeSpec) -> Encoder:
        """The encoder for records of this declared type."""
        return self

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """One line for each record, as `print` shows it. What the charset does not have becomes a question mark."""
        return _Text(charset_name)

    @staticmethod
    def json_lines() -> Encoder:
        """One line of JSON for each record: dicts, dataclasses, named Rows, lists, plain values."""
        return _JsonLines()

    @staticmethod
    def csv(
        columns: Sequence[str] | TypeSpec | None = None,
        *,
        header: bool = False,
        delimiter: str = ",",
        quote: str = '"',
        null_text: str = "",
    ) -> Encoder:
        """One line of CSV for each record. `columns`: names, or a dataclass or row type; else the stream's type.

        Records may be Rows, dicts, tuples, lists or objects with these attributes. `header` writes the names on top of
        every file.
        """
        from penstock.common.csv_text import CsvEncoder, CsvText

        return CsvEncoder(columns, CsvText(delimiter, quote, null_text=null_text), header)


# Charsets that begin with a mark: Python would write it with every call. As in Java, the order is the big-endian one.
_MARKED = {"utf-16": "utf-16-be", "utf-32": "utf-32-be", "utf-8-sig": "utf-8"}


class _Text(Encoder):
    def __init__(self, charset: str, value_type: TypeSpec = None) -> None:
        self._given = charset
        self._value_type = value_type
        if value_type is not None:
            # A call less per record, 0.03 µs.
            self.prepare = shower(value_type)  # type: ignore[assignment]
        charset = python_charset(charset)
        self.format = f"text {charset}"
        self._charset = _MARKED.get(charset, charset)
        if charset in _MARKED:
            self.header = "\ufeff".encode(self._charset)

    # The type itself is the cheapest way to make a string of anything: 0.03 µs for one that is a string already.
    prepare = str  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _Text, (self._given, self._value_type)

    def for_type(self, value_type: TypeSpec) -> Encoder:
        return _Text(self._given, value_type)

    def encode(self, value: Any) -> bytes:
        return self.pack([self.prepare(value)])

    def pack(self, prepared: list[Any]) -> bytes:
        return ("\n".join(prepared) + "\n").encode(self._charset, "replace")


class _JsonLines(Encoder):
    format = "json lines"

    def __init__(self) -> None:
        # A call less per record, 0.03 µs.
        self.prepare = msgspec.json.Encoder(enc_hook=_plain).encode  # type: ignore[assignment,method-assign]

    def __reduce__(self) -> tuple[Any, ...]:
        return _JsonLines, ()

    def encode(self, value: Any) -> bytes:
        return self.pack([self.prepare(value)])

    def pack(self, prepared: list[Any]) -> bytes:
        return b"\n".join(prepared) + b"\n"


def _plain(value: Any) -> Any:
    """What JSON makes of values that msgspec does not know."""
    if isinstance(value, Row):
        return list(value) if value._fields is None else value.as_dict()
    if isinstance(value, Instant):
        return value.to_epoch_milli()
    if hasattr(value, "item"):
        return value.item()
    raise PenstockError(f"JSON has no form for {value!r}, a {type(value).__qualname__}: map it first.")


def python_charset(name: str) -> str:
    """Python's name of a charset that may be given by Java's."""
    try:
        return codecs.lookup(name).name
    except (LookupError, TypeError) as error:
        raise PenstockError(
            f"There is no charset {name!r}. UTF-8, ISO-8859-1 and UTF-16LE are some there are."
        ) from error


class OutputFile(Protocol):
    """What a bulk writer writes to."""

    def write(self, data: bytes) -> int:
        """Write bytes, and return how many."""


class BulkWriter(ABC):
    """Writes one file of a bulk format: `write` any number of times, then `finish`."""

    @abstractmethod
    def write(self, prepared: list[Any]) -> None:
        """Write many prepared records."""

    @abstractmethod
    def finish(self) -> None:
        """Write what belongs at the end. Does not close the file."""


class BulkWriterFactory(ABC):
    """Makes the files of a format that cannot be appended to: each is begun and finished in one epoch.

    The same records must give the same bytes.
    """

    format = ""
    batch = 10_000
    """How many records the writer gathers before it calls `BulkWriter.write`."""

    @abstractmethod
    def create(self, file: OutputFile) -> BulkWriter:
        """Return a writer of this file."""

    def prepare(self, value: Any) -> Any:
        """Called for each record at once: something that does not change when the record does."""
        return value

    def for_type(self, value_type: TypeSpec) -> BulkWriterFactory:
        """The factory for records of this declared type."""
        return self

    @staticmethod
    def parquet(schema: Any = None, *, compression: str = "snappy", row_group_size: int = 100_000) -> BulkWriterFactory:
        """Parquet. `schema`: a dataclass, TypedDict, row type or pyarrow Schema; without one, the stream's type."""
        from penstock.common.parquet import ParquetWriterFactory

        return ParquetWriterFactory(schema, compression, row_group_size)

    @staticmethod
    def of_encoder(encoder: Encoder) -> BulkWriterFactory:
        """A row format written as a bulk format."""
        return _EncoderFactory(encoder)


class _EncoderFactory(BulkWriterFactory):
    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self.format = encoder.format
        self.batch = 1000

    def create(self, file: OutputFile) -> BulkWriter:
        return _EncoderWriter(self._encoder, file)

    def prepare(self, value: Any) -> Any:
        return self._encoder.prepare(value)

    def for_type(self, value_type: TypeSpec) -> BulkWriterFactory:
        return _EncoderFactory(self._encoder.for_type(value_type))


class _EncoderWriter(BulkWriter):
    def __init__(self, encoder: Encoder, file: OutputFile) -> None:
        self._encoder = encoder
        self._file = file
        if encoder.header:
            file.write(encoder.header)

    def write(self, prepared: list[Any]) -> None:
        self._file.write(self._encoder.pack(prepared))

    def finish(self) -> None:
        pass


class SerializationSchema(ABC):
    """Makes the bytes of a message. Pickled into the job; subclass it for a form of your own."""

    @abstractmethod
    def serialize(self, value: Any) -> bytes | None:
        """The same bytes for the same value. None: the message has no value, or no key."""


class DeserializationSchema(ABC):
    """Makes a value of the bytes of a message. Pickled into the job; subclass it for a form of your own."""

    @abstractmethod
    def deserialize(self, data: bytes) -> Any:
        """The same value for the same bytes. What it raises is told with the place of the message."""


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text to bytes and back. What the charset does not have is replaced, as in Java."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = python_charset(charset)

    def serialize(self, value: str) -> bytes:
        """Return a text as bytes."""
        return value.encode(self._charset, "replace")

    def deserialize(self, data: bytes) -> str:
        """Return bytes as a text."""
        return data.decode(self._charset, "replace")


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """The bytes as they are."""

    def serialize(self, value: bytes) -> bytes:
        """Return the bytes as they are."""
        return value

    def deserialize(self, data: bytes) -> bytes:
        """Return the bytes as they are."""
        return data


class JsonSchema(SerializationSchema, DeserializationSchema):
    """JSON to dicts, lists and plain values, or to `value_type`, such as a dataclass; and back."""

    def __init__(self, value_type: Any = None) -> None:
        self._type = value_type
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        try:
            self._decode = msgspec.json.Decoder(Any if value_type is None else value_type).decode
        except TypeError as error:
            raise PenstockError(
                f"JsonSchema needs a dataclass or another type hint, not {value_type!r}: {error}"
            ) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return JsonSchema, (self._type,)

    def serialize(self, value: Any) -> bytes:
        """Return a value as JSON."""
        return self._encode(value)

    def deserialize(self, data: bytes) -> Any:
        """Return the value of a JSON document."""
        return self._decode(data)


explain_absent(__name__)
