"""The rig identifies processes safely, and finds those below their driver."""

import os
import signal
import subprocess
import sys

from chaos.processes import Process, below, process

PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import os; print(os.getpid(), flush=True); input()"], stdin=0).wait()
"""
"""The child prints its own pid: until its program has started, /proc shows no command line for it."""


def test_child_processes_are_found_and_reused_pids_are_not_signalled() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = process(int(parent.stdout.readline()))
    assert child is not None
    assert list(below(parent.pid)) == [child]
    assert "input()" in child.arguments()
    other = Process(child.pid, child.started + 1)
    assert not other.alive()
    assert not other.send(signal.SIGKILL)
    assert child.alive()
    assert child.send(signal.SIGKILL)
    parent.wait()
    assert not child.alive()
    assert not child.send(signal.SIGKILL)
    assert process(os.getpid()) is not None
