"""Queues in which asynchronous calls and watermarks wait for their turn: in input order or in completion order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple


class Passing(NamedTuple):
    """A watermark queued behind the results of the records before it."""

    watermark: int | None
    channel: str


class Call:
    """One record on its way through an async function, retries included."""

    __slots__ = ("channel", "deadline", "error", "results", "segment", "timestamp", "value")

    def __init__(self, value: Any, timestamp: int | None, channel: str) -> None:
        self.value = value
        self.timestamp = timestamp
        self.channel = channel
        self.results: Any = None
        """A list, once the call has succeeded."""
        self.error: BaseException | None = None
        self.deadline = 0.0
        self.segment: _Segment | None = None

    @staticmethod
    def dead(error: BaseException) -> Call:
        """Return a failed call that stands for all calls of a loop that has died."""
        call = Call(None, None, "")
        call.error = error
        return call


class InOrder:
    """Emits results in the order of their records."""

    def __init__(self) -> None:
        self._line: deque[Call | Passing] = deque()

    def add(self, call: Call) -> None:
        self._line.append(call)

    def mark(self, passing: Passing) -> None:
        self._line.append(passing)

    def finished(self, call: Call) -> None:
        pass

    def ready(self) -> Iterator[Call | Passing]:
        line = self._line
        while line:
            first = line[0]
            if isinstance(first, Call) and first.results is None:
                return
            yield line.popleft()


class _Segment:
    """The calls between two watermarks."""

    __slots__ = ("end", "finished", "running")

    def __init__(self) -> None:
        self.running = 0
        self.finished: list[Call] = []
        self.end: Passing | None = None


class AsCompleted:
    """Emits results as they complete; results and watermarks never overtake each other."""

    def __init__(self) -> None:
        self._segments = deque([_Segment()])

    def add(self, call: Call) -> None:
        call.segment = self._segments[-1]
        call.segment.running += 1

    def mark(self, passing: Passing) -> None:
        self._segments[-1].end = passing
        self._segments.append(_Segment())

    def finished(self, call: Call) -> None:
        segment = call.segment
        assert segment is not None
        segment.running -= 1
        segment.finished.append(call)

    def ready(self) -> Iterator[Call | Passing]:
        while True:
            first = self._segments[0]
            finished, first.finished = first.finished, []
            yield from finished
            if first.running or first.end is None:
                return
            self._segments.popleft()
            yield first.end
