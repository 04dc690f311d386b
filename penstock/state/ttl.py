"""What time to live means for stored entries: which carry a time, and which have expired.

A state with TTL keeps its entries under a number of its own, each with the time of its last access in front, so that
any entry tells by its key whether it has one. States without TTL know nothing of this. A state that has had TTL once
stays in this form, also where TTL is turned off; and where it is turned on later, the entries from before stay where
they are and count as accessed then (`Form.since`).
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
"""In front of a value: whether the time is event time, and the time, in milliseconds."""

UNKNOWN = -(2**63)
"""The time of an access before event time had begun. What was accessed then does not expire."""
_END = 2**63 - 1
FOREVER = 2**65
"""A time to live past every time there is."""

_ID = slice(2, 6)
"""Where the state's number is in an entry's key."""

encode_elements = msgspec.msgpack.Encoder().encode
decode_elements = msgspec.msgpack.Decoder(list[bytes]).decode


class Clock(Protocol):
    """The times by which the values of one operator subtask age."""

    def processing_time(self) -> int: ...

    def event_time(self) -> int: ...


class Form(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """How a state with TTL is stored. In reports and manifests; the settings in it are for whoever cleans up, and are
    never restored: those of the program count."""

    event_time: bool
    ttl_ms: int | None
    """None while TTL is turned off."""
    is_list: bool
    since: tuple[int, int] | None = None
    """Processing and event time at which TTL was turned on, or the other clock was chosen, for a state that had data:
    the time of all entries that carry none of this clock. None where all do."""
    in_bases: bool = False
    """Whether bases are to leave out what has expired."""
    in_compaction: bool = False
    """Whether replicas may drop it."""

    def time_of_unstamped(self) -> int:
        return UNKNOWN if self.since is None else self.since[self.event_time]


def timed_name(name: str) -> str:
    """What the number of a state's entries that carry a time is made of. No name that a user chooses is like it."""
    return f"{name}\0ttl"


def next_form(
    config: StateTtlConfig | None, stored: Form | None, has_data: bool, is_list: bool, now: tuple[int, int]
) -> Form | None:
    """The form of a state from now on; None where it has no TTL and never had. `has_data`: the state is stored."""
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
        # What a replica drops by itself a walk over it does not find, so it would never be in a delta.
        in_compaction=compacts and strategies.get_incremental_cleanup_strategy() is None,
    )


class Expiry:
    """Tells of any entry of an operator whether it has expired. Made by `bases_filter` and `compaction_filter`."""

    def __init__(self, forms: Mapping[str, Form], processing_time: int, event_time: int) -> None:
        self._states: dict[bytes, tuple[Form, int, bool]] = {}
        for name, form in forms.items():
            now = event_time if form.event_time else processing_time
            if form.ttl_ms is None or (form.event_time and now in (UNKNOWN, _END)):
                continue
            # Expired is what was accessed at this time or before.
            last = now - form.ttl_ms
            self._states[_number(timed_name(name))] = form, last, True
            if form.since is not None:
                self._states[_number(name)] = form, last, False

    def __bool__(self) -> bool:
        return bool(self._states)

    def live(self, key: bytes, value: bytes) -> bool:
        """Whether anything of this entry has not expired. Entries of states without TTL have not."""
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
        """The changes without what has expired, element by element."""
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
    """What a base may leave out of an operator's state at these times; None where that is nothing."""
    return Expiry({n: form for n, form in forms.items() if form.in_bases}, processing_time, event_time) or None


def compaction_filter(
    forms: Mapping[str, Form], processing_time: int, event_time: int
) -> Callable[[bytes, bytes], bool] | None:
    """For a replica that compacts: which entries it must keep, by key and value; None where that is all of them.

    The times are those of the manifest the replica stands on, or earlier ones.
    """
    expiry = Expiry({n: form for n, form in forms.items() if form.in_compaction}, processing_time, event_time)
    return expiry.live if expiry else None


def _is_live(data: bytes, form: Form, last: int) -> bool:
    event_time, stamped = STAMP.unpack_from(data)
    time: int = stamped if event_time is form.event_time else form.time_of_unstamped()
    return time > last or time == UNKNOWN


def _number(name: str) -> bytes:
    return state_id(name).to_bytes(4, "big")
