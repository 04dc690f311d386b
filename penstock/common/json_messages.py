"""JSON messages as Rows, under PyFlink's names."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from penstock.common.java_values import TEXTS, text_parser, value_text, whole
from penstock.common.row import Row, values_of
from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.simple_types import BasicType, BasicTypeInfo, DateTypeInfo, TimestampTypeInfo, TimeTypeInfo
from penstock.common.typeinfo import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    Types,
    TypeSpec,
)
from penstock.errors import PenstockError

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]

Convert = Callable[[Any], Any]

_LISTS = (PrimitiveArrayTypeInfo, BasicArrayTypeInfo, ObjectArrayTypeInfo, ListTypeInfo)
_WHOLE = {BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG}
_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())


class JsonRowDeserializationSchema(DeserializationSchema):
    """Reads JSON objects as Rows with the fields of a row type. Fields that the type lacks are ignored.

    Example:
        >>> schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["id"], [Types.INT()])).build()
    """

    def __init__(self, type_info: RowTypeInfo, fail_on_missing_field: bool, ignore_parse_errors: bool) -> None:
        self._type, self._strict, self._lenient = type_info, fail_on_missing_field, ignore_parse_errors
        self._convert = _row_reader(type_info, _Mode(fail_on_missing_field, ignore_parse_errors))
        self._decode = msgspec.json.Decoder(float_hook=Decimal if _has_decimals(type_info) else None).decode

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type, self._strict, self._lenient)

    @property
    def produced_type(self) -> RowTypeInfo:
        """The type of the Rows."""
        return self._type

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """Return a builder."""
        return JsonRowDeserializationSchema.Builder()

    def deserialize(self, data: bytes) -> Row | None:
        """Return the Row of a JSON object, or None if it is invalid and errors are ignored."""
        try:
            row: Row = self._convert(self._decode(data))
        except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
            if self._lenient:
                return None
            raise PenstockError(
                f"Cannot read {data[:200]!r} as {self._type}: {error}.",
                fix="Correct the message or the type, or call ignore_parse_errors() on the builder.",
            ) from None
        return row

    class Builder:
        """Builds a ``JsonRowDeserializationSchema``."""

        def __init__(self) -> None:
            self._type: Any = None
            self._strict = self._lenient = False

        def type_info(self, type_info: TypeSpec) -> JsonRowDeserializationSchema.Builder:
            """Set the type of the Rows. Its field names are those of the JSON objects."""
            self._type = type_info
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Set the type of the Rows from a JSON schema.

            Raises:
                TypeError: If it is None.
                PenstockError: If it is not a schema of an object.
            """
            if json_schema is None:
                raise TypeError("The json_schema must not be None.")
            self._type = type_of_schema(json_schema)
            return self

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Refuse an object that lacks a field. By default the field becomes None."""
            self._strict = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Return None for an invalid field or message. By default it fails the job."""
            self._lenient = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """Return the schema.

            Raises:
                PenstockError: If the type is missing or not a row type, or both modes are set.
            """
            if not isinstance(self._type, RowTypeInfo):
                raise PenstockError(
                    f"JsonRowDeserializationSchema needs a row type, not {self._type!r}.",
                    fix="Call type_info(Types.ROW_NAMED(names, types)) on the builder.",
                )
            if self._strict and self._lenient:
                raise PenstockError(
                    "JsonRowDeserializationSchema cannot both fail on missing fields and ignore errors.",
                    fix="Call either fail_on_missing_field() or ignore_parse_errors().",
                )
            return JsonRowDeserializationSchema(self._type, self._strict, self._lenient)


