"""The Python dependencies of a job: modules, archives and requirements, and how they reach the driver and the workers.

Workers on this machine find the program's own folder through PYTHONPATH. Other hosts get an archive of it.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import invalidate_caches
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import quote

from penstock.common.configuration import Configuration
from penstock.common.local_paths import local_path
from penstock.common.options import BadSetting, canonical, surrounding_settings
from penstock.common.options.program import CACHED_FILES, PYTHON_ARCHIVES, PYTHON_FILES, PYTHON_REQUIREMENTS
from penstock.common.program_files import archive_of, extract, importable_files
from penstock.common.setting_types import Pairs, Truth, quoted_split
from penstock.common.source_locations import remember_shipped
from penstock.datastream.requirements import installed_requirements

if TYPE_CHECKING:
    from penstock.spark.types import SparkSession

_PACKED = (".zip", ".egg")
_WHEEL = ".whl"
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".jar")


class Archive(NamedTuple):
    """An archive, and the folder below Spark's files into which workers unpack it."""

    path: str
    folder: str


class Requirements(NamedTuple):
    """A requirements file, and a folder of wheels that replaces the index, unless it is empty."""

    file: str
    wheels: str


class CachedFile(NamedTuple):
    """A file or folder that workers find below Spark's files under a name."""

    path: str
    name: str
    executable: bool


class Dependencies(NamedTuple):
    """What a job needs to import and read, with absolute paths that exist."""

    files: tuple[str, ...] = ()
    archives: tuple[Archive, ...] = ()
    requirements: Requirements | None = None
    cached: tuple[CachedFile, ...] = ()

    def and_those_of(self, program: Self) -> Dependencies:
        """Return these dependencies with those that the program added. Its requirements replace these."""
        files = dict.fromkeys((*self.files, *program.files))
        archives = dict.fromkeys((*self.archives, *program.archives))
        _check_names(PYTHON_FILES.key, {Path(path).name: path for path in files}, len(files))
        _check_names(PYTHON_ARCHIVES.key, {each.folder: each.path for each in archives}, len(archives))
        cached = dict.fromkeys((*self.cached, *program.cached))
        _check_names("register_cached_file", {each.name: each.path for each in cached}, len(cached))
        return Dependencies(tuple(files), tuple(archives), program.requirements or self.requirements, tuple(cached))


def configured_dependencies(configuration: Configuration) -> Dependencies:
    """Return the dependencies that the settings name. Raises BadSetting if one of them does not exist."""
    requirements = configuration.get(PYTHON_REQUIREMENTS)
    return Dependencies(
        tuple(python_file(PYTHON_FILES.key, name) for name in _listed(configuration.get(PYTHON_FILES))),
        tuple(
            python_archive(PYTHON_ARCHIVES.key, *_split(name)) for name in _listed(configuration.get(PYTHON_ARCHIVES))
        ),
        python_requirements(PYTHON_REQUIREMENTS.key, *_split(requirements)) if requirements else None,
        tuple(_configured_file(text) for text in quoted_split(configuration.get(CACHED_FILES), ";")),
    )


def python_file(where: str, name: str) -> str:
    """Return the absolute path of a module or package. `where` names the setting or method in error messages."""
    path = local_path(where, name)
    if not os.path.exists(path):
        raise BadSetting(f"{where}: file '{path}' does not exist.", fix="Correct the path.")
    if not os.path.isdir(path) and not path.endswith((".py", *_PACKED, _WHEEL)):
        raise BadSetting(
            f"{where}: '{path}' cannot be imported.", fix="Pass a .py, .zip, .egg or .whl file, or a folder."
        )
    return path


def python_archive(where: str, name: str, folder: str) -> Archive:
    """Return an archive. Without `folder`, its folder has the name of the file."""
    path = local_path(where, name)
    if not os.path.isfile(path):
        raise BadSetting(f"{where}: archive '{path}' does not exist.", fix="Correct the path.")
    if not path.endswith(_ARCHIVES):
        raise BadSetting(
            f"{where}: '{path}' is not an archive that Spark can unpack.",
            fix=f"Make one with the suffix {', '.join(_ARCHIVES)}.",
        )
    folder = folder or os.path.basename(path)
    parts = PurePosixPath(folder)
    if parts.is_absolute() or ".." in parts.parts:
        raise BadSetting(
            f"{where}: the folder '{folder}' of '{path}' is not below the worker's files.", fix="Pass a plain name."
        )
    return Archive(path, folder)


def cached_file(where: str, name: str, shown: str, executable: bool) -> CachedFile:
    """Return a file or folder to ship under the name ``shown``."""
    path = local_path(where, name)
    if not os.path.exists(path):
        raise BadSetting(f"{where}: file '{path}' does not exist.", fix="Correct the path.")
    if not shown or shown != os.path.basename(shown) or shown in (".", ".."):
        raise BadSetting(f"{where}: '{shown}' is not a plain file name.", fix="Pass a name without slashes.")
    return CachedFile(path, shown, executable)


def _configured_file(text: str) -> CachedFile:
    """Return the file that an entry of the setting describes."""
    fields = Pairs().parse(CACHED_FILES.key, text)
    if not {"name", "path"} <= fields.keys() <= {"name", "path", "executable"}:
        raise BadSetting(
            f"{CACHED_FILES.key} has the entry '{text}'.", fix="Give each entry a name and a path: name:a,path:/data/a."
        )
    executable = Truth().parse(CACHED_FILES.key, fields.get("executable", "false"))
    return cached_file(CACHED_FILES.key, fields["path"], fields["name"], executable)


