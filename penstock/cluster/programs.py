"""The programs of a cluster: uploads that clients can list, run and remove, and the content that jobs keep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from penstock.cluster.gateway import StoredProgram, UnknownProgram
from penstock.cluster.program import check_upload, upload_name
from penstock.cluster.records import Records
from penstock.common.wall_clock import now_ms

_UNUSED_S = 3600.0
"""Time after which a program that neither a job nor an upload names is removed."""


class Programs:
    """Methods block while they access the storage. Thread-safe."""

    def __init__(self, records: Records, clock: Callable[[], float] = time.monotonic) -> None:
        self._records, self._clock = records, clock
        self._lock = threading.Lock()
        """Held while a program is stored and listed."""
        self._unused: dict[str, float] = {}
        """Programs that could be removed, and since when this is known."""

    def all(self) -> list[StoredProgram]:
        """Return the uploads that clients can run."""
        return [_stored(upload, at_ms) for upload, at_ms in self._records.uploads().items()]

    def store(self, name: str, file: Path) -> StoredProgram:
        """Check and store an upload. Raises BadProgram if it is not a program."""
        name = upload_name(name)
        check_upload(file, name)
        stored_ms = now_ms()
        with self._lock:
            program = self._records.store_program(file.read_bytes())
            self._records.store_upload(name, program, stored_ms)
        return _stored(f"{program}_{name}", stored_ms)

    def find(self, program_id: str) -> tuple[str, str]:
        """Return the hash and the name of an upload. Raises UnknownProgram."""
        if program_id not in self._records.uploads():
            raise UnknownProgram(
                f"The cluster has no program '{program_id}'.", fix="Upload it; `GET /jars` lists the programs."
            )
        return program_id[:64], program_id[65:]

    def read(self, program_id: str) -> tuple[bytes, str]:
        """Return the content and the name of an upload. Raises UnknownProgram."""
        program, name = self.find(program_id)
        return self._records.read_program(program), name

    def remove(self, program_id: str) -> None:
        """Remove an upload. Jobs keep the program. Raises UnknownProgram."""
        self.find(program_id)
        self._records.remove_upload(program_id)

    def sweep(self, used: Collection[str]) -> None:
        """Remove programs that neither an upload nor a job has named for a while. `used`: those of the jobs."""
        with self._lock:
            unused = self._records.programs() - set(used) - {upload[:64] for upload in self._records.uploads()}
            now = self._clock()
            self._unused = {program: self._unused.get(program, now) for program in unused}
            for program, since in self._unused.items():
                if now - since > _UNUSED_S:
                    self._records.remove_program(program)


def _stored(upload: str, at_ms: int) -> StoredProgram:
    return StoredProgram(id=upload, name=upload[65:], uploaded_ms=at_ms)
