"""The storage of the records as a small file system, which can become read-only or full for real.

It is a tmpfs in the rig's own mount namespace, so it disappears with the rig and needs no clean-up. Without root, a
user namespace permits the same, unless the host forbids them.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

_VARIABLE = "PENSTOCK_CHAOS_NAMESPACE"
_SIZE = "16m"
_BUSY_S = 20.0
_CHUNK = bytes(64 << 10)


def can_mount() -> bool:
    """Return whether this process runs in its own mount namespace."""
    return os.environ.get(_VARIABLE) == str(os.getpid())


def enter_namespace(arguments: list[str]) -> None:
    """Continue as `python` with these arguments in a new mount namespace. Returns if the host does not permit one."""
    if can_mount() or shutil.which("unshare") is None:
        return
    options = ["-m"] if os.geteuid() == 0 else ["-Urm"]
    if subprocess.run(["unshare", *options, "true"], stderr=subprocess.DEVNULL).returncode:
        return
    # `unshare` without a fork keeps the process id.
    os.environ[_VARIABLE] = str(os.getpid())
    os.execvp("unshare", ["unshare", *options, sys.executable, *arguments])


class RecordsMount:
    """A directory for the records, on its own file system if `mounted`."""

    def __init__(self, path: Path, *, mounted: bool) -> None:
        self.path = path
        self._mounted = mounted
        self._filler = path / "filler"
        self.fails = False
        """Whether writes fail at the moment."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if mounted:
            _mount("-t", "tmpfs", "-o", f"size={_SIZE},mode=700", "none", str(path))

    def make_read_only(self) -> None:
        """Refuse all writes from now on, with EROFS. A file that is being written delays it."""
        self.fails = True
        self._remount("ro")

    def make_writable(self) -> None:
        self._remount("rw")
        self.fails = False

    def _remount(self, mode: str) -> None:
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                return _mount("-o", f"remount,{mode}", str(self.path))
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def fill(self) -> None:
        """Use up all space: writes fail with ENOSPC from now on."""
        self.fails = True
        with open(self._filler, "ab", buffering=0) as file:
            for chunk in (_CHUNK, _CHUNK[:4096], _CHUNK[:1]):
                try:
                    while file.write(chunk):
                        pass
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)
        self.fails = False

    def close(self) -> None:
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.path)], check=False)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)
