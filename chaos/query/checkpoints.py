"""How many records each completed checkpoint includes, from the manifests of the job."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

from chaos.damage import lineages
from chaos.query.program import SOURCE
from penstock.checkpoint.manifest import load
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import MissingObject

_LOOK_S = 0.1
_WAIT_S = 10.0


class Place(NamedTuple):
    """A checkpoint. Compares in the order in which the job completes them."""

    lineage: str
    """Another one starts with a savepoint, and can use the same numbers for other checkpoints."""
    number: int


class Checkpoints:
    """Notes each checkpoint. Start it, and stop it at the end."""

    def __init__(self, directory: Path) -> None:
        """`directory`: that of all jobs, `state.checkpoints.dir`."""
        self._directory = directory
        self._changed = threading.Condition()
        self._records: dict[Place, int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def count(self) -> int:
        """How many checkpoints were seen."""
        return len(self._records)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Note new checkpoints."""
        for lineage in lineages(self._directory):
            for path in sorted((lineage / "manifests").iterdir()):
                if not path.name.isdecimal():
                    continue
                place = Place(lineage.name, int(path.name))
                if place in self._records:
                    continue
                try:
                    self.note(place, load(LocalStorage(lineage), place.number)[0].records.get(SOURCE, 0))
                except MissingObject:
                    # Swept since.
                    continue

    def note(self, place: Place, records: int) -> None:
        """Note a checkpoint."""
        with self._changed:
            self._records[place] = records
            self._changed.notify_all()

    def records_of(self, place: Place) -> int | None:
        """Return how many records a checkpoint includes; None if it was never completed."""
        with self._changed:
            self._changed.wait_for(lambda: place in self._records, _WAIT_S)
            return self._records.get(place)

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            try:
                self.look()
            except FileNotFoundError:
                # A lineage was removed.
                continue
