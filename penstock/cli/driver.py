"""The demo's driver as a child process to start, monitor and kill."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType

import msgspec

import penstock
from penstock.cli.demo_job import Event, Work
from penstock.cli.presence import present

# A JVM that loses its Python process exits by itself, but a running epoch can delay it.
_SECONDS_TO_LEAVE = 5.0


class Driver:
    """A driver process. Leaving the `with` block ends the process, its JVM and its workers."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._words: deque[str] = deque(maxlen=60)
        reader, writer = os.pipe()
        home = str(Path(penstock.__file__).parents[1])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.demo_job", str(work.root), str(writer)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[writer],
            # Ctrl-C must reach only the demo, which then ends the driver.
            start_new_session=True,
            env={
                **os.environ,
                "TMPDIR": str(work.scratch),
                "PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")])),
            },
        )
        os.close(writer)
        threading.Thread(target=self._read_events, args=(reader,), daemon=True).start()
        self._reading_words = threading.Thread(target=self._read_words, daemon=True)
        self._reading_words.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def words(self) -> str:
        """The last console output of the driver and its JVM."""
        return "".join(self._words)

    def next_event(self, timeout: float) -> Event | None:
        """Return what the driver tells next, or None when it has ended.

        Raise queue.Empty after `timeout` seconds.
        """
        return self._events.get(timeout=timeout)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        """Return the exit code, or the negative number of the signal that killed the process."""
        return self._process.wait()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        # The JVM shares this standard output, so the thread ends when both processes have exited.
        self._reading_words.join(_SECONDS_TO_LEAVE)
        if self._reading_words.is_alive():
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._reading_words.join(_SECONDS_TO_LEAVE)
        # Workers exit when they lose their JVM.
        deadline = time.monotonic() + _SECONDS_TO_LEAVE
        while present(self._work.workers) and time.monotonic() < deadline:
            time.sleep(0.05)

    def _read_events(self, reader: int) -> None:
        with os.fdopen(reader, "rb") as lines:
            for line in lines:
                # A killed driver can leave a partial line.
                if line.endswith(b"\n"):
                    self._events.put(msgspec.json.decode(line, type=Event))
        self._events.put(None)

    def _read_words(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._words.append(line.decode(errors="replace"))
