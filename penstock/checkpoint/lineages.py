"""The lineages of one job: which one to resume, and how one ends.

    lineages/000000000007            published once, holds the lineage's name
    lineages/000000000007.retained   it has ended, and its checkpoints are kept
    lineages/000000000007.removed    it has ended and is deleted, or will be by the next driver
    001700000000000-5f3a9c01/…       a lineage's own objects

Only the lineage with the highest number is ever resumed, and only while it has not ended. Drivers that start
simultaneously publish the same number, so they get the same lineage, and only one of them can publish the first
manifest. A number is never reused: its record or its mark stays until a higher one exists. The name of a lineage that
started from a savepoint ends in `-from-` and a hash of the savepoint's path.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable
from contextlib import suppress

from penstock.checkpoint.fencing import remove_manifests
from penstock.checkpoint.manifest import manifest_name
from penstock.common.wall_clock import now_ms
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage
from penstock.state.storage import AlreadyPublished, MissingObject, StorageError

SharedStorage = LocalStorage | ObjectStorage
"""Storage that drivers and tasks in several processes can reach."""

_log = logging.getLogger(__name__)

_FOLDER = "lineages/"
_FROM = "-from-"
_RETAINED, _REMOVED = ".retained", ".removed"
_OURS = re.compile(r"lineages/\d{12}(\.retained|\.removed)?")


class MissingCheckpoints(StorageError):
    """The directory with the checkpoints of a cluster's job is empty, although the job has run.

    Operator action: mount the directory, or restore it. The cluster tries again by itself.
    """


class Lineages:
    """The lineages of the job whose checkpoints are in `root`. Each driver has one object of this class."""

    def __init__(self, root: SharedStorage, probe: Callable[[str], None] = lambda point: None) -> None:
        self._root, self._probe = root, probe
        self._records: dict[str, str] = {}
        """The record of each lineage that `current` returned."""

    def current(self, origin: str = "") -> str:
        """Return the lineage to resume: the newest that has not ended, or a new one.

        A lineage without a manifest is resumed too: if its driver only seems dead, one of the two must lose the first
        publish. `origin` is the savepoint that the job starts from; only a lineage that started from it is then
        resumed. A job that was killed and is restarted with the same savepoint therefore continues.
        """
        while True:
            names = self._names()
            self._sweep(names)
            newest = max((_number(name) for name in names), default=0)
            record = _record(newest)
            if record in names and not _ended(record, names):
                # It might have ended and been removed since.
                with suppress(MissingObject):
                    lineage = self._root.read(record).decode()
                    if not origin or lineage.endswith(_FROM + origin):
                        self._records[lineage] = record
                        return lineage
                if not origin:
                    continue
            lineage, record = new_lineage() + (origin and _FROM + origin), _record(newest + 1)
            with suppress(AlreadyPublished):
                self._root.publish(record, lineage.encode())
                self._records[lineage] = record
                return lineage

    def check_begun(self) -> None:
        """Raise MissingCheckpoints if no driver has ever used this directory, although the job has run."""
        if not self._names():
            raise MissingCheckpoints(
                f"The job has run before, but its checkpoints in {self._root.where} are gone.",
                fix="Check whether the directory is mounted, or restore it from a backup. To start from scratch, "
                "submit the program as a new job.",
            )

    def goes_on_from(self, origin: str) -> bool:
        """Return whether `current` would resume a lineage that started from this savepoint."""
        return self.unfinished(origin) is not None

    def unfinished(self, origin: str = "") -> str | None:
        """Return the lineage that `current` would resume, or None if it would create one. Changes nothing."""
        names = self._names()
        record = _newest(names)
        if record not in names or _ended(record, names):
            return None
        try:
            lineage = self._root.read(record).decode()
        except MissingObject:
            return None
        return lineage if not origin or lineage.endswith(_FROM + origin) else None

    def storage_of(self, lineage: str) -> SharedStorage:
        return self._root.below(lineage)

    def newest(self) -> str | None:
        """Return the lineage of the last run, ended or not, unless it is removed."""
        names = self._names()
        record = _newest(names)
        return self._root.read(record).decode() if record in names and record + _REMOVED not in names else None

    def end(self, lineage: str, *, last: int, retain: bool) -> None:
        """Mark a lineage as ended, which prevents resuming it, and delete its objects unless `retain` is set.

        `last` is the caller's last checkpoint. If a later one exists, another driver is running the job and owns the
        lineage: nothing is done. A lineage that `current` did not return has no record and is only deleted.
        """
        if self.storage_of(lineage).exists(manifest_name(last + 1)):
            return
        record = self._records.get(lineage)
        if record is not None:
            # The mark comes first: a partly deleted lineage must not be resumed.
            self._root.write(record + (_RETAINED if retain else _REMOVED), b"")
            self._probe("marked")
        if not retain:
            self._remove(lineage)
            if record is not None:
                self._root.delete(record)
                _log.info("Removed the checkpoints of a finished job: %s.", self.storage_of(lineage).where)
        elif record is not None:
            _log.info("Kept the checkpoints of a finished job: %s.", self.storage_of(lineage).where)

    def _names(self) -> list[str]:
        # Ignore files of other programs.
        return [name for name in self._root.list(_FOLDER) if _OURS.fullmatch(name)]

    def _remove(self, lineage: str) -> None:
        # In this order: the remaining objects are harmless without manifests, but not the other way round.
        remove_manifests(self.storage_of(lineage))
        self._root.delete_below(lineage)

    def _sweep(self, names: list[str]) -> None:
        """Complete removals that drivers did not finish before they died."""
        newest = max((_number(name) for name in names), default=0)
        for mark in [name for name in names if name.endswith(_REMOVED)]:
            record = mark.removesuffix(_REMOVED)
            if record in names:
                with suppress(MissingObject):
                    lineage = self._root.read(record).decode()
                    self._remove(lineage)
                    where = self.storage_of(lineage).where
                    _log.info("Completed the removal of the checkpoints of a finished job: %s.", where)
                self._root.delete(record)
            if _number(mark) < newest:
                self._root.delete(mark)


def new_lineage() -> str:
    """Return a unique name that sorts by time."""
    return f"{now_ms():015d}-{uuid.uuid4().hex[:8]}"


def _record(number: int) -> str:
    return f"{_FOLDER}{number:012d}"


def _newest(names: list[str]) -> str:
    """Return the record with the highest number, even if only its mark exists."""
    return _record(max(map(_number, names), default=0))


def _number(name: str) -> int:
    return int(name.removeprefix(_FOLDER).partition(".")[0])


def _ended(record: str, names: list[str]) -> bool:
    return record + _RETAINED in names or record + _REMOVED in names
