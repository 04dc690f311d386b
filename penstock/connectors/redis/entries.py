"""Entries of Redis Streams, and how they become records."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.connectors.files.formats import json_decoder
from penstock.errors import PenstockError

_ID = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?")
_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 120
_brief.maxdict = 12


class RedisEntry(NamedTuple):
    """One entry of a stream, as Redis has it."""

    stream: str
    id: str
    fields: dict[bytes, bytes]

    @property
    def time(self) -> int:
        """When it was added, in ms by the clock of the server, unless the producer chose the id."""
        return ordered(self.id)[0]

    def text(self) -> dict[str, str]:
        """Its fields as text. Raises UnicodeDecodeError where they are none."""
        return {name.decode(): value.decode() for name, value in self.fields.items()}


class UndecodableEntry(PenstockError):
    """An entry that cannot become a record. It will not become one later."""

    lasting = True


class _JsonField:
    """The value of one field, which is JSON."""

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
    """Records are the JSON of this field: dicts and the like, or of `value_type`, such as a dataclass."""
    return _JsonField(field, value_type)


def as_record(entry: RedisEntry, decode: Callable[[RedisEntry], Any], server: str) -> Any:
    """What `decode` makes of the entry."""
    try:
        return decode(entry)
    except Exception as error:  # the user's function may raise anything
        raise UndecodableEntry(
            f"Entry {entry.id} of the Redis stream '{entry.stream}' at {server} cannot be decoded: "
            f"{type(error).__name__}: {error}. It is {_brief.repr(entry.fields)}.",
            fix=f"Change decode= so that it takes such an entry, or remove it: XDEL {entry.stream} {entry.id}, which "
            f"is possible while no epoch with it is under way.",
        ) from error


def ordered(entry_id: str) -> tuple[int, int]:
    """The id as what orders it."""
    time, _, number = entry_id.partition("-")
    return int(time), int(number or 0)


def checked_id(text: str) -> str | None:
    """An id in full, or None if it is none."""
    found = _ID.fullmatch(text)
    return None if found is None else f"{int(found[1])}-{int(found[2] or 0)}"
