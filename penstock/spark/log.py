"""Spark's log of a query: a cache of the manifests' contents, rebuilt from them before a query starts.

Spark does not fsync its log. After the loss of an entry, Spark would create a different epoch with the same number.
Each manifest therefore contains the files that appeared with its epoch, and an index of the other files that a restart
needs.
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.checkpoint.manifest import BadManifest, Manifest
from penstock.savepoint.validation import LOG_FILE

_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'
_OWN = b"penstock-driver:"
"""Placeholder in manifests for the directory that each driver has for itself."""
_OFFSETS_KEPT = 2
"""Spark reads the last two entries of `offsets`."""


class SparkLog:
    """The directory that is a query's checkpoint location. It is on the driver's disk and serves one query."""

    def __init__(self, root: Path, own: Path | None = None) -> None:
        """`own` is a directory of this driver whose files the log names. Another driver substitutes its own."""
        self.root = root
        self._own = None if own is None else own.as_uri().encode()
        self._index: dict[str, int] = {}
        self._recorded: set[str] = set()
        """Files that a manifest holds and that still exist. Spark keeps old files for a while."""

    def appeared(self, batch: int) -> dict[str, bytes]:
        """Return this batch's files that no manifest holds yet. Called inside the batch, after Spark has logged it."""
        sources = self._source_files()
        self._recorded.intersection_update(sources)
        new = [path for path in [f"offsets/{batch}", *sources] if path not in self._recorded]
        return {path: self._read(path) for path in new}

    def index(self, number: int, files: dict[str, bytes]) -> dict[str, int]:
        """Return the manifest number for each file that a restart after checkpoint `number` needs, by path."""
        index = {**self._index, **dict.fromkeys(files, number)}
        return {path: where for path, where in index.items() if not _superseded(path, index)}

    def recorded(self, index: dict[str, int], files: Iterable[str]) -> None:
        """Record that a checkpoint is complete whose manifest holds this index and these files."""
        self._index = index
        self._recorded.update(files)

    def rewrite(self, last: Manifest | None, load: Callable[[int], Manifest]) -> None:
        """Rebuild the log to match the manifests up to `last` exactly."""
        shutil.rmtree(self.root, ignore_errors=True)
        self._index = {} if last is None else dict(last.log_index)
        self._recorded = set(self._index)
        holders = {number: load(number) for number in set(self._index.values())}
        for path, number in self._index.items():
            if LOG_FILE.fullmatch(path) is None:
                raise BadManifest(
                    f"Checkpoint {number} has a file {path!r}, which is not a valid name in Spark's log: Penstock did "
                    f"not write this checkpoint.",
                    fix="Start from another checkpoint or savepoint. Nothing was changed.",
                )
            self._write(path, holders[number].spark_log[path])
            folder, name = path.rsplit("/", 1)
            if folder == "offsets":
                self._write(f"commits/{name}", _COMMIT)
        if self._index:
            # Spark refuses a log without this file. The ID belongs to the query, so it is new.
            self._write("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())

    def offsets(self) -> list[str]:
        """Return the end offset of each source in the last logged batch; [] before the first batch."""
        numbers = [int(path.name) for path in (self.root / "offsets").glob("*") if path.name.isdigit()]
        # The first two lines are the version and the batch metadata.
        return (self.root / "offsets" / str(max(numbers))).read_text().split("\n")[2:] if numbers else []

    def _read(self, path: str) -> bytes:
        data = (self.root / path).read_bytes()
        return data if self._own is None else data.replace(self._own, _OWN)

    def _write(self, path: str, data: bytes) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data if self._own is None else data.replace(_OWN, self._own))

    def _source_files(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.root))
            for path in (self.root / "sources").glob("*/*")
            if path.is_file() and not path.name.startswith(".")
        )


def _superseded(path: str, index: dict[str, int]) -> bool:
    """Return whether later files make this one obsolete: old offsets, and source entries before a compaction."""
    folder = path.rsplit("/", 1)[0]
    number = _number(path)
    later = [other for other in index if other.rsplit("/", 1)[0] == folder and _number(other) > number]
    if folder == "offsets":
        return len(later) >= _OFFSETS_KEPT
    return any(other.endswith(".compact") for other in later)


def _number(path: str) -> int:
    match = re.match(r"\d+", path.rsplit("/", 1)[1])
    return int(match[0]) if match else -1
