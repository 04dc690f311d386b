"""Removal of values when they expire, by internal timers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.state.timers import Timer, Timers

if TYPE_CHECKING:
    from penstock.state.overlay import Overlay
    from penstock.state.ttl_states import TimedState

_END = 2**63 - 1

EXPIRY_KINDS = {"EVENT_TIME": "TTL_EVENT_TIME", "PROCESSING_TIME": "TTL_PROCESSING_TIME"}
"""Names under which TTL timers are stored, by clock."""


class ExpiryTimers:
    """The TTL timers of one clock. They fire just before the operator's timers of that clock.

    Their namespace consists of the state id and the map key.
    """

    def __init__(self, overlay: Overlay, kind: str) -> None:
        self._overlay = overlay
        self._states: dict[bytes, TimedState] = {}
        self._timers = Timers(overlay, EXPIRY_KINDS[kind])
        self._come_before(overlay.timers[kind])
        overlay.add_timers(EXPIRY_KINDS[kind], self._timers)

    def watch(self, state: TimedState) -> None:
        """Let timers remove the expired values of a state."""
        state.timers = self
        self._states[_number(state)] = state

    def set(self, state: TimedState, time: int, rest: bytes) -> None:
        """Set a timer for the current key and the map key `rest`."""
        if time <= _END:
            self._timers.register(time, _number(state) + rest)

    def unset(self, state: TimedState, time: int, rest: bytes) -> None:
        """Delete a timer of the current key and the map key `rest`."""
        if time <= _END:
            self._timers.delete(time, _number(state) + rest)

    def _come_before(self, timers: Timers) -> None:
        # The operator and its contexts hold this very object. `is_due` is called with every watermark, up to once per
        # record: patching it saves a branch, 0.015 µs, if no state is cleaned up by timers.
        is_due, due, take = timers.is_due, timers.due, timers.take

        def due_after(until: int) -> Iterator[Timer]:
            self._remove_expired(until)
            return due(until)

        def take_after(until: int) -> tuple[list[Timer], int]:
            self._remove_expired(until)
            return take(until)

        timers.is_due = lambda until: self._is_due(until) or is_due(until)  # type: ignore[method-assign]
        timers.due = due_after  # type: ignore[method-assign]
        timers.take = take_after  # type: ignore[method-assign]

    def _is_due(self, until: int) -> bool:
        # The end of the input is not a point in time: nothing expires at it.
        return until != _END and self._timers.is_due(until)

    def _remove_expired(self, until: int) -> None:
        before = self._overlay.key
        while self._is_due(until):
            for _, key, namespace in self._timers.take(until)[0]:
                state = self._states.get(namespace[:4])
                if state is not None:
                    self._overlay.key = key
                    state.remove_expired(key, namespace[4:])
        self._overlay.key = before


def _number(state: TimedState) -> bytes:
    return state.number.to_bytes(4, "big")
