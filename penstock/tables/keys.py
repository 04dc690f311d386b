"""Keys as a column. Snapshots do not store the type of a job's keys, so it is inferred from a sample of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from penstock.common.row import Row, names_of
from penstock.errors import PenstockError
from penstock.state.keys import KeyTypeError, decode_key, encode_key

_TEXT = "text"


class MixedKeys(PenstockError):
    """A state has keys of several types, which cannot share a column.

    Operator action: read the state with `keys_as_text=True`. To write, leave the keys unchanged, or bootstrap the
    state with a function.
    """


@dataclass(frozen=True)
class KeyShape:
    """How keys of one type are shown in a table."""

    kind: str
    arrow: pa.DataType
    names: tuple[str, ...] = ()
    parts: tuple[KeyShape, ...] = ()
    nullable: bool = False

    @property
    def plain(self) -> bool:
        """Whether Arrow accepts decoded keys without conversion."""
        return self.kind in _PLAIN

    def to_arrow(self, key: Any) -> Any:
        """Convert a decoded key for Arrow. Raises ValueError for a key of another type."""
        if self.kind == _TEXT:
            return repr(key)
        if key is None and (self.nullable or self.kind == "none"):
            return None
        if _kind(key) != self.kind or (self.parts and _names(key) != self.names):
            raise ValueError(f"{key!r} is not of type {self.kind}")
        if self.parts:
            return {name: part.to_arrow(each) for name, part, each in zip(self.names, self.parts, key, strict=True)}
        read = _KINDS[self.kind][1]
        return key if read is None else read(key)

    def to_key(self, value: Any) -> Any:
        """Return the key that a table shows as this value."""
        if self.kind == _TEXT:
            raise MixedKeys(
                "Keys of several types are shown as text, which cannot be converted back.",
                fix="Leave the keys unchanged, or bootstrap the state with a function.",
            )
        if value is None:
            return None
        if self.parts:
            if not isinstance(value, dict):
                value = dict(zip(self.names, value, strict=True))
            values = [part.to_key(value[name]) for name, part in zip(self.names, self.parts)]
            if self.kind == "tuple":
                return tuple(values)
            return Row.of(self.names if self.kind == "named row" else None, values)
        write = _KINDS[self.kind][2]
        return value if write is None or isinstance(value, _KINDS[self.kind][3]) else write(value)

    def find(self, text: str) -> Any:
        """Parse a key typed on a command line."""
        read = _TYPED.get(self.kind)
        return text if read is None else read(text)

    def text(self) -> str:
        """Return a form from which `shape_from_text` makes the same shape."""
        return msgspec.json.encode(self._plain()).decode()

    def _plain(self) -> list[Any]:
        return [self.kind, self.names, [part._plain() for part in self.parts], self.nullable]


def shape_from_text(text: str | bytes) -> KeyShape:
    """Return the shape whose `text` this is."""
    return _from_plain(msgspec.json.decode(text))


def _from_plain(plain: list[Any]) -> KeyShape:
    kind, names, parts, nullable = plain[0], tuple(plain[1]), tuple(map(_from_plain, plain[2])), plain[3]
    if parts:
        arrow = pa.struct([(name, part.arrow) for name, part in zip(names, parts, strict=True)])
    else:
        arrow = _KINDS[kind][0] if kind in _KINDS else pa.string()
    return KeyShape(kind, arrow, names, parts, nullable)


_Convert = Callable[[Any], Any]

_KINDS: dict[str, tuple[pa.DataType, _Convert | None, _Convert | None, type]] = {
    "none": (pa.null(), None, None, type(None)),
    "bool": (pa.bool_(), None, None, bool),
    "int": (pa.int64(), None, None, int),
    "float": (pa.float64(), None, None, float),
    "str": (pa.string(), None, None, str),
    "bytes": (pa.binary(), None, None, bytes),
    "Decimal": (pa.string(), str, Decimal, Decimal),
    "datetime": (pa.timestamp("us"), None, None, datetime),
    "datetime in UTC": (pa.timestamp("us", "UTC"), None, None, datetime),
    "date": (pa.date32(), None, None, date),
    "time": (pa.string(), time.isoformat, time.fromisoformat, time),
    "timedelta": (pa.duration("us"), None, None, timedelta),
    "UUID": (pa.string(), str, UUID, UUID),
}
_PLAIN = frozenset(kind for kind, (_, read, _, _) in _KINDS.items() if read is None)
_TYPED: dict[str, _Convert] = {
    "int": int,
    "float": float,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "bytes": bytes.fromhex,
    "Decimal": Decimal,
    "UUID": UUID,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "datetime": datetime.fromisoformat,
    "datetime in UTC": datetime.fromisoformat,
}

_TYPES: dict[type, str] = {
    type(None): "none",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    Decimal: "Decimal",
    date: "date",
    time: "time",
    timedelta: "timedelta",
    UUID: "UUID",
    tuple: "tuple",
}


def _kind(key: Any) -> str:
    if type(key) is datetime:
        return "datetime" if key.tzinfo is None else "datetime in UTC"
    if type(key) is Row:
        return "row" if names_of(key) is None else "named row"
    if type(key) is int and not -(1 << 63) <= key < 1 << 63:
        return "large int"
    return _TYPES.get(type(key), _TEXT)


def _names(key: Any) -> tuple[str, ...]:
    names = names_of(key) if type(key) is Row else None
    return tuple(f"f{i}" for i in range(len(key))) if names is None else tuple(names)


TEXT = KeyShape(_TEXT, pa.string())
_NOTHING = KeyShape("none", pa.null())


def key_shape(keys: Iterable[Any]) -> KeyShape:
    """Return the shape of a column that can hold these keys. Keys of several types are shown by their `repr`."""
    shape: KeyShape | None = None
    for key in keys:
        found = _shape(key)
        shape = found if shape is None else _both(shape, found)
    return _NOTHING if shape is None else shape


def _shape(key: Any) -> KeyShape:
    kind = _kind(key)
    if type(key) in (tuple, Row):
        names, parts = _names(key), tuple(map(_shape, key))
        if len(set(names)) != len(names) or not names:
            return TEXT
        return KeyShape(kind, pa.struct([(name, part.arrow) for name, part in zip(names, parts)]), names, parts)
    return KeyShape(kind, _KINDS[kind][0]) if kind in _KINDS else TEXT


def _both(one: KeyShape, other: KeyShape) -> KeyShape:
    if one == other:
        return one
    if one.kind == "none":
        return KeyShape(other.kind, other.arrow, other.names, other.parts, nullable=other.kind != _TEXT)
    if other.kind == "none":
        return KeyShape(one.kind, one.arrow, one.names, one.parts, nullable=one.kind != _TEXT)
    if one.kind != other.kind or one.names != other.names:
        return TEXT
    parts = tuple(map(_both, one.parts, other.parts))
    arrow = pa.struct([(name, part.arrow) for name, part in zip(one.names, parts)]) if parts else one.arrow
    return KeyShape(one.kind, arrow, one.names, parts, one.nullable or other.nullable)


def canonical(key: Any) -> bytes:
    """Return the stored bytes of a key. Raises PenstockError with the types to use instead."""
    try:
        return encode_key(key)
    except KeyTypeError as error:
        raise PenstockError(f"{error.statement()}.", fix=error.fix) from None


__all__ = ["TEXT", "KeyShape", "MixedKeys", "canonical", "decode_key", "key_shape", "shape_from_text"]
