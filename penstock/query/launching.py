"""Starts a state server in a separate process, and ends it some time after the process that started it.

The process gets what it serves on standard input: settings can hold secrets, which have no place in arguments. The end
of its input is the end of the job, or of its driver.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

import penstock
from penstock.common.options import store_options
from penstock.common.options.query import LINGER
from penstock.errors import PenstockError
from penstock.query.server import StateServer
from penstock.savepoint.format import savepoint_storage

_log = logging.getLogger("penstock")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
"""Before a killed server starts again. One that lives longer than the longest pause starts with the first one."""


class Launch(msgspec.Struct, kw_only=True, frozen=True):
    """What a process serves."""

    job_id: str
    job_name: str
    root: str
    """The directory of the job with its lineages, as a path or URI."""
    settings: dict[str, str]


class LaunchedServer:
    """A state server for one job, in a separate process. It starts again if it is killed before the job ends."""

    def __init__(self, launch: Launch) -> None:
        """Start it."""
        self._launch = launch
        self._ended = threading.Event()
        self._starting = threading.Lock()
        self.process = self._started()
        self.watched = threading.Thread(target=self._watch, name="penstock-state-server", daemon=True)
        """Ends with the last process."""
        self.watched.start()

    def _started(self) -> subprocess.Popen[bytes]:
        folder = str(Path(penstock.__file__).parents[1])
        path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.query.launching"],
            stdin=subprocess.PIPE,
            # A program that reads the output of the job waits until all processes that have it are gone.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            # A Ctrl-C concerns the job; the server sees the end of its input.
            start_new_session=True,
        )
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(self._launch) + b"\n")
            process.stdin.flush()
        except OSError:
            _log.debug("The state server of job '%s' was killed while it started.", self._launch.job_name)
        return process

    def _watch(self) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            assert self.process.stderr is not None
            for line in self.process.stderr:
                _log.warning("State server: %s", line.decode(errors="replace").rstrip())
            # An error would only repeat itself.
            if self.process.wait() >= 0 or self._ended.is_set():
                return
            pause = _FIRST_PAUSE_S if time.monotonic() - began > _LONGEST_PAUSE_S else min(2 * pause, _LONGEST_PAUSE_S)
            _log.warning("The state server of job '%s' was killed; starting another one.", self._launch.job_name)
            if self._ended.wait(pause):
                return
            with self._starting:
                if self._ended.is_set():
                    return
                self.process = self._started()

    def end(self) -> None:
        """Tell it that the job has ended. It answers for some time after that."""
        with self._starting:
            self._ended.set()
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except OSError:
            # It has ended before.
            pass

    def kill(self) -> None:
        """End it now."""
        self.end()
        self.process.kill()
        self.process.wait()


def serve(launch: Launch, ended: threading.Event) -> None:
    """Serve a job until some time after `ended` is set. Raises CannotServeState."""
    server = StateServer(launch.settings)
    try:
        root = savepoint_storage(launch.root, store_options(launch.settings))
        server.follow(launch.job_id, launch.job_name, root)
        server.start()
        ended.wait()
        # Servers that were started by hand stay.
        server.leave()
        threading.Event().wait(LINGER.read(launch.settings) / 1000)
    finally:
        server.close()


def raise_file_limit() -> None:
    """Allow this process as many open files as the system lets it: each replica on disk has several."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def settings_of_server(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a job that its state server needs."""
    return {key: value for key, value in settings.items() if not key.startswith("spark.")}


def _main() -> int:
    # As in workers: the collector would visit the rows of every scan over and over.
    gc.set_threshold(500_000, 20, 20)
    # A scan would otherwise keep the thread that follows the job waiting for 5 ms at each step.
    sys.setswitchinterval(0.001)
    logging.basicConfig(format="%(message)s")
    # Once the process of the job has ended, nothing reads the messages.
    logging.raiseExceptions = False
    raise_file_limit()
    launch = msgspec.json.decode(sys.stdin.buffer.readline(), type=Launch)
    ended = threading.Event()

    def watch() -> None:
        # Not through the buffer, whose lock would abort the interpreter if it exits during the read.
        while os.read(sys.stdin.fileno(), 1024):
            pass
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    try:
        serve(launch, ended)
    except PenstockError as error:
        _log.error("The state of job '%s' is not served: %s", launch.job_name, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
