"""Serialization of records to the bytes of files and messages, and back."""

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
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]


class Encoder(ABC):
    """Encodes records for a row-oriented file format: a header, then the records. Subclass it to add a format.

    The writer calls ``prepare`` immediately for each record, and ``pack`` later for a batch of prepared records. A
    subclass only has to implement ``encode``; override the other two if records can be encoded faster in batches.
    """

    format = ""
    """A description of the format. A part file started in a different format is closed instead of continued."""
    header = b""
    """The first bytes of every part file."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return one record, including its terminator."""

    def prepare(self, value: Any) -> Any:
        """Return a copy or encoding of the record that later changes to the record do not affect."""
        return self.encode(value)

    def pack(self, prepared: list[Any]) -> bytes:
        """Return a batch of prepared records as bytes."""
        return b"".join(prepared)

    def for_type(self, value_type: TypeSpec) -> Encoder:
        """Return the encoder for records of this declared type."""
        return self

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Write each record as a line, formatted like ``print``. Unencodable characters become question marks."""
        return _Text(charset_name)

    @staticmethod
    def json_lines() -> Encoder:
        """Write each record as a line of JSON: dicts, dataclasses, named Rows, lists and plain values."""
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
        """Write each record as a line of CSV.

        Records can be Rows, dicts, tuples, lists, or objects with the columns as attributes.

        Args:
            columns: Column names, a dataclass or a row type. By default, the stream's declared type.
            header: Whether to write the column names at the top of every file.
            delimiter: The character between fields.
            quote: The quote character.
            null_text: The text for None.
        """
        from penstock.common.csv_text import CsvEncoder, CsvText

        return CsvEncoder(columns, CsvText(delimiter, quote, null_text=null_text), header)


# Charsets with a byte order mark, which Python would write on every call. As in Java, the byte order is big-endian.
_MARKED = {"utf-16": "utf-16-be", "utf-32": "utf-32-be", "utf-8-sig": "utf-8"}


class _Text(Encoder):
    def __init__(self, charset: str, value_type: TypeSpec = None) -> None:
        self._given = charset
        self._value_type = value_type
        if value_type is not None:
            # Saves a call per record, 0.03 µs.
            self.prepare = shower(value_type)  # type: ignore[assignment]
        charset = python_charset(charset)
        self.format = f"text {charset}"
        self._charset = _MARKED.get(charset, charset)
        if charset in _MARKED:
            self.header = "\ufeff".encode(self._charset)

    # The type itself is the fastest conversion to a string: 0.03 µs for a value that already is one.
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
        # Saves a call per record, 0.03 µs.
        self.prepare = msgspec.json.Encoder(enc_hook=_plain).encode  # type: ignore[assignment,method-assign]

    def __reduce__(self) -> tuple[Any, ...]:
        return _JsonLines, ()

    def encode(self, value: Any) -> bytes:
        return self.pack([self.prepare(value)])

    def pack(self, prepared: list[Any]) -> bytes:
        return b"\n".join(prepared) + b"\n"


def _plain(value: Any) -> Any:
    """Convert values that msgspec does not support to ones it does."""
    if isinstance(value, Row):
        return list(value) if value._fields is None else value.as_dict()
    if isinstance(value, Instant):
        return value.to_epoch_milli()
    if hasattr(value, "item"):
        return value.item()
    raise PenstockError(
        f"Cannot convert {value!r}, of type {type(value).__qualname__}, to JSON. Map it to a supported type first."
    )


def python_charset(name: str) -> str:
    """Return Python's name for a charset, which can be given by its Java name."""
    try:
        return codecs.lookup(name).name
    except (LookupError, TypeError) as error:
        raise PenstockError(f"Unknown charset {name!r}. Use, for example, UTF-8, ISO-8859-1 or UTF-16LE.") from error


class OutputFile(Protocol):
    """The file that a bulk writer writes to."""

    def write(self, data: bytes) -> int:
        """Write bytes and return how many were written."""


class BulkWriter(ABC):
    """Writes one file of a bulk format: ``write`` any number of times, then ``finish``."""

    @abstractmethod
    def write(self, prepared: list[Any]) -> None:
        """Write a batch of prepared records."""

    @abstractmethod
    def finish(self) -> None:
        """Write the end of the format, such as a footer. Does not close the file."""


