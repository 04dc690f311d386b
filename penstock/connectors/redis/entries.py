"""Entries of Redis Streams, and their conversion to records."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from penstock.connectors.files.formats import json_decoder

_ID = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?")


class RedisEntry(NamedTuple):
    """One entry of a stream, undecoded."""

    stream: str
    id: str
    fields: dict[bytes, bytes]

    @property
    def time(self) -> int:
        """Return when the entry was added, in ms of the server's clock, unless the producer chose the id."""
        return ordered(self.id)[0]

    def text(self) -> dict[str, str]:
        """Return the fields as text. Raises UnicodeDecodeError if they are not valid UTF-8."""
        return {name.decode(): value.decode() for name, value in self.fields.items()}

    def shown(self) -> bytes:
        """Return the fields as JSON, for dead letters and errors; invalid UTF-8 appears as ``\\x..`` escapes."""
        return msgspec.json.encode({_shown(name): _shown(value) for name, value in self.fields.items()})


class _JsonField:
    """Decodes one field as JSON."""

    def __init__(self, field: str, value_type: Any = None) -> None:
        self._field = field
        self._type = value_type
        self._name = field.encode()
        self._decode = json_decoder(value_type)

    def __reduce__(self) -> tuple[Any, ...]:
        return _JsonField, (self._field, self._type)

    def __call__(self, entry: RedisEntry) -> Any:
        if self._name not in entry.fields:
            raise ValueError(f"it has no field '{self._field}'")
        return self._decode(entry.fields[self._name])


def json_field(field: str, value_type: Any = None) -> Callable[[RedisEntry], Any]:
    """Return a decoder for ``RedisStreamSource`` that parses one field as JSON.

    Args:
        field: Name of the field.
        value_type: Type of the records, such as a dataclass. Defaults to the plain JSON value.
    """
    return _JsonField(field, value_type)


def ordered(entry_id: str) -> tuple[int, int]:
    """Return the sort key of an id."""
    time, _, number = entry_id.partition("-")
    return int(time), int(number or 0)


def checked_id(text: str) -> str | None:
    """Return the id in its full form, or None if it is invalid."""
    found = _ID.fullmatch(text)
    return None if found is None else f"{int(found[1])}-{int(found[2] or 0)}"


def _shown(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
