"""Identity, liveness and the end of real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.cluster.processes import _stat, kill_tree, state_of, this_process
from penstock.cluster.records import Claim
from penstock.cluster.supervision import Process

# A parent, a child in its own session (as Spark's Python workers), and a grandchild; each prints its process id.
FAMILY = """
import os, subprocess, sys, time
depth = int(sys.argv[1])
print(os.getpid(), flush=True)
if depth:
    subprocess.Popen([sys.executable, "-c", sys.argv[2], str(depth - 1), sys.argv[2]], start_new_session=True)
time.sleep(600)
"""


Family = tuple[subprocess.Popen[str], list[int]]


def claim_of(pid: int, **changes: object) -> Claim:
    stat = _stat(pid)
    known = {
        "token": "t",
        "host": this_process().host,
        "boot": this_process().boot,
        "pid": pid,
        "started": stat.started if stat else 0,
        "at_ms": 0,
    }
    return Claim(**{**known, **changes})  # type: ignore[arg-type]


@pytest.fixture
def family() -> Iterator[Family]:
    parent = subprocess.Popen([sys.executable, "-c", FAMILY, "2", FAMILY], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(parent.stdout.readline()) for _ in range(3)]
    yield parent, pids
    for pid in pids:
        if _stat(pid) is not None:
            os.kill(pid, signal.SIGKILL)
    parent.wait()


def test_this_process_is_alive() -> None:
    assert state_of(claim_of(os.getpid())) is Process.ALIVE


def test_a_process_with_the_same_id_and_another_start_is_dead() -> None:
    assert state_of(claim_of(os.getpid(), started=1)) is Process.DEAD


def test_a_process_of_an_earlier_boot_is_dead() -> None:
    assert state_of(claim_of(os.getpid(), boot="another")) is Process.DEAD


def test_a_process_of_another_host_is_unknown() -> None:
    assert state_of(claim_of(os.getpid(), host="another")) is Process.UNKNOWN


def test_a_process_that_ended_and_was_not_waited_for_is_dead(family: Family) -> None:
    parent, _ = family
    claim = claim_of(parent.pid)
    os.kill(parent.pid, signal.SIGKILL)
    os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
    assert state_of(claim) is Process.DEAD


def test_a_tree_is_killed_with_the_children_in_other_sessions(family: Family) -> None:
    parent, pids = family
    assert kill_tree(claim_of(parent.pid))
    assert [pid for pid in pids if _stat(pid) is not None] == []


def test_a_stopped_tree_is_killed(family: Family) -> None:
    parent, pids = family
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    assert kill_tree(claim_of(parent.pid))
    assert [pid for pid in pids if _stat(pid) is not None] == []


def test_a_process_that_cannot_be_signalled_does_not_protect_the_others(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, pids = family
    kill = os.kill

    def refused(pid: int, number: int) -> None:
        if pid == pids[1]:
            raise PermissionError
        kill(pid, number)

    monkeypatch.setattr("penstock.cluster.processes._KILL_S", 0.2)
    monkeypatch.setattr("penstock.cluster.processes.os.kill", refused)
    kill_tree(claim_of(parent.pid))
    monkeypatch.undo()
    assert [pid for pid in pids if _stat(pid) is not None] == [pids[1]]


def test_killing_a_dead_process_succeeds_and_touches_no_other(family: Family) -> None:
    parent, pids = family
    assert kill_tree(claim_of(parent.pid, started=1))
    assert [pid for pid in pids if _stat(pid) is None] == []


def test_a_process_of_another_host_is_not_killed(family: Family) -> None:
    parent, _ = family
    assert not kill_tree(claim_of(parent.pid, host="another"))
    assert state_of(claim_of(parent.pid)) is Process.ALIVE
