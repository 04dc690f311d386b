"""Write records to a server while the job runs, each exactly once, whatever happens to the server."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice, takewhile
from typing import Protocol

from chaos.program import record

AHEAD = 400
"""Records written ahead of the job: enough for the epochs until its position is read again."""
SPREAD = 200
"""Maximum distance between lanes in records, which bounds the out-of-orderness of event time."""
_BATCH = 8
_POLL_S = 0.1


class Lane(Protocol):
    """A connection that writes records in the order of their numbers. Used by one thread."""

    def reached(self) -> int:
        """Return one more than the last number that the server has of this lane; 0 if it has none."""

    def put(self, numbers: list[int], dice: random.Random) -> None:
        """Write records durably. Raises `Away` if the result is unknown. Can be repeated."""

    def close(self) -> None: ...


class Away(Exception):
    """The server does not answer. The last request might have been executed or not."""


class Feeder:
    """Order of calls: `start`; `end` or `end_at`; `stop`. A key belongs to one lane, so its records stay in order."""

    def __init__(self, lanes: Sequence[Lane], read: Callable[[], int], seed: int = 0) -> None:
        """Feed these lanes. `read` returns how many records the job has durably read."""
        self._lanes = lanes
        self._read = read
        self._seed = seed
        self._reached = [0] * len(lanes)
        self._end: int | None = None
        self._allowed = 0
        self._asked = 0.0
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failure: Exception | None = None

    def start(self) -> None:
        self._reached = [lane.reached() for lane in self._lanes]
        for number in range(len(self._lanes)):
            thread = threading.Thread(target=self._run, args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self, more: int) -> int:
        """End the input `more` records after the furthest position of any lane. Return the total number of records."""
        with self._changed:
            self._end = max(self._reached) + SPREAD + more
            return self._end

    def end_at(self, total: int) -> None:
        """Set the total that `end` returned in an earlier process."""
        self._end = total

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        for lane in self._lanes:
            lane.close()

    def _limit(self) -> int:
        """Return the number below which lanes can write records."""
        if self._end is None and time.monotonic() > self._asked + _POLL_S:
            self._asked = time.monotonic()
            self._allowed = self._read() + AHEAD
        return min(self._allowed if self._end is None else self._end, min(self._reached) + SPREAD)

    def _of_lane(self, lane: int, start: int) -> Iterator[int]:
        return (number for number in count(start) if record(number).key % len(self._lanes) == lane)

    def _run(self, number: int) -> None:
        dice = random.Random(f"penstock feeder {self._seed} {number}")
        try:
            while not self._stopped.is_set():
                limit = self._limit()
                waiting = takewhile(lambda each: each < limit, self._of_lane(number, self._reached[number]))  # noqa: B023
                numbers = list(islice(waiting, dice.randrange(1, _BATCH)))
                if numbers:
                    self._put(number, numbers, dice)
                with self._changed:
                    before = self._reached[number]
                    self._reached[number] = numbers[-1] + 1 if numbers else max(limit, before)
                    # Idle lanes must not keep waking each other.
                    if self._reached[number] != before:
                        self._changed.notify_all()
                    if not numbers:
                        self._changed.wait(_POLL_S)
        except Exception as error:  # reported by ServedEnds.look
            self.failure = error

    def _put(self, number: int, numbers: list[int], dice: random.Random) -> None:
        while not self._stopped.is_set():
            try:
                return self._lanes[number].put(numbers, dice)
            except Away:
                self._stopped.wait(_POLL_S)
