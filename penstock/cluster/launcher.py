"""Starts JobManagers as processes of this host. They outlive the Dispatcher that started them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from penstock.cluster.order import LOG, NOT_CLAIMED, OUTPUT, Order, write_order
from penstock.cluster.other_hosts import OtherHosts
from penstock.cluster.processes import kill_tree, remains, state_of
from penstock.cluster.records import Claim
from penstock.cluster.supervision import Process
from penstock.common.console import SECRETS

_KEPT_ENDED = 100
"""Ended processes whose exit codes are kept: more than can end without a claim between two looks at their jobs."""


class Launcher(Protocol):
    """Starts, observes and kills JobManagers."""

    def start(self, order: Order) -> None:
        """Start a process for an attempt. It claims the attempt, or exits."""
        ...

    def start_failure(self, job_id: str, attempt: int) -> str:
        """Return why the process that was started for an attempt ended without a claim; empty if it did not."""
        ...

    def state(self, job_id: str, attempt: int, claim: Claim) -> Process:
        """Return the state of the process that claimed an attempt."""
        ...

    def remains(self, job_id: str, attempt: int, claim: Claim) -> bool:
        """Return whether any process of an attempt is alive, such as the JVM of a JobManager that died."""
        ...

    def kill(self, job_id: str, attempt: int, claim: Claim) -> bool:
        """Kill all processes of an attempt. Return whether none is left."""
        ...


class LocalLauncher:
    """Runs JobManagers on this host, each in its own session. Observes and kills those of other hosts too."""

    def __init__(self, others: OtherHosts) -> None:
        self._others = others
        self._children: dict[tuple[str, int], tuple[subprocess.Popen[bytes], Path]] = {}
        """Processes that this one started, with their logs."""

    def start(self, order: Order) -> None:
        path = write_order(order)
        folder = Path(order.folder)
        with open(folder / OUTPUT, "ab") as output, open(folder / LOG, "ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "penstock.cluster.jobmanager", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                cwd=folder,
                env=child_environment(),
                start_new_session=True,
                close_fds=True,
            )
        # Only a process that has just ended can have failed to start. All are waited for, because processes that ended
        # stay in the process table otherwise.
        ended = [key for key, (child, _) in self._children.items() if child.poll() is not None]
        for key in ended[: max(0, len(ended) - _KEPT_ENDED)]:
            del self._children[key]
        self._children[order.job_id, order.attempt] = child, folder / LOG

    def start_failure(self, job_id: str, attempt: int) -> str:
        child, log = self._children.get((job_id, attempt), (None, None))
        if child is None or log is None or child.poll() in (None, NOT_CLAIMED):
            return ""
        return f"Its process exited with code {child.returncode} before it claimed the attempt: {_last_line(log)}"

    def state(self, job_id: str, attempt: int, claim: Claim) -> Process:
        if not _is_here(claim):
            return self._others.state(claim.host, job_id, attempt)
        for child, _ in self._children.values():
            child.poll()
        return state_of(claim)

    def remains(self, job_id: str, attempt: int, claim: Claim) -> bool:
        return remains(claim) if _is_here(claim) else self._others.remains(claim.host, job_id, attempt)

    def kill(self, job_id: str, attempt: int, claim: Claim) -> bool:
        return kill_tree(claim) if _is_here(claim) else self._others.kill(claim.host, job_id, attempt)


def _is_here(claim: Claim) -> bool:
    return claim.host == socket.gethostname()


def _last_line(path: Path) -> str:
    with suppress(OSError):
        lines = path.read_text(errors="replace").strip().splitlines()
        return SECRETS.masked(lines[-1]) if lines else "its log is empty."
    return "its log cannot be read."


def child_environment() -> dict[str, str]:
    """Return the environment of a process that runs a module of Penstock, with the import path of this process."""
    paths = [path for path in sys.path if path and os.path.isdir(path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
