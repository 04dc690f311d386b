"""The events of a service: the last ones are kept, and any number of clients can follow them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from penstock.cluster.gateway import Event
from penstock.common.wall_clock import now_ms

_KEPT = 1000


class Events:
    """Call from one event loop."""

    def __init__(self) -> None:
        self._recent: deque[Event] = deque(maxlen=_KEPT)
        self._number = 0
        self._news = asyncio.Event()
        self._closed = False

    def add(self, kind: str, job: str = "", details: dict[str, str] | None = None) -> None:
        """Add an event, and wake all followers."""
        self._number += 1
        at_ms = now_ms()
        self._recent.append(Event(number=self._number, at_ms=at_ms, kind=kind, job=job, details=details or {}))
        self._wake()

    def close(self) -> None:
        """End all followers."""
        self._closed = True
        self._wake()

    async def follow(self, after: int = -1) -> AsyncIterator[Event]:
        """Yield the events after a number, of those that are kept, and all later ones."""
        while not self._closed:
            news = self._news
            for event in [each for each in self._recent if each.number > after]:
                after = event.number
                yield event
            if news is self._news:
                await news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
