"""The processes of a job as seen in /proc, and the driver that the rig starts and ends."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from chaos import storage_faults
from chaos.job import SAYS

_TASKS = "spark.daemon pyspark.worker"
"""The end of the command lines of the task daemon and of the workers it forks; other daemons only plan."""
_EXECUTOR = "CoarseGrainedExecutorBackend"
_ROOT = Path(__file__).resolve().parent.parent


class Process(NamedTuple):
    """A process identified by pid and start time, since pids are reused."""

    pid: int
    started: int

    def alive(self) -> bool:
        found = _stat(self.pid)
        return found is not None and found[1] == self.started and found[2] != "Z"

    def send(self, number: int) -> bool:
        """Send a signal. Return whether the process was still alive."""
        if not self.alive():
            return False
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False

    def arguments(self) -> str:
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return ""

    def directory(self) -> Path | None:
        with suppress(OSError):
            return Path(os.readlink(f"/proc/{self.pid}/cwd"))
        return None


def _stat(pid: int) -> tuple[int, int, str] | None:
    """Return parent, start time and state."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return int(text[1]), int(text[19]), text[0]


def process(pid: int) -> Process | None:
    found = _stat(pid)
    return None if found is None else Process(pid, found[1])


def children() -> dict[int, list[Process]]:
    """Return all processes of this machine by parent."""
    found: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (stat := _stat(int(name))) is not None:
            found.setdefault(stat[0], []).append(Process(int(name), stat[1]))
    return found


def below(root: int) -> Iterator[Process]:
    tree = children()
    rows = [root]
    while rows:
        for each in tree.get(rows.pop(), []):
            yield each
            rows.append(each.pid)


class Driver:
    """One run of the victim. Its output goes to a file, and its messages for the rig to `events`."""

    def __init__(self, work: Path, log: Path, arguments: dict[str, object], program: str = "chaos.job") -> None:
        """`program`: the module to run."""
        self.log = log
        self.events: queue.Queue[list[str]] = queue.Queue()
        self.seen: set[Process] = set()
        """All processes ever found below it: a killed driver can leave some behind."""
        self.executor_directories: set[Path] = set()
        file = work / "arguments.json"
        file.write_text(json.dumps(arguments))
        roots = [str(work / "checkpoints"), str(work / "replicas"), str(work / "out")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            storage_faults.VARIABLE: os.pathsep.join([str(work / "storage"), *roots]),
            "PYTHONUNBUFFERED": "1",
        }
        # A pipe, not a file: limits on file size must not silence the driver.
        self._popen = subprocess.Popen(
            [sys.executable, "-m", program, str(file)],
            env=environment,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        started = process(self._popen.pid)
        assert started is not None
        self.python = started
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        with self.log.open("ab", buffering=0) as log:
            for line in self._popen.stdout:
                log.write(line)
                words = line.decode(errors="replace").split()
                if words[:1] == [SAYS]:
                    self.events.put(words[1:])

    def code(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._popen.poll()

    def look(self) -> list[Process]:
        found = list(below(self.python.pid))
        self.seen.update(found)
        for each in found:
            if _EXECUTOR in each.arguments() and (directory := each.directory()) is not None:
                self.executor_directories.add(directory)
        return found

    def jvm(self) -> Process | None:
        tree = children()
        return next((each for each in tree.get(self.python.pid, []) if "java" in each.arguments()), None)

    def executors(self) -> list[Process]:
        return [each for each in self.look() if _EXECUTOR in each.arguments()]

    def workers(self) -> list[Process]:
        """Return the Python processes that run tasks: the children of PySpark's task daemon, not the daemon itself."""
        alike = {each.pid: each for each in self.look() if each.arguments().endswith(_TASKS)}
        parents = {pid: stat[0] for pid in alike if (stat := _stat(pid)) is not None}
        return sorted(alike[pid] for pid, parent in parents.items() if parent in alike)

    def kill(self) -> None:
        """Kill Python and the JVM together; workers have to notice by themselves."""
        jvm = self.jvm()
        self.look()
        self.python.send(signal.SIGKILL)
        if jvm is not None:
            jvm.send(signal.SIGKILL)

    def tell_stacks(self) -> None:
        """Dump the stacks of all Python threads to the log, and those of the JVM to a file next to it."""
        jvm = self.jvm()
        self.python.send(signal.SIGUSR1)
        if jvm is not None and (program := shutil.which("jstack")) is not None:
            with self.log.with_suffix(".jvm").open("wb") as file, suppress(subprocess.TimeoutExpired):
                subprocess.run([program, str(jvm.pid)], stdout=file, stderr=file, timeout=30)

    def wait(self, seconds: float) -> int | None:
        try:
            code = self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join(10)
        return code

    def left(self) -> list[Process]:
        """Return its processes that are still running."""
        return [each for each in {*self.seen, self.python} if each.alive()]

    def end_all(self, patience: float) -> list[Process]:
        """Wait for leftover processes of a dead driver, then kill them. Return those that had to be killed."""
        deadline = time.monotonic() + patience
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.05)
        for each in left:
            each.send(signal.SIGKILL)
        self._popen.wait()
        return left
