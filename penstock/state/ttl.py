"""Time to live (TTL) of stored entries: which entries carry a timestamp, and which have expired.

A state with TTL stores its entries under a separate state id, each prefixed with the time of its last access, so the
key of an entry shows whether it carries a timestamp. States without TTL are not affected. A state that once had TTL
keeps this format even if TTL is turned off. If TTL is turned on later, earlier entries stay in place and count as
accessed at that time (`Form.since`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from penstock.state.entries import state_id
from penstock.state.files import GroupChanges
from penstock.state.ttl_config import StateTtlConfig

STAMP = struct.Struct(">?q")
"""Prefix of a value: whether the time is event time, and the time in milliseconds."""

UNKNOWN = -(2**63)
"""The time of an access before event time started. Values accessed then do not expire."""
_END = 2**63 - 1
FOREVER = 2**65
"""A time to live beyond any time."""

_ID = slice(2, 6)
"""Position of the state id in an entry's key."""

encode_elements = msgspec.msgpack.Encoder().encode
decode_elements = msgspec.msgpack.Decoder(list[bytes]).decode


class Clock(Protocol):
    """The clocks by which the values of one operator subtask age."""

    def processing_time(self) -> int:
        """Return the processing time in milliseconds."""

    def event_time(self) -> int:
        """Return the event time in milliseconds."""


class Form(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """How a state with TTL is stored, in reports and manifests. Its settings are for cleanup only and are never
    restored: the program's settings apply."""

    event_time: bool
    ttl_ms: int | None
    """None if TTL is turned off."""
    is_list: bool
    since: tuple[int, int] | None = None
    """Processing and event time at which a state that already had data got TTL or changed its clock. This is the time
    of all entries without a timestamp of the current clock. None if all entries have one."""
    in_bases: bool = False
    """Whether bases omit expired values."""
    in_compaction: bool = False
    """Whether replicas can drop expired values."""

    def time_of_unstamped(self) -> int:
        """Return the access time of entries without a timestamp of the current clock."""
        return UNKNOWN if self.since is None else self.since[self.event_time]


def timed_name(name: str) -> str:
    """Return the name from which the state id of timestamped entries is derived. User-defined names never match it."""
    return f"{name}\0ttl"


def next_form(
    config: StateTtlConfig | None, stored: Form | None, has_data: bool, is_list: bool, now: tuple[int, int]
) -> Form | None:
    """Return the form of a state from now on, or None if it has no TTL and never had.

    Args:
        config: The declared TTL.
        stored: The form in the last checkpoint.
        has_data: Whether the state is stored.
        is_list: Whether the state is a list.
        now: Processing and event time.
    """
    if config is None or not config.is_enabled():
        return (
            None
            if stored is None
            else msgspec.structs.replace(stored, ttl_ms=None, in_bases=False, in_compaction=False)
        )
    event_time = config.get_ttl_time_characteristic() is StateTtlConfig.TtlTimeCharacteristic.EventTime
    strategies = config.get_cleanup_strategies()
    compacts = strategies.get_rocksdb_compact_filter_cleanup_strategy() is not None
    if stored is None:
        since = now if has_data else None
    else:
        since = stored.since if stored.event_time is event_time else now
    return Form(
        event_time=event_time,
        ttl_ms=config.get_ttl().to_milliseconds(),
        is_list=is_list,
        since=since,
        in_bases=strategies.in_full_snapshot() or compacts or strategies.is_cleanup_in_background(),
        # Cleanup cannot find entries that a replica dropped by itself, so their removal would never be in a delta.
        in_compaction=compacts and strategies.get_incremental_cleanup_strategy() is None,
    )


class Expiry:
    """Decides for any entry of an operator whether it has expired. See `bases_filter` and `compaction_filter`."""

    def __init__(self, forms: Mapping[str, Form], processing_time: int, event_time: int) -> None:
        self._states: dict[bytes, tuple[Form, int, bool]] = {}
        for name, form in forms.items():
            now = event_time if form.event_time else processing_time
            if form.ttl_ms is None or (form.event_time and now in (UNKNOWN, _END)):
                continue
            # Values whose last access was at this time or earlier have expired.
            last = now - form.ttl_ms
            self._states[_number(timed_name(name))] = form, last, True
            if form.since is not None:
                self._states[_number(name)] = form, last, False

    def __bool__(self) -> bool:
        return bool(self._states)

    def live(self, key: bytes, value: bytes) -> bool:
        """Return whether any part of this entry has not expired. Entries of states without TTL never expire."""
        found = self._states.get(key[_ID])
        if found is None:
            return True
        form, last, stamped = found
        if not stamped:
            return form.time_of_unstamped() > last or form.time_of_unstamped() == UNKNOWN
        if form.is_list:
            return any(_is_live(element, form, last) for element in decode_elements(value))
        return _is_live(value, form, last)

    def rest(self, changes: GroupChanges) -> GroupChanges:
        """Return the changes without expired values and list elements."""
        kept = []
        for key, value in changes.entries:
            if value is not None:
                value = self._rest_of(key, value)
                if value is None:
                    continue
            kept.append((key, value))
        return GroupChanges(changes.group, changes.cleared, kept)

    def _rest_of(self, key: bytes, value: bytes) -> bytes | None:
        found = self._states.get(key[_ID])
        if found is None or not (found[0].is_list and found[2]):
            return value if self.live(key, value) else None
        form, last, _ = found
        elements = decode_elements(value)
        live = [element for element in elements if _is_live(element, form, last)]
        return value if len(live) == len(elements) else encode_elements(live) if live else None


def bases_filter(forms: Mapping[str, Form], processing_time: int, event_time: int) -> Expiry | None:
    """Return the filter of expired values for a base written at these times, or None if nothing can be omitted."""
    return Expiry({n: form for n, form in forms.items() if form.in_bases}, processing_time, event_time) or None


def compaction_filter(
    forms: Mapping[str, Form], processing_time: int, event_time: int
) -> Callable[[bytes, bytes], bool] | None:
    """Return a function that decides, by key and value, which entries a compacting replica must keep; None if all.

    The times are at most those of the manifest at which the replica is.
    """
    expiry = Expiry({n: form for n, form in forms.items() if form.in_compaction}, processing_time, event_time)
    return expiry.live if expiry else None


def _is_live(data: bytes, form: Form, last: int) -> bool:
    event_time, stamped = STAMP.unpack_from(data)
    time: int = stamped if event_time is form.event_time else form.time_of_unstamped()
    return time > last or time == UNKNOWN


def _number(name: str) -> bytes:
    return state_id(name).to_bytes(4, "big")
