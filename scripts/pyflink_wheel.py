"""Download PyFlink's wheel once with pip and read it as a zip file, without installing it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

RELEASE = "apache-flink==2.3.0"

_NO_CONNECTION = ("connection broken by", "max retries exceeded", "failed to establish a new connection")


class IndexUnreachable(Exception):
    """pip could not reach the package index."""


@cache
def wheel_path() -> Path:
    """Return the path of the wheel in the user's cache directory, downloading it if necessary.

    The platform is fixed: the Python files are the same on all, and not every platform has a wheel.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}" / "cache"
        folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "pyflink.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _found(folder)
        if found is None:
            _download(folder)
            found = _found(folder)
    assert found is not None, f"pip downloaded no wheel of {RELEASE} to {folder}"
    return found


def read(name: str) -> str:
    """Return a text file of the wheel, such as `pyflink/common/time.py`."""
    with zipfile.ZipFile(wheel_path()) as wheel:
        return wheel.read(name).decode()


@cache
def file_names() -> tuple[str, ...]:
    with zipfile.ZipFile(wheel_path()) as wheel:
        return tuple(wheel.namelist())


def _found(folder: Path) -> Path | None:
    return next(folder.glob(RELEASE.replace("-", "_").replace("==", "-") + "-*.whl"), None)


def _download(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as part:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--platform", "manylinux2014_x86_64", "--python-version", "311", "--retries", "2"]
        command += ["--disable-pip-version-check", "--dest", part, RELEASE]
        done = subprocess.run(command, capture_output=True, text=True, cwd=part)
        if done.returncode:
            said = (done.stdout + done.stderr).strip()
            if any(sign in said.lower() for sign in _NO_CONNECTION):
                raise IndexUnreachable(f"Cannot download {RELEASE}: pip reaches no package index.\n{said}")
            raise RuntimeError(f"pip could not download {RELEASE}:\n{said}")
        for wheel in Path(part).glob("*.whl"):
            wheel.rename(folder / wheel.name)
