"""Programs as files: packed by a client, checked on upload, unpacked and prepared where they run.

A packed program is a zip file:

    penstock-program.json            the manifest
    program/...                      the program's folder
    py-files/<n>/<name>              the files of --py-files, packages and folders included
    archives/<n>/<name>              the files of --archives
    requirements/requirements.txt    the file of --requirements, and in requirements/wheels its folder of wheels

Uploads that were not packed are a `.py` file, a zip file with a main module, or a wheel.
"""

from __future__ import annotations

import ast
import platform
import re
import shutil
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

import penstock
from penstock.common.options.program import PYTHON_ARCHIVES, PYTHON_FILES, PYTHON_REQUIREMENTS
from penstock.common.program_files import (
    IGNORE_FILE,
    MOST_BYTES,
    BadProgram,
    check_archive,
    extract,
    make_folder,
    program_files,
    write_archive,
)

MANIFEST = "penstock-program.json"
_FOLDER = "program"
_KINDS = {".py": "py", ".zip": "zip", ".whl": "whl"}
_LONGEST_NAME = 150
_MOST_SOURCE_BYTES = 8 << 20
"""Of a single Python file: parsing takes about 100 times as much memory."""
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to run a packed program. All names are those of files in the archive."""

    entry: str = ""
    """The file that runs, relative to `program`; empty if a module runs."""
    module: str = ""
    python: str
    penstock: str
    py_files: list[str] = []
    archives: dict[str, str] = {}
    """By file, the name of the folder that it is unpacked into."""
    requirements: str = ""
    wheels: str = ""


class PreparedProgram(NamedTuple):
    """A program that can run: `run_program(prepared.program, arguments, prepared.module)`."""

    program: Path
    """A Python file, or the folder that contains the module."""
    module: str
    settings: dict[str, str]
    """`python.files`, `python.archives` and `python.requirements`, for `make_importable` and the launch context."""

    def settings_with(self, others: Mapping[str, str]) -> dict[str, str]:
        """Return other settings together with these. Files and archives of both are shipped."""
        merged = {**self.settings, **others}
        for key in (PYTHON_FILES.key, PYTHON_ARCHIVES.key):
            if self.settings.get(key) and others.get(key):
                merged[key] = f"{self.settings[key]},{others[key]}"
        return merged


# -- the client --------------------------------------------------------------------------------------------------------


def pack(
    program: Path,
    target: Path,
    *,
    module: str = "",
    py_files: Sequence[str] = (),
    archives: Sequence[tuple[str, str]] = (),
    requirements: str = "",
    wheels: str = "",
    most_bytes: int = MOST_BYTES,
) -> Path:
    """Write a program with its dependencies to the zip file `target`, and return it. Equal programs give equal files.

    Args:
        program: A Python file, whose folder is packed; or a folder, with a file `__main__.py` unless a module runs.
        target: The zip file.
        module: The module that runs instead of a file.
        py_files: Paths of modules, packages and folders.
        archives: Paths of archives, each with the name of the folder that it is unpacked into.
        requirements: The path of a requirements file.
        wheels: The path of a folder of wheels, from which the requirements are installed.
        most_bytes: Limit for the size of the program's folder.

    Raises:
        BadProgram: If the program does not exist, is too large, or cannot be read.
    """
    try:
        return _packed(program, target, module, py_files, archives, requirements, wheels, most_bytes)
    except OSError as error:
        raise BadProgram(
            f"{error.filename or program} cannot be packed: {error.strerror or error}.",
            fix=f"Correct the path, or list files to leave out in {IGNORE_FILE} in the folder of the program.",
        ) from None


def _packed(
    program: Path,
    target: Path,
    module: str,
    py_files: Sequence[str],
    archives: Sequence[tuple[str, str]],
    requirements: str,
    wheels: str,
    most_bytes: int,
) -> Path:
    # As Python does, take the folder of the file that a link points to.
    program = program.resolve()
    folder, entry = (program, "__main__.py") if program.is_dir() else (program.parent, program.name)
    files = program_files(folder, most_bytes)
    if not module and entry not in files:
        raise BadProgram(f"{folder} has no file {entry} that can be packed.", fix="Pass the path of a Python file.")
    members: dict[str, Path | bytes] = {f"{_FOLDER}/{name}": path for name, path in files.items()}
    shipped = [_add(members, f"py-files/{number}", Path(path)) for number, path in enumerate(py_files)]
    unpacked = {
        _add(members, f"archives/{number}", Path(path)): name or Path(path).name
        for number, (path, name) in enumerate(archives)
    }
    if requirements:
        members["requirements/requirements.txt"] = Path(requirements)
    if wheels:
        members |= {f"requirements/wheels/{path.name}": path for path in Path(wheels).iterdir() if path.is_file()}
    manifest = Manifest(
        entry="" if module else entry,
        module=module,
        python=platform.python_version(),
        penstock=penstock.__version__,
        py_files=shipped,
        archives=unpacked,
        requirements="requirements/requirements.txt" if requirements else "",
        wheels="requirements/wheels" if wheels else "",
    )
    members[MANIFEST] = msgspec.json.encode(manifest)
    write_archive(target, members)
    return target


def _add(members: dict[str, Path | bytes], place: str, path: Path) -> str:
    """Add a file or folder below `place`, and return its name."""
    if not path.exists():
        raise BadProgram(f"The dependency {path} does not exist.", fix="Correct the path.")
    name = f"{place}/{path.resolve().name}"
    if path.is_dir():
        members.update({f"{name}/{inside}": file for inside, file in program_files(path.resolve()).items()})
    else:
        members[name] = path
    return name


# -- the service -------------------------------------------------------------------------------------------------------


def upload_name(name: str) -> str:
    """Return the name of an uploaded file as a plain file name. Raises BadProgram if it is not that of a program."""
    plain = re.sub(r"[^\w.+-]", "_", re.split(r"[/\\]", name)[-1]).lstrip(".")
    match = re.fullmatch(r"(.+)(\.py|\.zip|\.whl)", plain)
    if match is None:
        raise BadProgram(f"'{plain[:_LONGEST_NAME]}' is not a program.", fix="Upload a .py, .zip or .whl file.")
    return match[1][: _LONGEST_NAME - len(match[2])] + match[2]


def check_upload(path: Path, name: str) -> str:
    """Check an uploaded file and return its kind: `py`, `zip` or `whl`. Runs nothing of it.

    Takes seconds for large files: call it in a thread.

    Raises:
        BadProgram: If it is not a program, or is damaged.
    """
    name = upload_name(name)
    kind = _KINDS[PurePosixPath(name).suffix]
    if kind == "py":
        if path.stat().st_size > _MOST_SOURCE_BYTES:
            raise _too_large(name)
        _check_source(path.read_bytes(), name)
        return kind
    files = check_archive(path, name)
    if kind == "whl" and not any(file.endswith(".dist-info/METADATA") for file in files):
        raise BadProgram(f"{name} is not a wheel: it has no metadata.", fix="Build it with pip wheel.")
    if MANIFEST in files:
        manifest = _decoded(_read_member(path, MANIFEST))
        mains = [f"{_FOLDER}/{manifest.entry}"] if manifest.entry else []
    elif kind == "zip" and not any(file.endswith(".py") for file in files):
        raise BadProgram(f"{name} contains no Python module.", fix="Add a file __main__.py.")
    else:
        mains = [file for file in files if file == "__main__.py"]
    for main in mains:
        if main not in files:
            raise BadProgram(f"{name} has no file {main}, although its manifest names it.", fix="Pack it again.")
        _check_source(_read_member(path, main), f"{name}/{main}")
    return kind


def unpack(program: Path, target: Path, name: str) -> None:
    """Unpack a checked upload into the new folder `target`. Does nothing if the folder exists.

    The folder appears complete or not at all. A kill can leave a hidden folder next to it, whose name starts with that
    of `target`.

    Args:
        program: The file.
        target: The folder.
        name: The name under which it was uploaded.
    """
    name = upload_name(name)
    if not name.endswith(".py"):
        extract(program, target, name)
    elif not target.exists():

        def fill(folder: Path) -> None:
            shutil.copyfile(program, folder / name)

        make_folder(target, fill)


def prepare(folder: Path, entry: str = "") -> PreparedProgram:
    """Return how to run an unpacked program.

    Args:
        folder: The folder that `unpack` made.
        entry: The module or file that runs; empty: that of the manifest, the only file, or `__main__`.

    Raises:
        BadProgram: If the program does not have the entry, or needs another version of Python.
    """
    manifest = _read_manifest(folder)
    root = folder if manifest is None else folder / _FOLDER
    settings = {} if manifest is None else _settings(folder, manifest)
    if not entry and manifest is not None:
        entry = manifest.entry or manifest.module
        if manifest.module:
            return PreparedProgram(root, entry, settings)
    if entry:
        return _with_entry(root, entry, settings)
    files = [path for path in root.iterdir() if path.suffix == ".py"]
    if (root / "__main__.py").is_file():
        return PreparedProgram(root / "__main__.py", "", settings)
    packages = sorted(path.parent.name for path in root.glob("*/__main__.py"))
    if len(packages) == 1:
        return PreparedProgram(root, packages[0], settings)
    if len(files) == 1 and not packages:
        return PreparedProgram(files[0], "", settings)
    raise BadProgram(
        "The program has no file __main__.py, so the module to run is unknown.",
        fix="Name the module: entryClass in REST, or -pym MODULE.",
    )


def _with_entry(root: Path, entry: str, settings: dict[str, str]) -> PreparedProgram:
    path = PurePosixPath(entry)
    if entry.endswith(".py") and not path.is_absolute() and ".." not in path.parts and (root / path).is_file():
        return PreparedProgram(root / path, "", settings)
    # A module can also be part of the dependencies: Python looks for it when it runs.
    if entry.endswith(".py") or not _MODULE.fullmatch(entry):
        raise BadProgram(
            f"The program has no file or module '{entry}'.",
            fix="Name a file of the program, or a module: package.main.",
        )
    return PreparedProgram(root, entry, settings)


def _settings(folder: Path, manifest: Manifest) -> dict[str, str]:
    settings = {}
    if manifest.py_files:
        settings[PYTHON_FILES.key] = ",".join(str(folder / name) for name in manifest.py_files)
    if manifest.archives:
        unpacked = (f"{folder / name}#{place}" for name, place in manifest.archives.items())
        settings[PYTHON_ARCHIVES.key] = ",".join(unpacked)
    if manifest.requirements:
        wheels = f"#{folder / manifest.wheels}" if manifest.wheels else ""
        settings[PYTHON_REQUIREMENTS.key] = f"{folder / manifest.requirements}{wheels}"
    return settings


def _read_manifest(folder: Path) -> Manifest | None:
    try:
        return _decoded((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return None


def _decoded(data: bytes) -> Manifest:
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadProgram(
            f"The file {MANIFEST} of the program cannot be read: {error}.", fix="Submit the program again."
        ) from None
    names = [manifest.entry, manifest.requirements, manifest.wheels, *manifest.py_files]
    for name in (*names, *manifest.archives, *manifest.archives.values()):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "," in name or "#" in name:
            raise BadProgram(
                f"The file {MANIFEST} of the program names '{name}', which is not a plain path.",
                fix="Rename the file, without commas and #.",
            )
    ours, theirs = platform.python_version_tuple(), manifest.python.split(".")
    if list(ours[:2]) != theirs[:2]:
        raise BadProgram(
            f"The program was packed with Python {manifest.python}, but the service runs {'.'.join(ours)}.",
            fix="Run penstock with the Python version of the service.",
        )
    return manifest


def _read_member(archive: Path, name: str) -> bytes:
    with zipfile.ZipFile(archive) as opened:
        if opened.getinfo(name).file_size > _MOST_SOURCE_BYTES:
            raise _too_large(name)
        return opened.read(name)


def _check_source(source: bytes, name: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source, name)
    except SyntaxError as error:
        raise BadProgram(f"{name}, line {error.lineno or 1}: {error.msg}.", fix="Correct the line.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadProgram(f"{name} is not a Python program: {error or type(error).__name__}.") from None


def _too_large(name: str) -> BadProgram:
    return BadProgram(f"{name} has more than {_MOST_SOURCE_BYTES >> 20} MB.", fix="Read data from separate files.")
