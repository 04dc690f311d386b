"""The files of a program's folder that travel with it, and archives of them.

The same files always give the same archive: names are sorted, and times and permissions are fixed.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from penstock.common.durable_files import sync_directory
from penstock.errors import PenstockError

IGNORE_FILE = ".penstockignore"
MOST_FILES = 10_000
MOST_BYTES = 100 << 20
"""Of the files of a folder. A service accepts uploads of this size by default."""
MOST_UNPACKED_BYTES = 1 << 30
_COMPRESSIONS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
"""With any other method, zipfile unpacks into memory whatever a few bytes stand for, whatever size they declare."""
_NAMED = 5
"""The largest files that a message names."""
_OLDEST = (1980, 1, 1, 0, 0, 0)
"""The first time that a zip file can hold."""
_LINEAGE = re.compile(r"\d{12}(\.\w+)?")


class BadProgram(PenstockError):
    """A file is not a program, is damaged, or is too large to travel.

    Operator action: correct the file that the message names and submit the program again.
    """

    retryable = False


def program_files(folder: Path, most_bytes: int = MOST_BYTES) -> dict[str, Path]:
    """Return the files of a program's folder by their relative names.

    Left out are hidden files and folders, `__pycache__`, virtual environments, checkpoints, savepoints, and everything
    that a line of the file `.penstockignore` matches. Links are followed. Files and folders that this user cannot read
    are left out, too: the program could not use them either.

    Raises:
        BadProgram: If there are more files or bytes than the limits permit.
    """
    return _collect(folder, most_bytes, importable=False)


def importable_files(folder: Path) -> dict[str, Path]:
    """Return the Python files of a folder and all files of its packages, as `program_files` does."""
    return _collect(folder, MOST_BYTES, importable=True)


def write_archive(target: Path, members: Mapping[str, Path | bytes]) -> None:
    """Write a zip file of these members, by name. The file appears complete or not at all."""
    descriptor, temporary = tempfile.mkstemp(prefix=".archive-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                # Python finds packages without __init__.py in a zip file only if their folders are in it.
                folders = {f"{parent}/" for name in members for parent in PurePosixPath(name).parents if parent.name}
                for name in sorted({*members, *folders}):
                    _add(archive, name, members.get(name, b""))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_directory(target.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def archive_of(members: Mapping[str, Path], directory: Path, prefix: str) -> Path:
    """Write an archive into a directory, and return its path. Its name has a hash of the content."""
    draft = directory / f"{prefix}.zip"
    write_archive(draft, members)
    with open(draft, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return draft.rename(directory / f"{prefix}-{digest}.zip")


def check_archive(archive: Path, name: str) -> list[str]:
    """Return the names of the files in a zip file. Raises BadProgram if it is damaged or unsafe to unpack.

    `name` is how messages refer to the file.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _checked_members(opened, name)
            damaged = opened.testzip()
    except PenstockError:
        raise
    except Exception as error:  # zipfile raises errors of many classes for damaged files, also those of zlib and lzma
        raise _damaged(name, f"{error or type(error).__name__}") from None
    if damaged is not None:
        raise _damaged(name, f"{damaged} does not match its checksum")
    return members


def extract(archive: Path, target: Path, name: str) -> None:
    """Unpack a zip file into a new folder, which appears complete or not at all. Does nothing if the folder exists.

    Raises BadProgram for an archive that `check_archive` refuses.
    """
    if target.exists():
        return
    check_archive(archive, name)

    def fill(folder: Path) -> None:
        with zipfile.ZipFile(archive) as opened:
            for member in opened.infolist():
                if not member.is_dir():
                    path = folder / member.filename
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with opened.open(member) as source, open(path, "xb") as file:
                        shutil.copyfileobj(source, file, 1 << 20)

    make_folder(target, fill)


