"""Deterministic crash points: a process that reaches a given point in a given epoch is killed by SIGKILL, once.

Disabled unless the environment variable PENSTOCK_CRASH holds plans `role:point:epoch:marker`, separated by semicolons.
The process creates the file `marker` before it dies, and later processes skip a plan whose marker exists. Roles: `task`
(the Python worker), `executor` (the worker's executor), `driver`, and `stopped-driver`, which is stopped by SIGSTOP
until it receives SIGCONT. Only the crash tests and the demonstration set the variable.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

VARIABLE = "PENSTOCK_CRASH"


def crash_probe(role: str, epoch: Callable[[], int], scope: str = "") -> Callable[[str], None]:
    """Return a function to call with the name of each point reached."""
    plans = [plan.split(":", 3) for plan in os.environ.get(VARIABLE, "").split(";") if plan]
    roles = ("task", "executor") if role == "task" else (role, f"stopped-{role}")
    plans = [plan for plan in plans if plan[0] in roles]
    if not plans:
        return _nothing

    def probe(reached: str) -> None:
        for who, point, number, marker in plans:
            if point in (reached, f"{scope}.{reached}") and int(number) == epoch() and _first(marker):
                if who.startswith("stopped-"):
                    # To this thread: a signal to the process might reach another thread first and let this one run on.
                    signal.raise_signal(signal.SIGSTOP)
                    return
                os.kill(_executor_pid() if who == "executor" else os.getpid(), signal.SIGKILL)
                signal.pause()

    return probe


def _nothing(point: str) -> None:
    pass


def _first(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _executor_pid() -> int:
    """Return the pid of the executor's JVM: the parent of PySpark's daemon, which is the parent of this worker."""
    with open(f"/proc/{os.getppid()}/stat") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[1])
