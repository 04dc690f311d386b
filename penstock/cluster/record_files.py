"""The files of records: each is published once, decoded once, and refused when it is damaged."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from penstock.checkpoint.lineages import SharedStorage
from penstock.common.json_text import to_json
from penstock.errors import PenstockError
from penstock.state.storage import AlreadyPublished


class BadRecord(PenstockError):
    """A record of the cluster is damaged, or was written by a newer version.

    Operator action: restore the file that the message names from a backup, or run the version that wrote it.
    """

    retryable = False


_R = TypeVar("_R", bound=msgspec.Struct)


class RecordFiles:
    """The records of one storage. Thread-safe."""

    def __init__(self, storage: SharedStorage) -> None:
        self._storage = storage
        self._decoded: dict[str, dict[str, object]] = {}
        """Records by the folder of their job and their name. They never change, and most reads repeat.

        A job has few records, and they are in memory as long as the job is listed: no limit is needed here.
        """

    def publish(self, name: str, record: msgspec.Struct) -> None:
        """Publish a record. Raises AlreadyPublished."""
        self._storage.publish(name, to_json(record))

    def won(self, name: str, record: msgspec.Struct) -> bool:
        """Publish a record. Return False if another process has published it."""
        try:
            self.publish(name, record)
        except AlreadyPublished:
            return False
        return True

    def read(self, name: str, form: type[_R]) -> _R:
        """Return a record. Raises BadRecord."""
        known = self._decoded.get(_folder(name), {}).get(name)
        if isinstance(known, form):
            return known
        try:
            record = msgspec.json.decode(self._storage.read(name), type=form)
        except (ValueError, RecursionError) as error:  # a msgspec error, or text that is not UTF-8
            raise self._bad(name, error) from None
        self._decoded.setdefault(_folder(name), {})[name] = record
        return record

    def text(self, name: str) -> str:
        """Return a record that is plain text. Raises BadRecord."""
        known = self._decoded.get(_folder(name), {}).get(name)
        if isinstance(known, str):
            return known
        try:
            text = self._storage.read(name).decode()
        except ValueError as error:
            raise self._bad(name, error) from None
        self._decoded.setdefault(_folder(name), {})[name] = text
        return text

    def forget(self, folder: str) -> None:
        """Read the records of a job again: it was removed, and another one can get its id."""
        self._decoded.pop(folder, None)

    def forget_all(self) -> None:
        """Read all records again: another process could have removed jobs."""
        self._decoded.clear()

    def _bad(self, name: str, error: Exception) -> BadRecord:
        return BadRecord(
            f"The record {name} in {self._storage.where} cannot be read: {error}.",
            fix="Restore the file from a backup, or run the version of Penstock that wrote it.",
        )


def _folder(name: str) -> str:
    return "/".join(name.split("/")[:2])