def python_requirements(where: str, file: str, wheels: str) -> Requirements:
    """Return a requirements file, and the folder of wheels to install from, if any."""
    path = local_path(where, file)
    if not os.path.isfile(path):
        raise BadSetting(f"{where}: requirements file '{path}' does not exist.", fix="Correct the path.")
    folder = local_path(where, wheels) if wheels else ""
    if folder and not os.path.isdir(folder):
        raise BadSetting(f"{where}: '{folder}' is not a folder of wheels.", fix="Correct the path.")
    return Requirements(path, folder)


def import_configured(*settings: Mapping[str, str]) -> None:
    """Let the driver import the dependencies that settings name, before the program runs. Later settings win.

    The configuration file and the environment variable come after the first.
    """
    given = Configuration()
    for source in (*settings[:1], surrounding_settings(), *settings[1:]):
        given.add_all(Configuration.from_dict(canonical(source)))
    make_importable(configured_dependencies(given))


def make_importable(dependencies: Dependencies) -> None:
    """Let this process, which is the driver, import the dependencies. Installs the requirements."""
    paths = [_import_path(path) for path in dependencies.files]
    if dependencies.requirements is not None:
        paths.append(str(installed_requirements(*dependencies.requirements)))
    new = [path for path in paths if path not in sys.path]
    # After the program's own folder.
    sys.path[1:1] = new
    if new:
        invalidate_caches()


def ship(dependencies: Dependencies, session: SparkSession) -> None:
    """Let all workers of a Spark application import and read the dependencies, and the program's own modules."""
    from penstock.spark.shipping import Shipment

    shipment = Shipment(session)
    place = None if shipment.same_machine else program_place()
    for path in (*dependencies.files, *([] if place is None else [str(place)])):
        if path.endswith(_WHEEL):
            shipment.add_python_folder(_zip_copy(path))
        else:
            shipment.add_python_file(_folder_archive(path) if os.path.isdir(path) else Path(path))
    for archive in dependencies.archives:
        shipment.add_archive(f"{Path(archive.path).as_uri()}#{quote(archive.folder)}")
    for cached in dependencies.cached:
        shipment.add_file(_named_copy(cached))
    if dependencies.requirements is not None:
        packages = installed_requirements(*dependencies.requirements)
        if any(packages.iterdir()):
            shipment.add_python_folder(_packages_archive(packages))


def program_place() -> Path | None:
    """Return the folder or archive with the modules of the program; None if it has no file, as in a notebook."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None:
        return None
    place = Path(file).resolve()
    if not place.exists():
        return next((parent for parent in place.parents if parent.is_file()), None)
    for _ in filter(None, ("file", *(getattr(main, "__package__", None) or "").split("."))):
        place = place.parent
    installed = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "scripts")]
    # An installed tool such as pytest can run the program.
    return None if place in installed or "site-packages" in place.parts else place


def _listed(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _split(name: str) -> tuple[str, str]:
    path, _, rest = name.partition("#")
    return path, rest


def _check_names(setting: str, by_name: dict[str, str], count: int) -> None:
    if len(by_name) < count:
        raise BadSetting(
            f"{setting}: two dependencies have the same name, among {', '.join(sorted(by_name))}.",
            fix="Rename one of them: workers keep all of them in one folder.",
        )


# -- copies in this process's scratch directory ------------------------------------------------------------------------


@cache
def _scratch() -> Path:
    from penstock.common.scratch import scratch_directory

    return scratch_directory()


@cache
def _import_path(path: str) -> str:
    if path.endswith(".py"):
        # Its neighbours must not become importable: workers do not have them.
        modules = _scratch() / "modules"
        modules.mkdir(exist_ok=True)
        shutil.copy(path, modules)
        return str(modules)
    if path.endswith(_WHEEL):
        folder = _scratch() / "wheels" / Path(path).stem
        extract(Path(path), folder, path)
        return str(folder)
    return path


@cache
def _folder_archive(path: str) -> Path:
    archive = archive_of(importable_files(Path(path)), _scratch(), Path(path).name)
    remember_shipped(archive.name, path)
    return archive


@cache
def _packages_archive(packages: Path) -> Path:
    files = {str(path.relative_to(packages)): path for path in packages.rglob("*") if path.is_file()}
    return archive_of(files, _scratch(), "penstock-requirements")


@cache
def _named_copy(cached: CachedFile) -> Path:
    """Return a copy with the name that workers see: Spark keeps the names of files."""
    folder = Path(tempfile.mkdtemp(dir=_scratch()))
    if os.path.isdir(cached.path):
        return Path(shutil.copytree(cached.path, folder / cached.name))
    copy = Path(shutil.copy(cached.path, folder / cached.name))
    copy.chmod(0o755 if cached.executable else 0o644)
    return copy


@cache
def _zip_copy(wheel: str) -> Path:
    """Return a copy of a wheel with a suffix that Spark unpacks."""
    return Path(shutil.copy(wheel, _scratch() / f"{Path(wheel).stem}.zip"))
