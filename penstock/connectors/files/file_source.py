"""FileSource: reads all files below some paths, each once, completely and in one epoch.

Move complete files into place with a rename, and do not change them afterwards: a replayed epoch reads them again.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.common.time import Duration, Time, to_millis
from penstock.common.tuning import accept
from penstock.connectors.dead_letters import DeadLetter
from penstock.connectors.files.filesystem import is_hidden, local_path
from penstock.connectors.files.formats import BulkFormat, FileFormat, StreamFormat
from penstock.connectors.files.input_file import BrokenContents, InputFile, UnreadableFile, gone
from penstock.connectors.source import Positions, Source
from penstock.errors import PenstockError


class FileEnumeratorProvider:
    """File discovery. The only mode reads all files below the paths that are not hidden, each by one task."""

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Return the enumerator that does not split files, the default."""
        return FileEnumeratorProvider()

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Return an enumerator that splits large files in Flink. It has no effect: one task reads each file."""
        accept("FileEnumeratorProvider.default_splittable_file_enumerator")
        return FileEnumeratorProvider()


class FileSplitAssignerProvider:
    """Assignment of files to tasks. Spark decides, and prefers hosts that store the file."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        """Return the only supported assigner, the default."""
        return FileSplitAssignerProvider()


class FileSource(Source):
    """Read files as a stream. A split is a file, identified by its path.

    Create one with ``for_record_stream_format`` or ``for_bulk_file_format``. A position is [length, modification time
    in ms] of the file when it was planned, or None before that.
    """

    why = "the checkpoint lists the files that were read, and it refuses a file that has changed since it was found"
    not_throttled = "Spark lists its files, and set_max_files_per_epoch is fixed when the job starts"

    def __init__(
        self,
        file_format: FileFormat,
        paths: tuple[str, ...],
        discovery_interval_ms: int | None,
        max_files_per_epoch: int | None,
    ) -> None:
        self.format = file_format
        self.paths = list(paths)
        """The paths as the user wrote them."""
        self.bounded = discovery_interval_ms is None
        self.discovery_interval_ms = discovery_interval_ms
        self.max_files_per_epoch = max_files_per_epoch
        self.local_paths = [local_path(path, "FileSource") for path in paths]
        """Absolute paths: relative paths refer to the working directory of the program, not of its tasks."""
        for path in paths:
            if "{" in path:
                raise PenstockError(
                    f"FileSource: '{path}' contains braces. Use the patterns * ? [...], or pass several paths."
                )

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> FileSourceBuilder:
        """Return a builder of a source that reads files from start to end, such as lines of text.

        Args:
            stream_format: The file format, for example ``StreamFormat.text_line_format()``.
            *paths: Files, directories or glob patterns.
        """
        if not isinstance(stream_format, StreamFormat):
            raise PenstockError(f"for_record_stream_format needs a StreamFormat, not {type(stream_format).__name__}.")
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str) -> FileSourceBuilder:
        """Return a builder of a source for a bulk format, such as Parquet.

        Args:
            bulk_format: The file format, for example ``BulkFormat.parquet()``.
            *paths: Files, directories or glob patterns.
        """
        if not isinstance(bulk_format, BulkFormat):
            raise PenstockError(f"for_bulk_file_format needs a BulkFormat, not {type(bulk_format).__name__}.")
        return FileSourceBuilder(bulk_format, paths)

    def check(self) -> None:
        """Raise if a path of a bounded source matches no file. An unbounded source waits for files."""
        if self.bounded:
            for given, path in zip(self.paths, self.local_paths):
                if not _matches(path):
                    raise PenstockError(
                        f"FileSource: no file matches '{given}' ({path}). Correct the path, or let the source "
                        f"wait for files: monitor_continuously(Duration.of_seconds(10))."
                    )

    def start(self, parallelism: int) -> Positions:
        """Return the files that exist at job start if the source is bounded."""
        return dict.fromkeys(self._list()) if self.bounded else {}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        """Return the positions after the next files. ``limit`` is ignored: record counts are unknown before reading."""
        new = [path for path in (positions if self.bounded else self._list()) if positions.get(path) is None]
        return positions | {path: _facts(path) for path in new[: self.max_files_per_epoch]}

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        """Yield the records of a file. ``split`` is a path or a Spark file URI; ``end`` is [length, mtime in ms]."""
        path = local_path(split, "FileSource")
        box = self.letter_box()

        def unreadable(position: str, raw: bytes | str, reason: str | Exception) -> DeadLetter:
            # Do not report a file as broken if it is still being written.
            _check_unchanged(path, end, "changed while it was being read")
            return box.letter(path, position, raw, reason)

        try:
            _check_unchanged(path, end, "changed after it was planned")
            try:
                yield from self.format.read(InputFile(path, unreadable, lenient=not box.wanted))
            except BrokenContents as broken:
                yield unreadable(broken.position, broken.raw, broken.reason)
            _check_unchanged(path, end, "changed while it was being read")
        except UnreadableFile as error:
            raise UnreadableFile(f"{box.who}: {error.problem}", fix=error.fix) from error

    def ends(self, split: str, position: Any) -> bool:
        """Return True: one epoch reads a complete file."""
        return True

    def _list(self) -> list[str]:
        """Return all files, each once, ordered by modification time and then by name."""
        found = {}
        for path in self.local_paths:
            for match in _matches(path):
                for file in _files(match):
                    try:
                        found[file] = os.stat(file).st_mtime_ns // 1_000_000
                    except FileNotFoundError:
                        # Deleted during the listing.
                        continue
        return sorted(found, key=lambda file: (found[file], file))


class FileSourceBuilder:
    """Builder of a ``FileSource``."""

    def __init__(self, file_format: FileFormat, paths: tuple[str, ...]) -> None:
        if not paths:
            raise PenstockError("FileSource needs at least one path.")
        self._format = file_format
        self._paths = tuple(os.fspath(path) for path in paths)
        self._interval: int | None = None
        self._max_files: int | None = None

    def monitor_continuously(self, discovery_interval: Duration | Time | timedelta | int) -> FileSourceBuilder:
        """Make the source unbounded: keep reading files as they appear."""
        interval = to_millis(discovery_interval)
        if interval < 1:
            raise PenstockError(f"monitor_continuously needs a positive interval, not {discovery_interval!r}.")
        self._interval = interval
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that exist when the job starts, then end. This is the default."""
        self._interval = None
        return self

    def set_max_files_per_epoch(self, files: int) -> FileSourceBuilder:
        """Limit the number of files that one epoch reads."""
        if type(files) is not int or files < 1:
            raise PenstockError(f"set_max_files_per_epoch needs a positive int, not {files!r}.")
        self._max_files = files
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        """Accept Flink's setting without effect: one task reads each file."""
        if not isinstance(file_enumerator, FileEnumeratorProvider):
            raise PenstockError(f"set_file_enumerator needs a FileEnumeratorProvider, not {file_enumerator!r}.")
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        """Accept Flink's setting; only the default is supported."""
        if not isinstance(split_assigner, FileSplitAssignerProvider):
            raise PenstockError(
                "set_split_assigner accepts only FileSplitAssignerProvider.locality_aware_split_assigner()."
            )
        return self

    def build(self) -> FileSource:
        """Return the source. Raises if it is bounded and a path matches no file."""
        source = FileSource(self._format, self._paths, self._interval, self._max_files)
        source.check()
        return source


