"""FileSource: the files below some paths, each read once, whole, in one epoch.

Files must appear whole, by a rename, and must not change afterwards: what an epoch reads it may have to read again.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.common.time import Duration, Time, to_millis
from penstock.connectors.dead_letters import DeadLetter
from penstock.connectors.files.filesystem import is_hidden, local_path
from penstock.connectors.files.formats import BulkFormat, FileFormat, StreamFormat
from penstock.connectors.files.input_file import BrokenContents, InputFile, UnreadableFile, gone
from penstock.connectors.source import Positions, Source
from penstock.errors import PenstockError


class FileEnumeratorProvider:
    """How files are found. There is one way: all below the paths that are not hidden, each read whole."""

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        return FileEnumeratorProvider()

    @staticmethod
    def default_splittable_file_enumerator() -> FileEnumeratorProvider:
        raise PenstockError(
            "Files are not split here: each is read whole by one task. Leave set_file_enumerator out, and for more "
            "parallelism write more and smaller files."
        )


class FileSplitAssignerProvider:
    """Which task reads which file. Spark decides, and prefers hosts that have the file."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        return FileSplitAssignerProvider()


class FileSource(Source):
    """Made by `for_record_stream_format` or `for_bulk_file_format`. A split is a file, by its path.

    A position is [length, modification time in ms] of the file as it was planned, or None while it is not read.
    """

    why = "the checkpoint knows which files were read, and a file that has changed since it was found is refused"
    not_throttled = "Spark finds its files, and set_max_files_per_epoch is fixed when the job starts"

    def __init__(
        self,
        file_format: FileFormat,
        paths: tuple[str, ...],
        discovery_interval_ms: int | None,
        max_files_per_epoch: int | None,
    ) -> None:
        self.format = file_format
        self.paths = list(paths)
        """As they were given."""
        self.bounded = discovery_interval_ms is None
        self.discovery_interval_ms = discovery_interval_ms
        self.max_files_per_epoch = max_files_per_epoch
        self.local_paths = [local_path(path, "FileSource") for path in paths]
        """Absolute: relative ones are taken from where the program is, not from where its tasks will be."""
        for path in paths:
            if "{" in path:
                raise PenstockError(
                    f"FileSource: '{path}' has braces. Patterns are * ? [...]; give several paths instead."
                )

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> FileSourceBuilder:
        if not isinstance(stream_format, StreamFormat):
            raise PenstockError(f"for_record_stream_format needs a StreamFormat, not {type(stream_format).__name__}.")
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str) -> FileSourceBuilder:
        if not isinstance(bulk_format, BulkFormat):
            raise PenstockError(f"for_bulk_file_format needs a BulkFormat, not {type(bulk_format).__name__}.")
        return FileSourceBuilder(bulk_format, paths)

    def check(self) -> None:
        """Raises if there is nothing at a path of a bounded source. One that goes on waits for it."""
        if self.bounded:
            for given, path in zip(self.paths, self.local_paths):
                if not _matches(path):
                    raise PenstockError(
                        f"FileSource: there is nothing at '{given}' ({path}). Correct the path, or let the source "
                        f"wait for it: monitor_continuously(Duration.of_seconds(10))."
                    )

    def start(self, parallelism: int) -> Positions:
        """A bounded source reads what is there when the job starts."""
        return dict.fromkeys(self._list()) if self.bounded else {}

    def advance(self, positions: Positions, limit: int | None) -> Positions:
        """`limit` is not obeyed: how many records a file has is known when it has been read."""
        new = [path for path in (positions if self.bounded else self._list()) if positions.get(path) is None]
        return positions | {path: _facts(path) for path in new[: self.max_files_per_epoch]}

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        """`split` is a path, or a path as Spark writes it; `end` is [length, modification time in ms]."""
        path = local_path(split, "FileSource")
        box = self.letter_box()

        def unreadable(position: str, raw: bytes | str, reason: str | Exception) -> DeadLetter:
            # Half of a file that is being written would be told as broken.
            _check_unchanged(path, end, "has changed while it was read")
            return box.letter(path, position, raw, reason)

        try:
            _check_unchanged(path, end, "has changed since it was planned to be read")
            try:
                yield from self.format.read(InputFile(path, unreadable, lenient=not box.wanted))
            except BrokenContents as broken:
                yield unreadable(broken.position, broken.raw, broken.reason)
            _check_unchanged(path, end, "has changed while it was read")
        except UnreadableFile as error:
            raise UnreadableFile(f"{box.who}: {error.problem}", fix=error.fix) from error

    def ends(self, split: str, position: Any) -> bool:
        """A file is read whole."""
        return True

    def _list(self) -> list[str]:
        """All files by age, then by name, each once."""
        found = {}
        for path in self.local_paths:
            for match in _matches(path):
                for file in _files(match):
                    try:
                        found[file] = os.stat(file).st_mtime_ns // 1_000_000
                    except FileNotFoundError:
                        # Taken away while we looked.
                        continue
        return sorted(found, key=lambda file: (found[file], file))


class FileSourceBuilder:
    def __init__(self, file_format: FileFormat, paths: tuple[str, ...]) -> None:
        if not paths:
            raise PenstockError("FileSource needs at least one path.")
        self._format = file_format
        self._paths = tuple(os.fspath(path) for path in paths)
        self._interval: int | None = None
        self._max_files: int | None = None

    def monitor_continuously(self, discovery_interval: Duration | Time | timedelta | int) -> FileSourceBuilder:
        """Go on for ever, reading files as they appear."""
        interval = to_millis(discovery_interval)
        if interval < 1:
            raise PenstockError(f"monitor_continuously needs an interval above 0, not {discovery_interval!r}.")
        self._interval = interval
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files there are when the job starts, then end: the default."""
        self._interval = None
        return self

    def set_max_files_per_epoch(self, files: int) -> FileSourceBuilder:
        """At most so many files are read in one epoch."""
        if type(files) is not int or files < 1:
            raise PenstockError(f"set_max_files_per_epoch needs a whole number above 0, not {files!r}.")
        self._max_files = files
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder:
        if not isinstance(file_enumerator, FileEnumeratorProvider):
            raise PenstockError(
                "set_file_enumerator takes FileEnumeratorProvider.default_non_splittable_file_enumerator()."
            )
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder:
        if not isinstance(split_assigner, FileSplitAssignerProvider):
            raise PenstockError("set_split_assigner takes FileSplitAssignerProvider.locality_aware_split_assigner().")
        return self

    def build(self) -> FileSource:
        source = FileSource(self._format, self._paths, self._interval, self._max_files)
        source.check()
        return source


def _matches(path: str) -> list[str]:
    """What a path or pattern stands for: `*`, `?` and `[...]` as in a shell."""
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
        what.append(f"it had {planned[0]:,} bytes, now {size:,}")
    if modified != planned[1]:
        what.append(f"it was modified at {_clock(modified)}, before at {_clock(planned[1])}")
    raise UnreadableFile(
        f"The file {path} {changed}: {', and '.join(what)}. Nothing of this epoch is kept.",
        fix="Write a file under a name that begins with '.' or '_', or elsewhere, and rename it when it is complete.",
    )


def _clock(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "milliseconds")