class BulkWriterFactory(ABC):
    """Creates files in a format that cannot be appended to: each file is started and finished in one epoch.

    The output must be deterministic: the same records must produce the same bytes.
    """

    format = ""
    batch = 10_000
    """How many records the writer collects before it calls ``BulkWriter.write``."""

    @abstractmethod
    def create(self, file: OutputFile) -> BulkWriter:
        """Return a writer for this file."""

    def prepare(self, value: Any) -> Any:
        """Return a copy of the record that later changes to it do not affect. Called immediately for each record."""
        return value

    def for_type(self, value_type: TypeSpec) -> BulkWriterFactory:
        """Return the factory for records of this declared type."""
        return self

    @staticmethod
    def parquet(schema: Any = None, *, compression: str = "snappy", row_group_size: int = 100_000) -> BulkWriterFactory:
        """Write Parquet files.

        Args:
            schema: A dataclass, TypedDict, row type or pyarrow Schema. By default, the stream's declared type.
            compression: A codec that pyarrow supports.
            row_group_size: Maximum number of records per row group.
        """
        from penstock.common.parquet import ParquetWriterFactory

        return ParquetWriterFactory(schema, compression, row_group_size)

    @staticmethod
    def of_encoder(encoder: Encoder) -> BulkWriterFactory:
        """Write a row-oriented format as a bulk format."""
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
    """Serializes values to message bytes. Subclass it to add a format; instances are pickled into the job."""

    @abstractmethod
    def serialize(self, value: Any) -> bytes | None:
        """Return the bytes of a value, always the same for equal values. None omits the message's value or key."""


class DeserializationSchema(ABC):
    """Deserializes message bytes to values. Subclass it to add a format; instances are pickled into the job."""

    @abstractmethod
    def deserialize(self, data: bytes) -> Any:
        """Return the value of these bytes, always the same for equal bytes. Errors are reported with the offset."""


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Encodes and decodes strings. Characters that the charset lacks are replaced, as in Java."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = python_charset(charset)

    def serialize(self, value: str) -> bytes:
        """Return a string as bytes."""
        return value.encode(self._charset, "replace")

    def deserialize(self, data: bytes) -> str:
        """Return bytes as a string."""
        return data.decode(self._charset, "replace")


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Passes bytes through unchanged."""

    def serialize(self, value: bytes) -> bytes:
        """Return the bytes unchanged."""
        return value

    def deserialize(self, data: bytes) -> bytes:
        """Return the bytes unchanged."""
        return data


class RowFieldExtractorSchema(SerializationSchema):
    """Writes one field of a Row, which must be bytes, for example as the key of a Kafka message.

    Args:
        field_index: The position of the field.

    Raises:
        ValueError: If the position is negative.
    """

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise ValueError(f"The index of a field must not be negative, but is {field_index}.")
        self._index = field_index

    def serialize(self, value: Any) -> bytes | None:
        """Return the field's bytes, or None for None.

        Raises:
            PenstockError: If the record has no such field, or the field is not bytes.
        """
        if not isinstance(value, (Row, tuple, list)) or self._index >= len(value):
            raise PenstockError(
                f"RowFieldExtractorSchema({self._index}) cannot read field {self._index} of {value!r}.",
                fix="Map the record to a Row with this field.",
            )
        field = value[self._index]
        if field is not None and not isinstance(field, (bytes, bytearray)):
            raise PenstockError(
                f"RowFieldExtractorSchema({self._index}): field {self._index} is {field!r}, not bytes.",
                fix="Convert it with map first, for example with str(field).encode().",
            )
        return None if field is None else bytes(field)


class JsonSchema(SerializationSchema, DeserializationSchema):
    """Reads JSON as dicts, lists and plain values, or as ``value_type``, such as a dataclass; and writes JSON."""

    def __init__(self, value_type: Any = None) -> None:
        self._type = value_type
        self._encode = msgspec.json.Encoder(enc_hook=_plain).encode
        try:
            self._decode = msgspec.json.Decoder(Any if value_type is None else value_type).decode
        except TypeError as error:
            raise PenstockError(
                f"JsonSchema requires a dataclass or another type hint, not {value_type!r}: {error}"
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
