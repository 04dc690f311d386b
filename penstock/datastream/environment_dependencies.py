"""Environment methods that add Python dependencies."""

from __future__ import annotations

import re
from collections.abc import Iterable

from penstock.common.without_effect import note
from penstock.datastream.dependencies import (
    Dependencies,
    cached_file,
    python_archive,
    python_file,
    python_requirements,
)

_FLINKS_JAR = re.compile(r"(.*/)?(flink-[\w.-]+|kafka-clients-[\w.-]+)\.jar")


def without_flinks_jars(method: str, paths: Iterable[str]) -> list[str]:
    """Return the archives that are not Flink's connectors or formats, which have no use here and need not exist."""
    kept = []
    for path in map(str.strip, paths):
        if _FLINKS_JAR.fullmatch(path):
            note(f"{method}({path.rpartition('/')[2]})", "connectors and formats are Python packages")
        elif path:
            kept.append(path)
    return kept


class EnvironmentDependencies:
    """The methods of ``StreamExecutionEnvironment`` that ship modules, archives and packages to the workers."""

    _dependencies = Dependencies()

    def add_python_file(self, file_path: str) -> None:
        """Ship a Python module or package to the workers, which can then import it.

        Args:
            file_path: The path of a ``.py``, ``.zip``, ``.egg`` or ``.whl`` file, or of a folder of modules.

        Raises:
            BadSetting: If the path does not exist.
        """
        path = python_file("add_python_file", file_path)
        self._dependencies = self._dependencies.and_those_of(Dependencies(files=(path,)))

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Ship an archive to the workers, which unpack it. Functions find it with ``SparkFiles.get(target_dir)``.

        Args:
            archive_path: The path of a ``.zip``, ``.tar``, ``.tar.gz``, ``.tgz`` or ``.jar`` file.
            target_dir: The name of the unpacked folder. By default it is the name of the file.

        Raises:
            BadSetting: If the file does not exist, or has another suffix.
        """
        archive = python_archive("add_python_archive", archive_path, target_dir or "")
        self._dependencies = self._dependencies.and_those_of(Dependencies(archives=(archive,)))

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Ship a file or a folder to the workers. Functions find it with ``SparkFiles.get(name)``.

        Args:
            file_path: A local path or ``file:`` URI.
            name: The name under which functions find it.
            executable: Whether workers can execute the file.

        Raises:
            BadSetting: If the path does not exist, or the name is not a plain file name.
        """
        cached = cached_file("register_cached_file", file_path, name, executable)
        self._dependencies = self._dependencies.and_those_of(Dependencies(cached=(cached,)))

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Install packages when the job starts, and ship them to the workers. pip installs wheels only.

        Args:
            requirements_file_path: The path of a requirements file.
            requirements_cache_dir: A folder of wheels to install from. By default pip uses its index.

        Raises:
            BadSetting: If the file or the folder does not exist.
        """
        requirements = python_requirements(
            "set_python_requirements", requirements_file_path, requirements_cache_dir or ""
        )
        self._dependencies = self._dependencies.and_those_of(Dependencies(requirements=requirements))
