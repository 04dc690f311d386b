"""Shapes: how each stored type maps to an Arrow column, without the job's own classes.

`read` converts the output of a msgspec decoder for `wire` to what Arrow accepts; `write` converts an Arrow value to
what msgspec encodes. None means no conversion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Optional, TypedDict
from uuid import UUID

import msgspec
import pyarrow as pa

from penstock.common.row import Row
from penstock.errors import PenstockError
from penstock.state.serializers import codec
from penstock.tables import plain_text

Convert = Callable[[Any], Any]


class NotWritable(PenstockError):
    """A table's value cannot be converted back to a state's value.

    Operator action: convert the column to the type that the message names.
    """


@dataclass(frozen=True)
class Shape:
    """How values of one type are shown in a table and stored."""

    text: str
    """The type as written in snapshots."""
    arrow: pa.DataType
    wire: Any
    """The type that msgspec decodes to."""
    read: Convert | None = None
    write: Convert | None = None
    nullable: bool = False
    pickled: bool = False
    """Whether the bytes are a pickle that has not been loaded."""
    read_whole: Convert | None = None
    """Converts stored bytes to Arrow, for types that are not msgpack at the top level."""
    write_whole: Convert | None = None

    def to_arrow(self, wire: Any) -> Any:
        """Return the cell for a stored value."""
        return wire if self.read is None else self.read(wire)

    def to_wire(self, value: Any) -> Any:
        """Return the stored value for a cell."""
        return value if self.write is None else self.write(value)


def _utc(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def _read_big(wire: int | bytes) -> str:
    number = wire if isinstance(wire, int) else int.from_bytes(wire, "big", signed=True)
    # Python refuses to convert very long numbers to decimal, which takes quadratic time.
    return str(number) if number.bit_length() < 8192 else hex(number)


def _write_big(text: str) -> int | bytes:
    number = int(text, 0)
    if -(1 << 63) <= number < 1 << 63:
        return number
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _unlike(text: str) -> Convert:
    def refuse(value: Any) -> Any:
        raise NotWritable(
            f"A value of type {text} cannot be created from a column, because the table shows it as text.",
            fix="Bootstrap the state with a function and a descriptor of its type instead.",
        )

    return refuse


def as_text(text: str) -> Shape:
    """Return the shape of a type without an Arrow equivalent: JSON of the stored data."""
    return Shape(text, pa.string(), Any, _json, _unlike(text))


def _json(wire: Any) -> str:
    try:
        return msgspec.json.encode(wire).decode()
    except (TypeError, ValueError, RecursionError, NotImplementedError):
        return repr(wire)


_INSTANT = pa.struct([("seconds", pa.int64()), ("nanos", pa.int64())])

LEAVES: dict[str, Shape] = {
    shape.text: shape
    for shape in (
        Shape("string", pa.string(), str),
        Shape("char", pa.string(), str),
        Shape("boolean", pa.bool_(), bool),
        Shape("bytes", pa.binary(), bytes),
        Shape("none", pa.null(), None),
        Shape("byte", pa.int8(), int),
        Shape("short", pa.int16(), int),
        Shape("int", pa.int32(), int),
        Shape("long", pa.int64(), int),
        Shape("double", pa.float64(), float),
        Shape("float", pa.float32(), float),
        Shape("date", pa.date32(), date),
        Shape("duration", pa.duration("us"), timedelta),
        Shape("timestamp", pa.timestamp("us"), datetime, _utc),
        Shape("time", pa.string(), time, time.isoformat, time.fromisoformat),
        Shape("decimal", pa.string(), Decimal, str, Decimal),
        Shape("uuid", pa.string(), UUID, str, UUID),
        Shape("bigint", pa.string(), int | bytes, _read_big, _write_big),
        Shape(
            "instant",
            _INSTANT,
            tuple[int, int],
            lambda wire: {"seconds": wire[0], "nanos": wire[1]},
            lambda value: (value["seconds"], value["nanos"]),
        ),
        Shape("pickle", pa.binary(), bytes, pickled=True),
        Shape(
            "any",
            pa.string(),
            bytes,
            plain_text.text_of_part,
            plain_text.part_of_text,
            read_whole=plain_text.text_of_stored,
            write_whole=plain_text.stored_of_text,
        ),
    )
}


def nullable(shape: Shape) -> Shape:
    """Return the same shape, with None allowed."""
    if shape.nullable or shape.text == "none":
        return shape
    read, write = shape.read, shape.write
    return Shape(
        f"{shape.text}?",
        shape.arrow,
        Optional[shape.wire],  # noqa: UP045
        None if read is None else lambda wire: None if wire is None else read(wire),
        None if write is None else lambda value: None if value is None else write(value),
        nullable=True,
    )


def enumeration(text: str, members: dict[str, Any]) -> Shape:
    """Return the shape of an enum, shown by member names."""
    names = {value: name for name, value in members.items()}
    kinds = {type(value) for value in members.values()}
    wire = str if kinds == {str} else int if kinds == {int} else Any

    def read(value: Any) -> str:
        if value not in names:
            raise ValueError(f"{value!r} is not a member of {text}")
        return names[value]

    def write(name: Any) -> Any:
        if name not in members:
            raise NotWritable(f"{name!r} is not a member of {text}.")
        return members[name]

    return Shape(text, pa.string(), wire, read, write)


def literal(text: str, values: Sequence[Any]) -> Shape:
    """Return the shape of a literal type with these values."""
    kinds = {type(value) for value in values}
    if kinds == {str}:
        return Shape(text, pa.string(), str)
    return Shape(text, pa.int64(), int) if kinds == {int} else as_text(text)


def sequence(text: str, element: Shape, *, members: bool = False) -> Shape:
    """Return the shape of a list, tuple or set. With `members`, elements are written in the order of their bytes."""
    read, write = element.read, element.write
    item = _field("item", element)

    def put(values: Any) -> list[Any]:
        wires = [element.to_wire(value) for value in values]
        return sorted(wires, key=codec.encode) if members else wires

    return Shape(
        text,
        pa.list_(item),
        list[element.wire],  # type: ignore[name-defined]
        None if read is None else lambda wire: [read(value) for value in wire],
        None if write is None and not members else put,
    )


def mapping(text: str, key: Shape, value: Shape) -> Shape:
    """Return the shape of dicts."""
    if (pa.types.is_struct(key.arrow) and key.wire is Any) or _is_dict(key.wire):
        return as_text(text)
    return Shape(
        text,
        pa.map_(key.arrow, value.arrow),
        dict[key.wire, value.wire],  # type: ignore[name-defined]
        lambda wire: [(key.to_arrow(k), value.to_arrow(v)) for k, v in wire.items()],
        lambda pairs: {key.to_wire(k): value.to_wire(v) for k, v in _pairs(pairs)},
    )


def _pairs(value: Any) -> Any:
    return value.items() if isinstance(value, dict) else value


def _is_dict(wire: Any) -> bool:
    return isinstance(wire, type) and issubclass(wire, dict)


def fields_of(shapes: dict[str, Shape]) -> pa.DataType:
    """Return an Arrow struct with these fields."""
    return pa.struct([_field(name, shape) for name, shape in shapes.items()])


def _field(name: str, shape: Shape) -> pa.Field:
    return pa.field(name, shape.arrow, nullable=True)


def record(text: str, fields: dict[str, Shape]) -> Shape:
    """Return the shape of a dataclass or typed dict, which is stored by field name."""
    sparse = text.startswith("typeddict")
    wire = TypedDict("Record", {name: shape.wire for name, shape in fields.items()}, total=False)  # type: ignore[misc]
    converting = {name: shape.read for name, shape in fields.items() if shape.read is not None}

    def read(stored: dict[str, Any]) -> dict[str, Any]:
        return {name: shape.to_arrow(stored[name]) for name, shape in fields.items() if name in stored}

    def write(value: dict[str, Any]) -> dict[str, Any]:
        return {
            name: shape.to_wire(value.get(name))
            for name, shape in fields.items()
            if not sparse or shape.nullable or value.get(name) is not None
        }

    return Shape(text, fields_of(fields), wire, read if converting else None, write)


def positional(text: str, fields: dict[str, Shape], *, row: bool = False) -> Shape:
    """Return the shape of a tuple, named tuple or Row, which is stored by position. A Row starts with its kind."""
    items = list(fields.items())
    wires = tuple(shape.wire for _, shape in items)
    first = 1 if row else 0
    wire: Any = tuple.__class_getitem__((int, *wires) if row else wires)

    def read(stored: Any) -> dict[str, Any]:
        if row and isinstance(stored, Row):
            stored = (0, *stored)
        return {name: shape.to_arrow(each) for (name, shape), each in zip(items, stored[first:], strict=True)}

    def write(value: dict[str, Any]) -> tuple[Any, ...]:
        plain = tuple(shape.to_wire(value.get(name)) for name, shape in items)
        return (0, *plain) if row else plain

    return Shape(text, fields_of(fields), wire, read, write)


def structure(text: str, fields: dict[str, Shape]) -> Shape:
    """Return the shape of a msgspec.Struct, whose class can rename fields, store them by position, or add a tag."""

    def read(stored: Any) -> dict[str, Any]:
        if isinstance(stored, (list, tuple)):
            stored = dict(zip(fields, stored[-len(fields) :] if len(stored) > len(fields) else stored))
        else:
            # Renamed fields take the place of the missing ones, in order; msgspec stores a tag as "type".
            missing = [name for name in fields if name not in stored]
            others = [name for name in stored if name not in fields and name != "type"]
            if missing and len(missing) == len(others):
                stored = {**stored, **{name: stored[other] for name, other in zip(missing, others, strict=True)}}
        return {
            name: shape.to_arrow(msgspec.convert(stored[name], shape.wire, builtin_types=(bytes, datetime)))
            for name, shape in fields.items()
            if name in stored
        }

    return Shape(text, fields_of(fields), Any, read, _unlike(text))


def same_value(one: Any, other: Any) -> bool:
    """Return whether two cells are equal; NaN equals itself."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_value(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same_value, one, other))
    return type(one) is type(other) and bool(one == other)
