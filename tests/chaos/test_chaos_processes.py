"""Processes as the rig sees them: named so that no other is ever hit, and found below their driver."""

import os
import signal
import subprocess
import sys

from chaos.processes import Process, below, process

PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import os; print(os.getpid(), flush=True); input()"], stdin=0).wait()
"""
"""The child prints its own number: until its program has started, /proc shows no command line for it."""


def test_what_is_below_a_process_is_found_and_a_number_used_again_is_not_hit() -> None:
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
