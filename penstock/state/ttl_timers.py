"""Removing values when their time comes, by timers that no function sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.state.timers import Timer, Timers

if TYPE_CHECKING:
    from penstock.state.overlay import Overlay
    from penstock.state.ttl_states import TimedState

_END = 2**63 - 1

EXPIRY_KINDS = {"EVENT_TIME": "TTL_EVENT_TIME", "PROCESSING_TIME": "TTL_PROCESSING_TIME"}
"""Under which names the timers of TTL are kept, by the clock they go by."""


class ExpiryTimers:
    """The timers of TTL that go by one clock. They come just before the operator's own of that clock.

    Their namespace is the state's number and the map key.
    """

    def __init__(self, overlay: Overlay, kind: str) -> None:
        self._overlay = overlay
        self._states: dict[bytes, TimedState] = {}
        self._timers = Timers(overlay, EXPIRY_KINDS[kind])
        self._come_before(overlay.timers[kind])
        overlay.add_timers(EXPIRY_KINDS[kind], self._timers)

    def watch(self, state: TimedState) -> None:
        state.timers = self
        self._states[_number(state)] = state

    def set(self, state: TimedState, time: int, rest: bytes) -> None:
        if time <= _END:
            self._timers.register(time, _number(state) + rest)

    def unset(self, state: TimedState, time: int, rest: bytes) -> None:
        if time <= _END:
            self._timers.delete(time, _number(state) + rest)

    def _come_before(self, timers: Timers) -> None:
        # The operator and its contexts hold this very object. `is_due` is asked with every watermark, up to once per
        # record: where no state is cleaned up by timers, it costs a branch less, 0.015 µs.
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
        # The end of the input is no point in time: nothing expires by it.
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
