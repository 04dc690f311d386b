"""Ends at a server: it is started, fed, killed and started again; the job is drained when it has read everything."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from chaos.ends.feeder import Feeder, Lane
from chaos.oracle import Expected, Output

_AWAY_MS = (50, 2000)
"""How long a server is away, or does not answer."""


class Missed(Exception):
    """There was nothing to do the fault to."""


class ServedEnds(ABC):
    """Order of calls: `open`; faults, `where` and `look` in any order; `end_input`; `output`; `close`."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._feeder: Feeder | None = None

    def open(self, read: Callable[[], int], total: int | None) -> None:
        """Start the server, on the data of an earlier process if there are any, and feed it. `total`: see `end_input`.

        `read`: how many records the job has read for good.
        """
        self.start_server()
        self.prepare()
        self._feeder = Feeder(self.lanes(), read)
        if total is not None:
            self._feeder.end_at(total)
        self._feeder.start()

    def end_input(self, more: int) -> int:
        """Let the input end soon, after `more` records at least. Returns how many there will be in all."""
        assert self._feeder is not None
        return self._feeder.end(more)

    def look(self) -> list[str]:
        """What must never be seen, and was."""
        assert self._feeder is not None
        failure = self._feeder.failure
        return [] if failure is None else [f"records cannot be brought to the server: {failure!r}"]

    def close(self) -> None:
        if self._feeder is not None:
            self._feeder.stop()
        self.end_server()

    def remove(self) -> None:
        """The run is over, and the work directory will be removed: remove what else there is. After `close`."""

    # -- faults ----------------------------------------------------------------------------------------------------

    def inject(self, kind: str, dice: random.Random) -> str:
        """Do it, and undo it a moment later: when this returns the server answers. Raises Missed."""
        milliseconds = dice.randrange(*_AWAY_MS)
        if kind == "connections":
            cut = self.cut_connections()
            if not cut:
                raise Missed("nobody was connected")
            return f"closed {cut} connections"
        if kind == "server-pause":
            self.pause_server()
            time.sleep(milliseconds / 1000)
            self.resume_server()
            return f"stopped for {milliseconds} ms"
        if kind == "server":
            self.kill_server()
            did = "killed"
        else:
            did = self.stop_server(dice)
        time.sleep(milliseconds / 1000)
        began = time.monotonic()
        self.start_server()
        return f"{did}, started {milliseconds} ms later, answered after {time.monotonic() - began:.1f} s"

    # -- what each server does its own way -------------------------------------------------------------------------

    @abstractmethod
    def where(self) -> dict[str, str]:
        """What the job must know; `chaos.ends.programs` reads it."""

    @abstractmethod
    def prepare(self) -> None:
        """Make tables and the like, where they are not there yet."""

    @abstractmethod
    def lanes(self) -> list[Lane]: ...

    @abstractmethod
    def output(self) -> dict[str, Output]:
        """All that is visible, by the run that gave it where that can be told."""

    def check(self, wanted: Expected) -> list[str]:
        """What else is wrong in the end."""
        return []

    @abstractmethod
    def start_server(self) -> None:
        """Returns when it answers."""

    @abstractmethod
    def kill_server(self) -> None: ...

    @abstractmethod
    def stop_server(self, dice: random.Random) -> str:
        """Returns how."""

    @abstractmethod
    def pause_server(self) -> None: ...

    @abstractmethod
    def resume_server(self) -> None: ...

    @abstractmethod
    def cut_connections(self) -> int:
        """How many there were."""

    @abstractmethod
    def end_server(self) -> None:
        """It may be gone already."""
