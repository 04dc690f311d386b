"""Processes of this host: who they are, whether they are alive, and how to kill one with all its descendants."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from typing import NamedTuple

from penstock.cluster.records import Claim
from penstock.cluster.supervision import Process
from penstock.state.engines.boot import boot_id

_KILL_S = 10.0
"""How long `kill_tree` repeats its signals. A process in an uninterruptible wait can take longer to disappear."""


class Identity(NamedTuple):
    """A process. Ids are reused, also after a reboot; the boot and the start time make it unique."""

    host: str
    boot: str
    pid: int
    started: int
    """In clock ticks since the boot."""


class _Stat(NamedTuple):
    state: str
    parent: int
    started: int


def this_process() -> Identity:
    """Return the identity of the calling process."""
    stat = _stat(os.getpid())
    assert stat is not None
    return Identity(socket.gethostname(), boot_id(), os.getpid(), stat.started)


def state_of(claim: Claim) -> Process:
    """Return what this host knows of the process that made a claim."""
    if claim.host != socket.gethostname():
        return Process.UNKNOWN
    if claim.boot != boot_id():
        return Process.DEAD
    stat = _stat(claim.pid)
    return Process.ALIVE if stat is not None and stat.started == claim.started else Process.DEAD


def kill_tree(claim: Claim) -> bool:
    """Kill the process of a claim and all its descendants. Return whether none of them is left.

    Python workers of Spark have their own process groups, so no signal to a group reaches all of them. A killed parent
    leaves its children to init: the descendants are therefore collected first, and again while they die.
    """
    if state_of(claim) is not Process.ALIVE:
        return claim.host == socket.gethostname()
    doomed = {claim.pid: claim.started}
    deadline = time.monotonic() + _KILL_S
    while time.monotonic() < deadline:
        processes = _all_processes()
        doomed = {pid: started for pid, started in doomed.items() if _is(processes, pid, started)}
        doomed |= _descendants(set(doomed), processes)
        if not doomed:
            return True
        for pid in doomed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # The kernel reports the end of a killed process only by its disappearance, unless it is our child.
        for pid in doomed:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.02)
    return False


def _is(processes: dict[int, _Stat], pid: int, started: int) -> bool:
    return pid in processes and processes[pid].started == started


def _descendants(roots: set[int], processes: dict[int, _Stat]) -> dict[int, int]:
    found: dict[int, int] = {}
    grown = True
    while grown:
        grown = False
        for pid, stat in processes.items():
            if pid not in found and (stat.parent in roots or stat.parent in found):
                found[pid] = stat.started
                grown = True
    return found


def _all_processes() -> dict[int, _Stat]:
    stats = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return {pid: stat for pid, stat in stats.items() if stat is not None}


def _stat(pid: int) -> _Stat | None:
    """Return the state of a process, or None if it does not exist or has ended and only waits for its parent."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            content = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program, in parentheses, can contain anything.
    fields = content[content.rindex(b")") + 2 :].split()
    state = fields[0].decode()
    return None if state in "ZX" else _Stat(state, int(fields[1]), int(fields[19]))
