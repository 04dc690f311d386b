"""The order to run one attempt of a job, from a Dispatcher to the process that it starts.

It travels in a file that only this user can read: command lines and environments are visible to others. The process
removes it once it has claimed the attempt.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from penstock.common.private_file import replace_private

ORDER = "order.json"
NOT_CLAIMED = 75
"""The exit code of a JobManager if another process runs the attempt, or it has ended."""
LOG, OUTPUT = "jobmanager.log", "jobmanager.out"
UPLOAD, PROGRAM = "upload", "program"
"""The program of an attempt in its directory: the file, and the directory into which it is unpacked."""
_KEPT_LOGS = 10
"""Attempts of a job whose logs are kept: one whose process dies at each start has an attempt per minute."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a JobManager needs to know before it can read the records."""

    job_id: str
    attempt: int
    finalize: bool = False
    records: str
    """Location of the cluster's records."""
    settings: dict[str, str]
    """The settings of the service: for the storage of the records, and for operations."""
    control: str
    """Directory of the control sockets."""
    folder: str
    """Directory of the attempt."""
    defaults: dict[str, str] = {}
    """Settings of jobs that neither the program nor the user sets."""
    log_bytes: int = 64 << 20
    log_files: int = 5


def write_order(order: Order) -> Path:
    """Write the order into the directory of its attempt, which it creates, and return the file."""
    folder = Path(order.folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / ORDER
    replace_private(path, msgspec.json.encode(order))
    _trim(folder)
    return path


def _trim(newest: Path) -> None:
    """Remove the programs and orders of earlier attempts, and all files of old ones.

    A process that died before its claim has left its order, which contains settings.
    """
    earlier = sorted(int(path.name) for path in newest.parent.iterdir() if path.name.isdigit())
    for number in earlier[: earlier.index(int(newest.name))] if newest.name.isdigit() else ():
        folder = newest.parent / str(number)
        if number <= int(newest.name) - _KEPT_LOGS:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            shutil.rmtree(folder / PROGRAM, ignore_errors=True)
            for name in (UPLOAD, ORDER):
                (folder / name).unlink(missing_ok=True)


def read_order(path: Path) -> Order:
    """Read an order."""
    return msgspec.json.decode(path.read_bytes(), type=Order)


def socket_name(job_id: str, attempt: int) -> str:
    """Return the name of an attempt's control point."""
    return f"{job_id}-{attempt}"
