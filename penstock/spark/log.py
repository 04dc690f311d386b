"""Spark's own log of a query: a cache of what the manifests say, rewritten from them before a query starts.

Spark does not fsync its log, and a lost entry would let it cut another epoch of the same number. So each manifest
carries the files that appeared with its epoch, and at the start the log is made to agree with the last manifest.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from penstock.checkpoint.manifest import Manifest

_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


class SparkLog:
    """The directory given to a query as its checkpoint location. Lives on the driver's own disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: set[str] = set()

    def appeared(self, batch: int) -> dict[str, bytes]:
        """The files of this batch that no manifest holds yet. Called inside the batch, when Spark has logged it."""
        paths = [f"offsets/{batch}", *self._source_files()]
        found = {path: (self.root / path).read_bytes() for path in paths if path not in self._known}
        return found

    def published(self, files: dict[str, bytes]) -> None:
        """These files are in a manifest now."""
        self._known.update(files)

    def rewrite(self, last: Manifest | None, parent_of: Callable[[Manifest], Manifest | None]) -> None:
        """Make the log say what the manifests up to `last` say, and nothing more."""
        wanted: dict[str, bytes] = {}
        batches: list[int] = []
        compacted: set[str] = set()
        manifest = last
        while manifest is not None:
            if manifest.batch is not None:
                batches.append(manifest.batch)
            for path, data in manifest.spark_log.items():
                source = path.rsplit("/", 1)[0]
                if source not in compacted:
                    wanted.setdefault(path, data)
            compacted.update(path.rsplit("/", 1)[0] for path in manifest.spark_log if path.endswith(".compact"))
            manifest = parent_of(manifest)
        for batch in batches:
            wanted[f"commits/{batch}"] = _COMMIT
        for folder in ("offsets", "commits", "sources", "state"):
            shutil.rmtree(self.root / folder, ignore_errors=True)
        for path, data in wanted.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        metadata = self.root / "metadata"
        if wanted and not metadata.exists():
            # Spark refuses a log without it; the id is that of the query, new like the query itself.
            metadata.write_text(json.dumps({"id": str(uuid.uuid4())}))
        self._known = {path for path in wanted if not path.startswith("commits/")}

    def _source_files(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.root))
            for path in (self.root / "sources").glob("*/*")
            if path.is_file() and not path.name.startswith(".")
        )
