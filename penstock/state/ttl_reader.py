"""Read entries from before TTL was turned on as if they carried a timestamp."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from penstock.state.engines.base import Reader
from penstock.state.ttl import STAMP, Form, decode_elements, encode_elements

_PLACE = slice(2, 6)
"""Position of the state id in an entry's key."""


def with_time(data: bytes, form: Form) -> bytes:
    """Prefix a stored value, or each value of a list chunk, with the timestamp that applies to unstamped values."""
    stamp = STAMP.pack(form.event_time, form.time_of_unstamped())
    return encode_elements([stamp + each for each in decode_elements(data)]) if form.is_list else stamp + data


class StampingReader(Reader):
    """Reads timestamped entries, merged with unstamped ones to which it adds the time of their form."""

    def __init__(self, reader: Reader, unstamped: bytes, form: Form) -> None:
        self.position = reader.position
        self._reader = reader
        self._unstamped = unstamped
        self._form = form

    def get(self, key: bytes) -> bytes | None:
        data = self._reader.get(key)
        if data is None:
            before = self._reader.get(self._renumbered(key, self._unstamped))
            data = None if before is None else with_time(before, self._form)
        return data

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        before = self._reader.scan(self._renumbered(prefix, self._unstamped))
        return merge(self._reader.scan(prefix), self._stamped(before, prefix))

    def between(self, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        # The range is within one state, so it always has an end.
        assert end is not None
        before = self._reader.between(self._renumbered(start, self._unstamped), self._renumbered(end, self._unstamped))
        return merge(self._reader.between(start, end), self._stamped(before, start))

    def _stamped(self, entries: Iterator[tuple[bytes, bytes]], like: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key, data in entries:
            yield self._renumbered(key, like[_PLACE]), with_time(data, self._form)

    def _renumbered(self, key: bytes, number: bytes) -> bytes:
        return key[: _PLACE.start] + number + key[_PLACE.stop :]
