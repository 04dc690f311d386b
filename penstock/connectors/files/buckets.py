"""Which directory below the base path a record goes to."""

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
    """Given with each record to `get_bucket_id`. One object for all records."""

    now = 0

    def current_processing_time(self) -> int:
        """The epoch's clock, in milliseconds: the same for all its records, also when it is run again."""
        return self.now


class BucketAssigner(ABC):
    """Subclass it, or give the sink a function of (value, context).

    It must not look at any other clock than the context's: an epoch that is run again must fill the same buckets.
    """

    @abstractmethod
    def get_bucket_id(self, value: Any, context: BucketContext) -> str:
        """A relative path such as `day=2024-05-01/de`; empty for the base path itself."""

    def bucket_of_epoch(self, now: int) -> str | None:
        """The bucket of every record of an epoch; None where each record has to be asked for."""
        return None

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """No buckets: everything goes to the base path."""
        return _BasePath()

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """By the epoch's clock, in the zone given or, without one, in that of the driver."""
        return _DateTime(format_str, timezone_id)


class _BasePath(BucketAssigner):
    def get_bucket_id(self, value: Any, context: BucketContext) -> str:
        return ""

    def bucket_of_epoch(self, now: int) -> str | None:
        return ""


class _DateTime(BucketAssigner):
    def __init__(self, pattern: str, zone: str | None) -> None:
        self._pieces = _pieces(pattern)
        # Found here and not in the tasks, whose hosts may be in other zones.
        self._zone = _local_zone() if zone is None else _zone(zone)
        check_bucket(self.bucket_of_epoch(0), "date_time_bucket_assigner")

    def get_bucket_id(self, value: Any, context: BucketContext) -> str:
        return self.bucket_of_epoch(context.now)

    def bucket_of_epoch(self, now: int) -> str:
        moment = datetime.fromtimestamp(now // 1000, UTC).astimezone(self._zone).replace(microsecond=now % 1000 * 1000)
        return "".join(_FIELDS[piece](moment) if is_field else piece for is_field, piece in self._pieces)


class FunctionAssigner(BucketAssigner):
    """A plain function of (value, context)."""

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
    """A pattern of Java's DateTimeFormatter as (is a field, text)."""
    pieces, place = [], 0
    while place < len(pattern):
        found = _PIECE.match(pattern, place)
        if found is None:
            raise PenstockError(f"date_time_bucket_assigner: '{pattern}' has a quote without an end.")
        quoted, letters, _, other = found.groups()
        if letters is not None and letters not in _FIELDS:
            raise PenstockError(
                f"date_time_bucket_assigner: '{letters}' in '{pattern}' is not understood. There are "
                f"{', '.join(_FIELDS)}; put other letters in quotes: 'day='yyyy-MM-dd."
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
            f"date_time_bucket_assigner: there is no time zone '{name}' here. Give a name such as Europe/Paris, or an "
            f"offset such as GMT-08:00."
        ) from error


def _local_zone() -> tzinfo:
    """The driver's zone with its rules where it has a name, else with the offset it has now."""
    for name in (os.environ.get("TZ", ""), os.path.realpath("/etc/localtime").rpartition("/zoneinfo/")[2]):
        try:
            return ZoneInfo(name.removeprefix(":"))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return timezone(timedelta(seconds=time.localtime().tm_gmtoff))


def check_bucket(bucket: Any, whose: str) -> str:
    """`bucket`, if it names a directory below the base path that readers do not skip."""
    if isinstance(bucket, str):
        steps = bucket.split("/") if bucket else []
        if all(step and "\0" not in step and not is_hidden(step) for step in steps):
            return bucket
    raise PenstockError(
        f"{whose}: the bucket id {bucket!r} is no directory below the base path. It must be a string such as "
        f"'day=2024-05-01' or 'de/berlin': relative, without '..' or empty steps, no step with '.' or '_' in front "
        f"(readers skip those)."
    )
