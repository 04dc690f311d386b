"""Processes of this host: who they are, whether they are alive, and how to kill one with all its descendants."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
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
    parent: int
    session: int
    started: int


def this_process() -> Identity:
    """Return the identity of the calling process."""
    stat = _stat(os.getpid())
    assert stat is not None
    return Identity(socket.gethostname(), boot_id(), os.getpid(), stat.started)


def state_of(process: Claim | Identity) -> Process:
    """Return what this host knows of the process."""
    if process.host != socket.gethostname():
        return Process.UNKNOWN
    if process.boot != boot_id():
        return Process.DEAD
    stat = _stat(process.pid)
    return Process.ALIVE if stat is not None and stat.started == process.started else Process.DEAD


def remains(claim: Claim) -> bool:
    """Return whether the process of a claim, or any process that it left behind on this host, is alive."""
    return remaining([claim])[0]


def remaining(claims: Sequence[Claim]) -> list[bool]:
    """Return whether `remains` holds for each claim. Looks at the processes of this host once."""
    here = [claim.host == socket.gethostname() and claim.boot == boot_id() for claim in claims]
    processes = _all_processes() if any(here) else {}
    return [own and bool(_tree(claim, processes)) for own, claim in zip(here, claims, strict=True)]


def kill_tree(claim: Claim, spare: int = 0) -> bool:
    """Kill the process of a claim and all its descendants, except `spare`. Return whether none of them is left.

    Python workers of Spark have their own process groups, so no signal to a group reaches all of them. The children of
    a process that died belong to init, but they stay in its session.
    """
    if claim.host != socket.gethostname():
        return False
    if claim.boot != boot_id():
        return True
    deadline = time.monotonic() + _KILL_S
    while tree := _tree(claim, _all_processes()) - {spare}:
        if time.monotonic() > deadline:
            return False
        for pid in tree:
            # The process of another user, which sudo started, does not protect the others.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            # The kernel reports the end of a killed process only by its disappearance, unless it is our child.
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.02)
    return True


def _tree(claim: Claim, processes: Mapping[int, _Stat]) -> set[int]:
    """Return the living processes of a claim: its session, and the descendants of all its processes."""
    # A later process can have the same id, but not while the session exists.
    tree = {
        pid
        for pid, stat in processes.items()
        if (pid == claim.pid and stat.started == claim.started)
        or (stat.session == claim.pid and pid != claim.pid and stat.started >= claim.started)
    }
    if claim.pid in processes and processes[claim.pid].started != claim.started:
        return set()
    grown = True
    while grown:
        more = {pid for pid, stat in processes.items() if stat.parent in tree} - tree
        tree |= more
        grown = bool(more)
    return tree


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
    return None if state in "ZX" else _Stat(int(fields[1]), int(fields[3]), int(fields[19]))