class JsonRowSerializationSchema(SerializationSchema):
    """Writes Rows as JSON objects with the fields of a row type."""

    def __init__(self, type_info: RowTypeInfo) -> None:
        self._type = type_info
        self._write = _writer(type_info)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type,)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Return a builder."""
        return JsonRowSerializationSchema.Builder()

    def serialize(self, value: Any) -> bytes:
        """Return a Row as JSON."""
        try:
            return self._write(value).encode()
        except (ValueError, TypeError, AttributeError) as error:
            raise PenstockError(
                f"Cannot write {value!r} as {self._type}: {error}.",
                fix="Map it to a Row of this type first.",
            ) from None

    class Builder:
        """Builds a ``JsonRowSerializationSchema``."""

        def __init__(self) -> None:
            self._type: Any = None

        def with_type_info(self, type_info: TypeSpec) -> JsonRowSerializationSchema.Builder:
            """Set the type of the Rows. Its field names are those of the JSON objects."""
            self._type = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            """Return the schema.

            Raises:
                TypeError: If the type is missing.
                PenstockError: If it is not a row type.
            """
            if self._type is None:
                raise TypeError("A JsonRowSerializationSchema needs a type: call with_type_info(...).")
            if not isinstance(self._type, RowTypeInfo):
                raise PenstockError(f"JsonRowSerializationSchema needs a row type, not {self._type!r}.")
            return JsonRowSerializationSchema(self._type)


# -- reading -----------------------------------------------------------------------------------------------------------


class _Mode(NamedTuple):
    strict: bool
    """Whether a missing field is an error."""
    lenient: bool
    """Whether an invalid field becomes None."""


def _reader(spec: TypeSpec, mode: _Mode) -> Convert:
    """Return the function that converts decoded JSON to a value of a type; null becomes None."""
    convert = _reader_of_value(spec, mode)
    return lambda found: None if found is None else convert(found)


def _reader_of_value(spec: TypeSpec, mode: _Mode) -> Convert:
    if isinstance(spec, RowTypeInfo):
        return _row_reader(spec, mode)
    if spec == _BYTES:
        return lambda found: base64.b64decode(_text_in(found), validate=True)
    if isinstance(spec, _LISTS):
        element = _reader(spec.get_element_type(), mode)
        return lambda found: [element(each) for each in _instance(found, list, "an array")]
    if isinstance(spec, MapTypeInfo):
        key, item = _reader(spec.get_key_type(), mode), _reader(spec.get_value_type(), mode)
        return lambda found: {key(name): item(each) for name, each in _instance(found, dict, "an object").items()}
    parse = text_parser(spec)
    if parse is None:
        raise PenstockError(f"JSON cannot contain {spec!r}.", fix="Use a type of rows, lists, maps and plain values.")
    if isinstance(spec, BasicTypeInfo):
        return _basic_reader(spec.get_basic_type(), parse)
    return lambda found: parse(_text_in(found))


def _basic_reader(basic: BasicType, parse: Callable[[str], Any]) -> Convert:
    def read(found: Any) -> Any:
        if basic in _WHOLE and type(found) in (int, float, Decimal):
            # As in Flink, a fraction is cut off.
            return whole(int(found), basic)
        if basic in (BasicType.DOUBLE, BasicType.FLOAT) and type(found) in (int, float, Decimal):
            return float(found)
        if basic is BasicType.BOOLEAN and type(found) is bool:
            return found
        return parse(_text_in(found))

    return read


def _row_reader(spec: RowTypeInfo, mode: _Mode) -> Convert:
    names = tuple(spec.get_field_names())
    fields = [(name, _reader(kind, mode)) for name, kind in zip(names, spec.get_field_types())]

    def read(found: Any) -> Row:
        _instance(found, dict, "an object")
        values: list[Any] = []
        for name, convert in fields:
            if name not in found:
                if mode.strict:
                    raise ValueError(f"field '{name}' is missing")
                values.append(None)
                continue
            try:
                values.append(convert(found[name]))
            except (ValueError, TypeError, ArithmeticError) as error:
                if not mode.lenient:
                    raise ValueError(f"field '{name}': {error}") from None
                values.append(None)
        return Row.of(names, values)

    return read


def _instance(found: Any, kind: type, word: str) -> Any:
    if not isinstance(found, kind):
        raise ValueError(f"{found!r} is not {word}")
    return found


def _text_in(found: Any) -> str:
    """Return the text of a value; that of an array or object is its JSON."""
    if isinstance(found, (dict, list)):
        return msgspec.json.encode(found).decode()
    return found if type(found) is str else value_text(float(found) if type(found) is Decimal else found)


def _has_decimals(spec: TypeSpec) -> bool:
    if isinstance(spec, BasicTypeInfo):
        return spec.get_basic_type() is BasicType.BIG_DEC
    return any(_has_decimals(part) for part in _parts(spec))


def _parts(spec: TypeSpec) -> list[TypeSpec]:
    if isinstance(spec, RowTypeInfo):
        return spec.get_field_types()
    if isinstance(spec, _LISTS):
        return [spec.get_element_type()]
    return [spec.get_key_type(), spec.get_value_type()] if isinstance(spec, MapTypeInfo) else []


# -- writing -----------------------------------------------------------------------------------------------------------


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _writer(spec: TypeSpec) -> Callable[[Any], str]:
    """Return the function that writes a value of a type as JSON."""
    write = _writer_of_value(spec)
    return lambda value: "null" if value is None else write(value)


def _writer_of_value(spec: TypeSpec) -> Callable[[Any], str]:
    if isinstance(spec, RowTypeInfo):
        return _row_writer(spec)
    if spec == _BYTES:
        return lambda value: _quoted(base64.b64encode(value).decode())
    if isinstance(spec, _LISTS):
        element = _writer(spec.get_element_type())
        return lambda value: f"[{','.join(map(element, value))}]"
    if isinstance(spec, MapTypeInfo):
        key, item = spec.get_key_type(), _writer(spec.get_value_type())
        if key != Types.STRING():
            raise PenstockError(f"The keys of a JSON object are strings, not {key!r}.")
        return lambda value: f"{{{','.join(f'{_quoted(name)}:{item(each)}' for name, each in value.items())}}}"
    if isinstance(spec, BasicTypeInfo):
        basic = spec.get_basic_type()
        if basic in (BasicType.STRING, BasicType.CHAR):
            return lambda value: _quoted(str(value))
        if basic in (BasicType.DOUBLE, BasicType.FLOAT):
            text = TEXTS[basic]
            return lambda value: text(value) if value - value == 0 else _quoted(text(value))
        if basic in _WHOLE or basic is BasicType.BIG_INT:
            return lambda value: str(int(value))
        if basic is BasicType.BIG_DEC:
            return lambda value: format(value, "f")
        if basic is BasicType.BOOLEAN:
            return value_text
    if isinstance(spec, DateTypeInfo):
        return lambda value: _quoted(value.isoformat())
    if isinstance(spec, TimeTypeInfo):
        return lambda value: _quoted(f"{value.replace(tzinfo=None).isoformat()}Z")
    if isinstance(spec, TimestampTypeInfo):
        return lambda value: _quoted(f"{_shortest(value)}Z")
    raise PenstockError(f"JSON cannot contain {spec!r}.", fix="Use a type of rows, lists, maps and plain values.")


def _shortest(value: datetime.datetime) -> str:
    whole_part = value.replace(tzinfo=None, microsecond=0).isoformat()
    return f"{whole_part}.{f'{value.microsecond:06d}'.rstrip('0')}" if value.microsecond else whole_part


def _row_writer(spec: RowTypeInfo) -> Callable[[Any], str]:
    names = [_quoted(name) for name in spec.get_field_names()]
    writers = [_writer(kind) for kind in spec.get_field_types()]

    def write(value: Any) -> str:
        values = values_of(value) if isinstance(value, Row) else value
        if len(values) != len(names):
            raise ValueError(f"it has {len(values)} fields instead of {len(names)}")
        pairs = zip(names, writers, values)
        return f"{{{','.join(f'{name}:{each(field)}' for name, each, field in pairs)}}}"

    return write


# -- JSON schemas ------------------------------------------------------------------------------------------------------

_FORMATS = {"date-time": Types.SQL_TIMESTAMP(), "date": Types.SQL_DATE(), "time": Types.SQL_TIME()}


def type_of_schema(text: str) -> RowTypeInfo:
    """Return the row type of a JSON schema: integers are BIG_DEC like all numbers, as in Flink.

    Raises:
        PenstockError: It is not a schema of an object.
    """
    try:
        root = json.loads(text)
        found = _type_of(root, root)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PenstockError(f"Invalid JSON schema: {error}.") from None
    if not isinstance(found, RowTypeInfo):
        raise PenstockError("A JSON schema must describe an object.", fix='Set its "type" to "object".')
    return found


def _type_of(node: Any, root: Any) -> TypeSpec:
    if "$ref" in node:
        path = node["$ref"]
        if not path.startswith("#"):
            raise ValueError(f"only references within the schema are supported, not '{path}'")
        target = root
        for part in filter(None, path.removeprefix("#").split("/")):
            target = target[part]
        return _type_of(target, root)
    given = node.get("type", "object" if "properties" in node else None)
    kinds = [kind for kind in (given if isinstance(given, list) else [given]) if kind != "null"]
    if len(kinds) != 1:
        raise ValueError(f"a property has the type {given!r}; only one type and null are supported")
    match kinds[0]:
        case "object":
            properties = node.get("properties", {})
            return Types.ROW_NAMED(list(properties), [_type_of(each, root) for each in properties.values()])
        case "array":
            items = node["items"]
            if isinstance(items, list):
                return Types.ROW([_type_of(each, root) for each in items])
            return Types.OBJECT_ARRAY(_type_of(items, root))
        case "boolean":
            return Types.BOOLEAN()
        case "integer" | "number":
            return Types.BIG_DEC()
        case "string":
            if node.get("contentEncoding") == "base64":
                return _BYTES
            return _FORMATS.get(node.get("format", ""), Types.STRING())
    raise ValueError(f"unknown type {given!r}")
