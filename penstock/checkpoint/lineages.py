"""The lineages of one job: which to go on with, and how one ends.

    lineages/000000000007            published once, holds the lineage's name
    lineages/000000000007.retained   it has ended and its checkpoints stay
    lineages/000000000007.removed    it has ended and is deleted, or will be by the next driver
    001700000000000-5f3a9c01/…       a lineage's own objects

Only the lineage with the highest number is ever gone on with, and only while it has not ended. Drivers that start at
the same moment publish the same number, so they get the same lineage, and the first manifest has one winner. A number
is not used again: its record or its mark stays until a higher one is there. The name of a lineage that began with a
savepoint ends in `-from-` and a hash of the savepoint's path.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from contextlib import suppress

from penstock.checkpoint.fencing import remove_manifests
from penstock.checkpoint.manifest import manifest_name
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage
from penstock.state.storage import AlreadyPublished, MissingObject

SharedStorage = LocalStorage | ObjectStorage
"""What drivers and tasks of several processes reach."""

_log = logging.getLogger(__name__)

_FOLDER = "lineages/"
_FROM = "-from-"
_RETAINED, _REMOVED = ".retained", ".removed"
_OURS = re.compile(r"lineages/\d{12}(\.retained|\.removed)?")


class Lineages:
    """Those of the job whose checkpoints are in `root`. One driver has one object of this class."""

    def __init__(self, root: SharedStorage) -> None:
        self._root = root
        self._records: dict[str, str] = {}
        """The record of each lineage that `current` gave."""

    def current(self, origin: str = "") -> str:
        """The lineage to go on with: the newest that has not ended, or a new one.

        Even one without a manifest: if its driver only seems dead, one of the two must lose the first publish.
        `origin`: the savepoint that the job is to begin with. Then only a lineage that began with it is gone on with:
        a job that was killed, and is started again with the same savepoint, does not begin again.
        """
        while True:
            names = self._names()
            self._sweep(names)
            newest = max((_number(name) for name in names), default=0)
            record = _record(newest)
            if record in names and not _ended(record, names):
                # It may have ended since, and be gone.
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

    def goes_on_from(self, origin: str) -> bool:
        """Whether `current` would give a lineage that began with this savepoint, and not a new one."""
        return self.unfinished(origin) is not None

    def unfinished(self, origin: str = "") -> str | None:
        """The lineage that `current` would go on with; None if it would begin one. Changes nothing."""
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
        """The lineage of the last run, ended or not, unless it is removed."""
        names = self._names()
        record = _newest(names)
        return self._root.read(record).decode() if record in names and record + _REMOVED not in names else None

    def end(self, lineage: str, *, last: int, retain: bool) -> None:
        """Nobody goes on with this lineage any more; unless it is to be kept, delete its objects.

        `last` is the caller's last checkpoint. If there is a later one, another driver carries the job on, and the
        lineage is that one's: nothing is done. A lineage that `current` did not give has no record: it is only deleted.
        """
        if self.storage_of(lineage).exists(manifest_name(last + 1)):
            return
        record = self._records.get(lineage)
        if record is not None:
            # The mark comes first: of what is half deleted nobody must want to go on.
            self._root.write(record + (_RETAINED if retain else _REMOVED), b"")
        if not retain:
            self._remove(lineage)
            if record is not None:
                self._root.delete(record)
                _log.info("Removed the checkpoints of a job that is over: %s.", self.storage_of(lineage).where)
        elif record is not None:
            _log.info("Kept the checkpoints of a job that is over: %s.", self.storage_of(lineage).where)

    def _names(self) -> list[str]:
        # What other programs left there is none of ours.
        return [name for name in self._root.list(_FOLDER) if _OURS.fullmatch(name)]

    def _remove(self, lineage: str) -> None:
        # Without manifests the rest is plain leftovers; without the rest a manifest would name what is missing.
        remove_manifests(self.storage_of(lineage))
        self._root.delete_below(lineage)

    def _sweep(self, names: list[str]) -> None:
        """Finish what drivers that died while they removed a lineage left undone."""
        newest = max((_number(name) for name in names), default=0)
        for mark in [name for name in names if name.endswith(_REMOVED)]:
            record = mark.removesuffix(_REMOVED)
            if record in names:
                with suppress(MissingObject):
                    lineage = self._root.read(record).decode()
                    self._remove(lineage)
                    where = self.storage_of(lineage).where
                    _log.info("Removed what a driver left of the checkpoints of a job that is over: %s.", where)
                self._root.delete(record)
            if _number(mark) < newest:
                self._root.delete(mark)


def new_lineage() -> str:
    """A name of its own, in the order of time."""
    return f"{int(time.time() * 1000):015d}-{uuid.uuid4().hex[:8]}"


def _record(number: int) -> str:
    return f"{_FOLDER}{number:012d}"


def _newest(names: list[str]) -> str:
    """The record with the highest number, whether it is there or only a mark of it."""
    return _record(max(map(_number, names), default=0))


def _number(name: str) -> int:
    return int(name.removeprefix(_FOLDER).partition(".")[0])


def _ended(record: str, names: list[str]) -> bool:
    return record + _RETAINED in names or record + _REMOVED in names