def _matches(path: str) -> list[str]:
    """Return the files and directories that a path or shell pattern (`*`, `?`, `[...]`) matches."""
    return [path] if os.path.exists(path) else sorted(glob.glob(path))


def _files(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    for directory, inner, names in os.walk(path):
        inner[:] = [name for name in inner if not is_hidden(name)]
        for name in names:
            if not is_hidden(name):
                yield os.path.join(directory, name)


def _facts(path: str) -> list[int]:
    try:
        found = os.stat(path)
    except FileNotFoundError as error:
        raise gone(path) from error
    except OSError as error:
        raise UnreadableFile(f"The file {path} cannot be read: {error}.") from error
    return [found.st_size, found.st_mtime_ns // 1_000_000]


def _check_unchanged(path: str, planned: list[int], changed: str) -> None:
    size, modified = _facts(path)
    if [size, modified] == list(planned):
        return
    what = []
    if size != planned[0]:
        what.append(f"its size was {planned[0]:,} bytes and is now {size:,}")
    if modified != planned[1]:
        what.append(f"its modification time was {_clock(planned[1])} and is now {_clock(modified)}")
    raise UnreadableFile(
        f"The file {path} {changed}: {', and '.join(what)}. The epoch is discarded.",
        fix="Write files under a name that begins with '.' or '_', or elsewhere, and rename them when complete.",
    )


def _clock(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "milliseconds")
