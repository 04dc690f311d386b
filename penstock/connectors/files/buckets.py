"""Bucket assignment: the directory below the base path that receives a record."""

from __future__ import annotations

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.connectors.files.filesystem import is_hidden
from penstock.errors import PenstockError


class BucketContext:
    """Context passed to ``get_bucket_id``. All records share one object."""

    now = 0

    def current_processing_time(self) -> int:
        """Return the epoch's processing time in milliseconds: the same for all its records, also on a replay."""
        return self.now


class BucketAssigner(ABC):
    """Chooses the bucket of each record. Subclass it, or pass the sink a function of ``(value, context)``.

    It must not read any clock except the context's: a replayed epoch must fill the same buckets.
    """

    @abstractmethod
    def get_bucket_id(self, value: Any, context: BucketContext) -> str:
        """Return the bucket as a relative path such as ``day=2024-05-01/de``, or "" for the base path itself."""

    def bucket_of_epoch(self, now: int) -> str | None:
        """Return the bucket shared by all records of an epoch; None to call ``get_bucket_id`` for each record."""
        return None

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Return an assigner that writes all files to the base path, without buckets."""
        return _BasePath()

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """Return an assigner that names buckets after the epoch's processing time.

        Args:
            format_str: A ``DateTimeFormatter`` pattern of Java.
            timezone_id: Time zone; defaults to the driver's.
        """
        return _DateTime(format_str, timezone_id)


class _BasePath(BucketAssigner):
    def get_bucket_id(self, value: Any, context: BucketContext) -> str:
        return ""

    def bucket_of_epoch(self, now: int) -> str | None:
        return ""


class _DateTime(BucketAssigner):
    def __init__(self, pattern: str, zone: str | None) -> None:
        self._pieces = _pieces(pattern)
        # Resolved in the driver, because the task hosts can be in other time zones.
        self._zone = _local_zone() if zone is None else _zone(zone)
        check_bucket(self.bucket_of_epoch(0), "date_time_bucket_assigner")

    def get_bucket_id(self, value: Any, context: BucketContext) -> str:
        return self.bucket_of_epoch(context.now)

    def bucket_of_epoch(self, now: int) -> str:
        moment = datetime.fromtimestamp(now // 1000, UTC).astimezone(self._zone).replace(microsecond=now % 1000 * 1000)
        return "".join(_FIELDS[piece](moment) if is_field else piece for is_field, piece in self._pieces)


class FunctionAssigner(BucketAssigner):
    """Assigner that calls a function of (value, context)."""

    def __init__(self, function: Callable[[Any, BucketContext], str]) -> None:
        self._function = function

    def get_bucket_id(self, value: Any, context: BucketContext) -> str:
        return self._function(value, context)


_FIELDS: dict[str, Callable[[datetime], str]] = {
    "yyyy": lambda moment: f"{moment.year:04}",
    "MM": lambda moment: f"{moment.month:02}",
    "dd": lambda moment: f"{moment.day:02}",
    "HH": lambda moment: f"{moment.hour:02}",
    "mm": lambda moment: f"{moment.minute:02}",
    "ss": lambda moment: f"{moment.second:02}",
    "SSS": lambda moment: f"{moment.microsecond // 1000:03}",
}
_PIECE = re.compile(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|([^A-Za-z']+)")


def _pieces(pattern: str) -> list[tuple[bool, str]]:
    """Split a pattern of Java's DateTimeFormatter into (is a field, text) pairs."""
    pieces, place = [], 0
    while place < len(pattern):
        found = _PIECE.match(pattern, place)
        if found is None:
            raise PenstockError(f"date_time_bucket_assigner: '{pattern}' has an unclosed quote.")
        quoted, letters, _, other = found.groups()
        if letters is not None and letters not in _FIELDS:
            raise PenstockError(
                f"date_time_bucket_assigner: '{letters}' in '{pattern}' is not supported. The supported fields are "
                f"{', '.join(_FIELDS)}; quote other letters: 'day='yyyy-MM-dd."
            )
        text = letters or other or (quoted.replace("''", "'") or "'")
        pieces.append((letters is not None, text))
        place = found.end()
    return pieces


_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")


def _zone(name: str) -> tzinfo:
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        length = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-length if offset[1] == "-" else length)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PenstockError(
            f"date_time_bucket_assigner: unknown time zone '{name}'. Use a name such as Europe/Paris, or an "
            f"offset such as GMT-08:00."
        ) from error


def _local_zone() -> tzinfo:
    """Return the driver's named time zone, or a fixed zone of its current offset if it has no name."""
    for name in (os.environ.get("TZ", ""), os.path.realpath("/etc/localtime").rpartition("/zoneinfo/")[2]):
        try:
            return ZoneInfo(name.removeprefix(":"))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return timezone(timedelta(seconds=time.localtime().tm_gmtoff))


def check_bucket(bucket: Any, whose: str) -> str:
    """Return `bucket` if it names a directory below the base path that readers do not skip; raise otherwise."""
    if isinstance(bucket, str):
        steps = bucket.split("/") if bucket else []
        if all(step and "\0" not in step and not is_hidden(step) for step in steps):
            return bucket
    raise PenstockError(
        f"{whose}: the bucket id {bucket!r} does not name a directory below the base path. It must be a relative path "
        f"such as 'day=2024-05-01' or 'de/berlin', without '..' or empty steps. No step can begin with '.' or '_', "
        f"because readers skip those."
    )
