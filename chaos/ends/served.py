"""Ends at a server: start, feed, kill and restart the server, and drain the job when it has read everything."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from chaos.ends.feeder import Feeder, Lane
from chaos.oracle import Expected, Output

_AWAY_MS = (50, 2000)
"""How long a server is down or unresponsive."""


class Missed(Exception):
    """The fault found no target."""


class ServedEnds(ABC):
    """Order of calls: `open`; faults, `where` and `look` in any order; `end_input`; `output`; `close`."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._feeder: Feeder | None = None

    def open(self, read: Callable[[], int], total: int | None) -> None:
        """Start the server, on the data of an earlier process if there is any, and feed it.

        `read` returns how many records the job has durably read. `total` is the result of an earlier `end_input`.
        """
        self.start_server()
        self.prepare()
        self._feeder = Feeder(self.lanes(), read)
        if total is not None:
            self._feeder.end_at(total)
        self._feeder.start()

    def end_input(self, more: int) -> int:
        """End the input soon, after at least `more` records. Return the total number of records."""
        assert self._feeder is not None
        return self._feeder.end(more)

    def look(self) -> list[str]:
        """Return violations observed so far."""
        assert self._feeder is not None
        failure = self._feeder.failure
        return [] if failure is None else [f"records cannot be written to the server: {failure!r}"]

    def close(self) -> None:
        if self._feeder is not None:
            self._feeder.stop()
        self.end_server()

    def remove(self) -> None:
        """Remove files outside the work directory. Called at the end of the run, after `close`."""

    # -- faults ----------------------------------------------------------------------------------------------------

    def inject(self, kind: str, dice: random.Random) -> str:
        """Inject a fault and undo it a moment later. The server answers again on return. Raises Missed."""
        milliseconds = dice.randrange(*_AWAY_MS)
        if kind == "connections":
            cut = self.cut_connections()
            if not cut:
                raise Missed("no client was connected")
            return f"closed {cut} connections"
        if kind == "server-pause":
            self.pause_server()
            time.sleep(milliseconds / 1000)
            self.resume_server()
            return f"paused for {milliseconds} ms"
        if kind == "server":
            self.kill_server()
            did = "killed"
        else:
            did = self.stop_server(dice)
        time.sleep(milliseconds / 1000)
        began = time.monotonic()
        self.start_server()
        return f"{did}, started {milliseconds} ms later, answered after {time.monotonic() - began:.1f} s"

    # -- specific to each server -----------------------------------------------------------------------------------

    @abstractmethod
    def where(self) -> dict[str, str]:
        """Return the connection details for the job; `chaos.ends.programs` reads them."""

    @abstractmethod
    def prepare(self) -> None:
        """Create tables and the like if they do not exist."""

    @abstractmethod
    def lanes(self) -> list[Lane]: ...

    @abstractmethod
    def output(self) -> dict[str, Output]:
        """Return all visible output, by run if the run can be determined."""

    def check(self, wanted: Expected) -> list[str]:
        """Return further violations at the end of the run."""
        return []

    @abstractmethod
    def start_server(self) -> None:
        """Start the server and wait until it answers."""

    @abstractmethod
    def kill_server(self) -> None: ...

    @abstractmethod
    def stop_server(self, dice: random.Random) -> str:
        """Stop the server and return a description."""

    @abstractmethod
    def pause_server(self) -> None: ...

    @abstractmethod
    def resume_server(self) -> None: ...

    @abstractmethod
    def cut_connections(self) -> int:
        """Close all connections and return how many there were."""

    @abstractmethod
    def end_server(self) -> None:
        """Stop the server if it is still running."""