def make_folder(target: Path, fill: Callable[[Path], None]) -> None:
    """Create a folder with the files that `fill` writes, durably. It appears complete or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fill(draft)
        _sync_all(draft)
        try:
            draft.rename(target)
        except OSError:
            # Another process was faster.
            if not target.is_dir():
                raise
        sync_directory(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


# -- the folder --------------------------------------------------------------------------------------------------------


def _collect(folder: Path, most_bytes: int, *, importable: bool) -> dict[str, Path]:
    found: dict[str, Path] = {}
    patterns = _patterns(folder)
    for name, path in _walk(folder, PurePosixPath(), patterns, {os.path.realpath(folder)}, everything=not importable):
        found[name] = path
        if len(found) > MOST_FILES:
            raise BadProgram(
                f"The folder of the program, {folder}, has more than {MOST_FILES:,} files.",
                fix=f"Move the program to a folder without other files, or list folders to leave out in "
                f"{folder / IGNORE_FILE}, one per line.",
            )
    sizes = {name: path.stat().st_size for name, path in found.items()}
    total = sum(sizes.values())
    if total > most_bytes:
        largest = sorted(sizes, key=lambda name: (-sizes[name], name))[:_NAMED]
        raise BadProgram(
            f"The folder of the program, {folder}, has {_megabytes(total)} of files, but {_megabytes(most_bytes)} is "
            f"the limit. The largest are {', '.join(f'{name} ({_megabytes(sizes[name])})' for name in largest)}.",
            fix=f"List files and folders to leave out in {folder / IGNORE_FILE}, one per line, such as *.parquet.",
        )
    return found


def _walk(
    directory: Path, inside: PurePosixPath, patterns: list[str], above: set[str], everything: bool
) -> Iterator[tuple[str, Path]]:
    """Yield the files below a directory; only importable ones, unless `everything` is wanted."""
    entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    # The data files of a package belong to it.
    everything = everything or (bool(inside.parts) and any(entry.name == "__init__.py" for entry in entries))
    for entry in entries:
        name = str(inside / entry.name)
        if entry.name.startswith(".") or _matches(name, entry.name, patterns):
            continue
        path = Path(entry.path)
        if not os.access(path, os.R_OK | os.X_OK if entry.is_dir() else os.R_OK):
            continue
        if entry.is_dir():
            place = os.path.realpath(path)
            # A link to a folder that contains it has no end.
            if place not in above and not _is_left_out(path):
                yield from _walk(path, inside / entry.name, patterns, above | {place}, everything)
        elif entry.is_file() and (entry.name.endswith(".py") or (everything and not entry.name.endswith(".pyc"))):
            yield name, path


def _is_left_out(directory: Path) -> bool:
    if directory.name == "__pycache__" or (directory / "pyvenv.cfg").exists():
        return True
    lineages = directory / "lineages"
    if lineages.is_dir() and any(_LINEAGE.fullmatch(name) for name in os.listdir(lineages)):
        return True
    return directory.name.startswith("savepoint-") and (directory / "_metadata").exists()


def _patterns(folder: Path) -> list[str]:
    try:
        lines = (folder / IGNORE_FILE).read_text().splitlines()
    except FileNotFoundError:
        return []
    return [line.strip().strip("/") for line in lines if line.strip() and not line.startswith("#")]


def _matches(path: str, name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MB"


# -- archives ----------------------------------------------------------------------------------------------------------


def _add(archive: zipfile.ZipFile, name: str, content: Path | bytes) -> None:
    info = zipfile.ZipInfo(name, _OLDEST)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = ((stat.S_IFDIR | 0o755) if name.endswith("/") else (stat.S_IFREG | 0o644)) << 16
    if isinstance(content, bytes):
        archive.writestr(info, content)
        return
    with open(content, "rb") as source, archive.open(info, "w", force_zip64=True) as member:
        shutil.copyfileobj(source, member, 1 << 20)


def _checked_members(archive: zipfile.ZipFile, name: str) -> list[str]:
    members = archive.infolist()
    if len(members) > MOST_FILES:
        raise BadProgram(f"{name} has {len(members):,} files, but {MOST_FILES:,} is the limit.")
    total = sum(member.file_size for member in members)
    if total > MOST_UNPACKED_BYTES:
        raise BadProgram(
            f"{name} has {_megabytes(total)} of files, but {_megabytes(MOST_UNPACKED_BYTES)} is the limit.",
            fix="Remove data files from the archive.",
        )
    files: set[str] = set()
    folders: set[str] = set()
    for member in members:
        path = PurePosixPath(member.filename)
        plain = member.filename.removesuffix("/") if member.is_dir() else member.filename
        if not plain or path.is_absolute() or ".." in path.parts or str(path) != plain or "\\" in plain:
            raise BadProgram(f"{name} has a file with the name {member.filename!r}, which is not a relative path.")
        if not plain.isprintable() or max(len(part.encode()) for part in path.parts) > 255 or len(plain) > 1000:
            raise BadProgram(f"{name} has a file with a name that cannot be used: {member.filename[:100]!r}.")
        mode = member.external_attr >> 16
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise BadProgram(
                f"{name} has a link or a special file, {member.filename!r}.", fix="Replace it by the file it points to."
            )
        if member.compress_type not in _COMPRESSIONS:
            raise BadProgram(
                f"{name} is compressed with a method other than deflate, which is not accepted.",
                fix="Make the archive with `zip` or Python's zipfile, without a special method.",
            )
        if member.flag_bits & 1:
            raise BadProgram(f"{name} is encrypted.", fix="Make the archive without a password.")
        folders.update(map(str, path.parents))
        if member.is_dir():
            folders.add(plain)
        elif plain in files:
            raise BadProgram(f"{name} has two files with the name {member.filename!r}.")
        else:
            files.add(plain)
    if both := files & folders:
        raise BadProgram(f"{name} has a file and a folder with the name {min(both)!r}.")
    return sorted(files)


def _damaged(name: str, why: str) -> BadProgram:
    return BadProgram(f"{name} is not a zip file, or is damaged: {why}.", fix="Make the archive again.")


def _sync_all(folder: Path) -> None:
    for directory, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(directory, name), "rb") as file:
                os.fsync(file.fileno())
        sync_directory(Path(directory))
