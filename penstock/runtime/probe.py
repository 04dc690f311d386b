"""Deterministic crash points: a process that reaches the named point in the named epoch dies by SIGKILL, once.

Off unless the environment variable PENSTOCK_CRASH holds plans `role:point:epoch:marker`, separated by semicolons.
`marker` is a file that is created before dying, so that the next process goes on. Roles: `task` (the Python worker),
`executor` (the worker's executor), `driver`, and `stopped-driver`: it is stopped, and goes on when somebody continues
it. Only the crash tests and the demonstration set it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

VARIABLE = "PENSTOCK_CRASH"


def crash_probe(role: str, epoch: Callable[[], int], scope: str = "") -> Callable[[str], None]:
    """A function to be called with the name of each point reached."""
    plans = [plan.split(":", 3) for plan in os.environ.get(VARIABLE, "").split(";") if plan]
    roles = ("task", "executor") if role == "task" else (role, f"stopped-{role}")
    plans = [plan for plan in plans if plan[0] in roles]
    if not plans:
        return _nothing

    def probe(reached: str) -> None:
        for who, point, number, marker in plans:
            if point in (reached, f"{scope}.{reached}") and int(number) == epoch() and _first(marker):
                if who.startswith("stopped-"):
                    # To this thread: sent to the process, it may reach another one first, and this one goes on a while.
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
    """The executor's JVM: the parent of PySpark's daemon, which is the parent of this worker."""
    with open(f"/proc/{os.getppid()}/stat") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[1])
