"""The events of a service: the last ones are kept, and any number of clients can follow them.

A client resumes after the number of its last event. Numbers therefore ascend across processes: those of a process begin
at the time of its start. If events after that number are lost, the client receives an event `gap` in their place.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from penstock.cluster.gateway import Event
from penstock.common.wall_clock import now_ms

_KEPT = 1000
_GAP = "gap"


class EventLog:
    """The last events."""

    def __init__(self, microseconds: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        """`microseconds` returns the time since 1970. No process produces an event per microsecond."""
        self._recent: deque[Event] = deque(maxlen=_KEPT)
        self._number = microseconds()

    def add(self, kind: str, job: str = "", details: dict[str, str] | None = None) -> None:
        self._number += 1
        at_ms = now_ms()
        self._recent.append(Event(number=self._number, at_ms=at_ms, kind=kind, job=job, details=details or {}))

    def since(self, after: int) -> list[Event]:
        """Return the events after a number; all that are kept if it is negative.

        If others came between, or the number belongs to another process, the first one is a gap, and all that are kept
        follow.
        """
        before_first = self._recent[0].number - 1 if self._recent else self._number
        if after < 0 or before_first <= after <= self._number:
            return [each for each in self._recent if each.number > after]
        gap = Event(number=before_first, at_ms=now_ms(), kind=_GAP, details={"after": str(after)})
        return [gap, *self._recent]


class Events:
    """Call from one event loop."""

    def __init__(self) -> None:
        self._log = EventLog()
        self._news = asyncio.Event()
        self._closed = False

    def add(self, kind: str, job: str = "", details: dict[str, str] | None = None) -> None:
        """Add an event, and wake all followers."""
        self._log.add(kind, job, details)
        self._wake()

    def close(self) -> None:
        """End all followers."""
        self._closed = True
        self._wake()

    async def follow(self, after: int = -1) -> AsyncIterator[Event]:
        """Yield the events after a number, and all later ones."""
        while not self._closed:
            news = self._news
            for event in self._log.since(after):
                after = event.number
                yield event
            if news is self._news:
                await news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
