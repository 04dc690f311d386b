"""Brings records to a server while the job runs, whatever happens to the server: each record once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice, takewhile
from typing import Protocol

from chaos.program import record

AHEAD = 400
"""Records that may wait for the job: enough for the epochs until it tells again how far it is."""
SPREAD = 200
"""No lane is so many records ahead of another: so event time knows how long to wait for the slowest."""
_BATCH = 8
_POLL_S = 0.1


class Lane(Protocol):
    """One connection that brings records, in the order of their numbers. It is used by one thread."""

    def reached(self) -> int:
        """One more than the last number that the server has of this lane; 0 for none."""

    def put(self, numbers: list[int], dice: random.Random) -> None:
        """Returns when the server has them all for good; raises `Away` if it cannot be known. May be called again."""

    def close(self) -> None: ...


class Away(Exception):
    """The server does not answer. What it was told last may be there or not."""


class Feeder:
    """Order of calls: `start`; `end` or `end_at`; `stop`. A key belongs to one lane, so its records come in order."""

    def __init__(self, lanes: Sequence[Lane], read: Callable[[], int], seed: int = 0) -> None:
        """`read`: how many records the job has read for good."""
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
        """The input shall end, after so many records more than any lane may be at. Returns how many there will be."""
        with self._changed:
            self._end = max(self._reached) + SPREAD + more
            return self._end

    def end_at(self, total: int) -> None:
        """As `end` has said, to a feeder that is no more."""
        self._end = total

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        for lane in self._lanes:
            lane.close()

    def _limit(self) -> int:
        """Lanes bring what is below it."""
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
                    # Lanes that have nothing to do must not wake each other for ever.
                    if self._reached[number] != before:
                        self._changed.notify_all()
                    if not numbers:
                        self._changed.wait(_POLL_S)
        except Exception as error:  # told by whoever asks for it
            self.failure = error

    def _put(self, number: int, numbers: list[int], dice: random.Random) -> None:
        while not self._stopped.is_set():
            try:
                return self._lanes[number].put(numbers, dice)
            except Away:
                self._stopped.wait(_POLL_S)
