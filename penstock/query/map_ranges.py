"""Reads part of a map in the order of its keys, without reading the rest.

Map keys are stored as canonical keys, in the order of their bytes. That is the order of the keys only among strings of
one length, and among numbers of one size, because the bytes start with a header. So each range is read once per header,
and the results are merged. Other types of keys have no such order; `map_page` returns None for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from itertools import chain, islice
from typing import Any, NamedTuple

from penstock.query.stored import Parts
from penstock.state.files import prefix_end
from penstock.state.keys import decode_key, encode_key

Read = Callable[[bytes, bytes | None, int], Iterator[tuple[bytes, bytes]]]
"""Yields the entries of a map whose stored keys are in a range of bytes, in that order. Reads a number at a time."""

_PORTION, _FEW = 4096, 8
_CANONICAL, _BY_TYPE = b"\0", b"\1"
"""The first byte of a stored map key."""

_INTEGERS = (
    # In the order of the numbers: first and last stored key, and the numbers of this header.
    (b"\xd3", b"\xd4", -(1 << 63), -(1 << 31) - 1),
    (b"\xd2", b"\xd3", -(1 << 31), -(1 << 15) - 1),
    (b"\xd1", b"\xd2", -(1 << 15), -(1 << 7) - 1),
    (b"\xd0", b"\xd1", -(1 << 7), -33),
    (b"\xe0", None, -32, -1),
    (b"\x00", b"\x80", 0, 127),
    (b"\xcc", b"\xcd", 128, (1 << 8) - 1),
    (b"\xcd", b"\xce", 1 << 8, (1 << 16) - 1),
    (b"\xce", b"\xcf", 1 << 16, (1 << 32) - 1),
    (b"\xcf", b"\xd0", 1 << 32, (1 << 64) - 1),
)
_HEADERS = {0xD9: (str, 2), 0xDA: (str, 3), 0xDB: (str, 5), 0xC4: (bytes, 2), 0xC5: (bytes, 3), 0xC6: (bytes, 5)}
"""Type and length of a header that contains the length of the key."""


class Bounds(NamedTuple):
    """Which keys to read."""

    start: Any = None
    after: Any = None
    """Like `start`, but without this key."""
    stop: Any = None
    prefix: Any = None


class _Header(NamedTuple):
    """Keys whose stored bytes compare as the keys do."""

    kind: type
    start: bytes
    end: bytes | None
    length: int = 0
    """Of the keys, if they are text or bytes."""
    least: int = 0
    most: int = 0
    """The numbers of this header."""


def map_page(read: Read, bounds: Bounds, limit: int | None) -> tuple[Parts, bool] | None:
    """Return entries of a map in the order of their keys, and whether there are more.

    Returns None if the map is empty, or if its keys or the bounds do not have one type with an order of bytes.
    """
    headers = [] if limit is not None and limit < 0 else _headers(read)
    if not headers:
        return None
    # Of several headers, each has a part of the page.
    portion = _PORTION if limit is None else min(_PORTION, max(limit // len(headers), _FEW) + 1)
    kind = headers[0].kind
    if any(header.kind is not kind for header in headers):
        return None
    if any(bound is not None and type(bound) is not kind for bound in bounds):
        return None
    found: Iterator[tuple[bytes, bytes]]
    if kind is int:
        if bounds.prefix is not None:
            return None
        ranges = [_integers(header, bounds) for header in headers]
        found = chain.from_iterable(read(*each, portion) for each in ranges if each is not None)
    else:
        spans = [(_texts(header, bounds), len(header.start)) for header in headers]
        streams = [_payloads(read(*span, portion), skipped) for span, skipped in spans if span is not None]
        found = (entry for _, entry in merge(*streams, key=lambda each: each[0]))
    page = list(found if limit is None else islice(found, limit + 1))
    if limit is None or len(page) <= limit:
        return page, False
    return page[:limit], True


def _payloads(entries: Iterator[tuple[bytes, bytes]], skipped: int) -> Iterator[tuple[bytes, tuple[bytes, bytes]]]:
    for entry in entries:
        yield entry[0][skipped:], entry


def _headers(read: Read) -> list[_Header]:
    """Return the headers of the stored keys, each found by one short read; empty if one has no order of bytes."""
    if next(read(_BY_TYPE, None, 1), None) is not None:
        return []
    found: list[_Header] = []
    place: bytes | None = _CANONICAL
    while place is not None and place < _BY_TYPE:
        first = next(read(place, _BY_TYPE, 1), None)
        if first is None:
            break
        header = _header(first[0])
        if header is None:
            return []
        found.append(header)
        place = header.end
    return sorted(found, key=lambda header: header.least)


def _header(stored: bytes) -> _Header | None:
    code = stored[1]
    if 0xA0 <= code <= 0xBF:
        return _Header(str, stored[:2], prefix_end(stored[:2]), code - 0xA0)
    if code in _HEADERS:
        kind, size = _HEADERS[code]
        start = stored[: 1 + size]
        return _Header(kind, start, prefix_end(start), int.from_bytes(start[2:], "big"))
    for first, end, least, most in _INTEGERS:
        if first[0] <= code < (0x100 if end is None else end[0]):
            bytes_end = _BY_TYPE if end is None else _CANONICAL + end
            return _Header(int, _CANONICAL + first, bytes_end, least=least, most=most)
    return None


def _integers(header: _Header, bounds: Bounds) -> tuple[bytes, bytes | None] | None:
    """Return the stored keys of a header that the bounds contain."""
    start, end = header.start, header.end
    for least in (bounds.start, None if bounds.after is None else bounds.after + 1):
        if least is not None and least > header.most:
            return None
        if least is not None and least > header.least:
            start = max(start, _CANONICAL + encode_key(least))
    if bounds.stop is not None:
        if bounds.stop <= header.least:
            return None
        if bounds.stop <= header.most:
            end = _CANONICAL + encode_key(bounds.stop)
    return start, end


def _texts(header: _Header, bounds: Bounds) -> tuple[bytes, bytes | None] | None:
    """Return the stored keys of a header that the bounds contain. All keys of a header have the same length."""
    start, end = header.start, header.end
    if bounds.prefix is not None:
        prefix = _bytes(bounds.prefix)
        if len(prefix) > header.length:
            return None
        start, end = header.start + prefix, prefix_end(header.start + prefix)
    if bounds.start is not None:
        least = _bytes(bounds.start)
        # A key of this length that equals the beginning of a longer bound comes before it.
        before = b"\0" if len(least) > header.length else b""
        start = max(start, header.start + least[: header.length] + before)
    if bounds.after is not None:
        after = _bytes(bounds.after)
        start = max(start, header.start + after[: header.length] + (b"\0" if len(after) >= header.length else b""))
    if bounds.stop is not None:
        stop = _bytes(bounds.stop)
        last = header.start + stop[: header.length] + (b"\0" if len(stop) > header.length else b"")
        end = last if end is None else min(end, last)
    return start, end


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def decoded_canonical(stored: bytes) -> Any:
    """Return a map key from its stored bytes; None if it is not a canonical key. Any exception means damage."""
    return decode_key(stored[1:]) if stored[:1] == _CANONICAL else None
