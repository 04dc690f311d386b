"""Environment methods that add Python dependencies."""

from __future__ import annotations

from penstock.datastream.dependencies import Dependencies, python_archive, python_file, python_requirements


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
