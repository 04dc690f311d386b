"""How many records each completed checkpoint includes, from the manifests of the job."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from chaos.damage import lineages
from chaos.query.program import SOURCE
from penstock.checkpoint.manifest import load
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import MissingObject

_LOOK_S = 0.1
_WAIT_S = 10.0


class Checkpoints:
    """Notes each checkpoint. Start it, and stop it at the end."""

    def __init__(self, directory: Path) -> None:
        """`directory`: that of all jobs, `state.checkpoints.dir`."""
        self._directory = directory
        self._changed = threading.Condition()
        self._records: dict[int, int] = {}
        self._known: set[tuple[str, int]] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.violations: list[str] = []

    @property
    def count(self) -> int:
        """How many checkpoints were seen."""
        return len(self._records)

    @property
    def newest(self) -> int:
        """The number of the newest checkpoint, or 0."""
        return max(self._records, default=0)

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
                place = lineage.name, int(path.name) if path.name.isdecimal() else 0
                if not place[1] or place in self._known:
                    continue
                try:
                    records = load(LocalStorage(lineage), place[1])[0].records.get(SOURCE, 0)
                except MissingObject:
                    # Swept since.
                    continue
                self._known.add(place)
                self.note(place[1], records)

    def note(self, number: int, records: int) -> None:
        """Note a checkpoint. A job that starts from a savepoint continues with its number and its records."""
        with self._changed:
            before = self._records.setdefault(number, records)
            self._changed.notify_all()
        if before != records:
            self.violations.append(f"two checkpoints {number} exist, with {before} and with {records} records")

    def records_of(self, number: int) -> int | None:
        """Return how many records a checkpoint includes; None if it was never completed."""
        until = time.monotonic() + _WAIT_S
        with self._changed:
            while number not in self._records and self._changed.wait(until - time.monotonic()):
                pass
            return self._records.get(number)

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            try:
                self.look()
            except FileNotFoundError:
                # A lineage was removed.
                continue
