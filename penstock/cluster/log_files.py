"""Log files of a JobManager. They are the standard output and error of its process, so the JVM writes to them too."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from penstock.common.console import SECRETS

_CHECK_S = 5.0

FORMAT = "%(asctime)s %(levelname)-7s %(message)s"


def log_to_stderr() -> None:
    """Write Penstock's log records with time and level to standard error, without secrets."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.addFilter(SECRETS)
    logger = logging.getLogger("penstock")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def rotate_in_background(paths: Sequence[Path], most_bytes: int, most_files: int) -> None:
    """Keep these files of this process, which were opened for appending, below a size."""

    def watch() -> None:
        pause = threading.Event()
        while not pause.wait(_CHECK_S):
            for path in paths:
                try:
                    rotate(path, most_bytes, most_files)
                except OSError as error:  # a full disk must not end the job
                    logging.getLogger("penstock").warning("Cannot rotate %s: %s", path, error)

    threading.Thread(target=watch, name="penstock-logs", daemon=True).start()


def rotate(path: Path, most_bytes: int, most_files: int) -> None:
    """Move the content of a file that is too large to `<name>.1`, and older content to higher numbers.

    Several processes have the file open, so it is copied and truncated. Lines written in between are lost.
    """
    if path.stat().st_size < most_bytes:
        return
    path.with_name(f"{path.name}.{most_files}").unlink(missing_ok=True)
    for number in range(most_files - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)
