"""Files that a running Spark application ships to its workers."""

from __future__ import annotations

from pathlib import Path
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.sql import SparkSession

_shipped: WeakKeyDictionary[SparkContext, set[str]] = WeakKeyDictionary()
"""The paths that each application has. Several jobs can share one application."""


class Shipment:
    """Adds files to an application. Files that it already has are not added again."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._has = _shipped.setdefault(self._context, set())

    @property
    def same_machine(self) -> bool:
        """Whether all workers run on the driver's machine and inherit its import path."""
        return str(self._context.master).startswith("local")

    def add_python_file(self, path: Path) -> None:
        """Let workers import a module, or the modules of a zip file."""
        if self._is_new(str(path)):
            self._context.addPyFile(str(path))

    def add_python_folder(self, archive: Path) -> None:
        """Let workers import from an unpacked zip file. Unlike a zip file, a folder can contain native code."""
        if self._is_new(str(archive)):
            folder = archive.stem
            self._context.addArchive(f"{archive.as_uri()}#{folder}")
            # As addPyFile does for zip files: workers add these names, relative to Spark's files, to their path.
            includes = self._context._python_includes
            assert includes is not None
            includes.append(folder)

    def add_file(self, path: Path) -> None:
        """Let workers read a file or folder under its name."""
        if self._is_new(str(path)):
            self._context.addFile(str(path), recursive=path.is_dir())

    def add_archive(self, uri: str) -> None:
        """Unpack an archive for workers, into the folder that the URI names after `#`."""
        if self._is_new(uri):
            self._context.addArchive(uri)

    def _is_new(self, name: str) -> bool:
        new = name not in self._has
        self._has.add(name)
        return new
