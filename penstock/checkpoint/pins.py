"""Pins of state servers: checkpoints whose files the job keeps, because a server is still reading them.

    pins/<server>-<checkpoint>-<renewal>        empty

A server replaces its pin from time to time by one with a new name. The driver measures with its own clock how long it
has seen a name, so the clocks of different hosts do not matter, and a dead server keeps nothing for long.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from penstock.checkpoint.manifest import Manifest
from penstock.state.storage import Storage, StorageError

_FOLDER = "pins/"
_NAME = re.compile(r"pins/([0-9a-f]{1,32})-(\d{1,18})-(\d{1,18})")
_MOST_PINS = 64
"""More are ignored, the oldest checkpoints first."""


class PinLimits(NamedTuple):
    """How long pins are respected."""

    age_ms: int
    """Since the server last replaced its pin."""
    checkpoints: int
    """How far the pinned checkpoint can be behind the last one."""


class ServerPins:
    """The pins in a lineage, as its driver sees them."""

    def __init__(self, storage: Storage, limits: PinLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._storage = storage
        self._limits = limits
        self._clock = clock
        self._seen: dict[str, float] = {}
        """When each pin was first seen."""

    def numbers(self, last: Manifest) -> list[int]:
        """Return the pinned checkpoints, and remove the others: too old, or too far behind."""
        now = self._clock()
        names = {name: match for name in self._storage.list(_FOLDER) if (match := _NAME.fullmatch(name))}
        self._seen = {name: self._seen.get(name, now) for name in names}
        numbers = set()
        for name, match in names.items():
            number = int(match[2])
            expired = now - self._seen[name] > self._limits.age_ms / 1000
            if expired or number < last.id - self._limits.checkpoints:
                self._storage.delete(name)
            elif number <= last.id:
                numbers.add(number)
        return sorted(numbers)[-_MOST_PINS:]


class Pin:
    """The pin of one server in a lineage."""

    def __init__(self, storage: Storage, server: str) -> None:
        """`server`: the id of the server, hexadecimal."""
        self._storage = storage
        self._server = server
        self._lock = threading.Lock()
        self._renewal = 0
        self._name: str | None = None

    def move(self, number: int) -> bool:
        """Pin this checkpoint instead of the previous one. Return whether it worked: storage can be read-only."""
        with self._lock:
            self._renewal += 1
            name = f"{_FOLDER}{self._server}-{number}-{self._renewal}"
            before = self._name
            try:
                self._storage.write(name, b"")
                self._name = name
                if before is not None:
                    self._storage.delete(before)
            except (StorageError, OSError):
                return False
            return True

    def release(self) -> None:
        """Remove the pin."""
        with self._lock:
            if self._name is not None:
                try:
                    self._storage.delete(self._name)
                except (StorageError, OSError):
                    # The driver will remove it.
                    pass
                self._name = None
