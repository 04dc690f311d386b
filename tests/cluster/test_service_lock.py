"""The lock of a service's directory: one service at a time, whose process commands can find."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.cluster.processes import this_process
from penstock.cluster.service_lock import AlreadyRunning, ServiceLock, holder_of, is_held, send_signal

HOLDER = """
import sys, time
from pathlib import Path
from penstock.cluster.service_lock import ServiceLock
lock = ServiceLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def another_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_second_service_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = ServiceLock(path)
    with pytest.raises(AlreadyRunning, match=f"process {os.getpid()}"):
        ServiceLock(path)
    assert holder_of(path) == this_process()
    first.close()
    assert not is_held(path)
    assert holder_of(path) is None
    ServiceLock(path).close()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with another_process(path) as process:
        holder = holder_of(path)
        assert holder is not None
        assert holder.pid == process.pid
        process.kill()
        process.wait()
        assert not is_held(path)
        assert holder_of(path) is None
        assert not send_signal(holder, signal.SIGTERM)
    ServiceLock(path).close()


def test_a_signal_reaches_the_holder(tmp_path: Path) -> None:
    with another_process(tmp_path / "lock") as process:
        holder = holder_of(tmp_path / "lock")
        assert holder is not None
        assert send_signal(holder, signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM


def test_a_later_process_with_the_same_id_gets_no_signal(tmp_path: Path) -> None:
    with another_process(tmp_path / "lock") as process:
        holder = holder_of(tmp_path / "lock")
        assert holder is not None
        assert not send_signal(holder._replace(started=holder.started - 1), signal.SIGTERM)
        assert process.poll() is None


def test_children_of_the_service_do_not_keep_the_lock(tmp_path: Path) -> None:
    lock = ServiceLock(tmp_path / "lock")
    with subprocess.Popen(["sleep", "600"], close_fds=False) as child:
        lock.close()
        assert not is_held(tmp_path / "lock")
        child.kill()


def test_commands_that_look_at_the_lock_do_not_keep_a_service_from_starting(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            is_held(path)
            time.sleep(0)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            ServiceLock(path).close()
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_directory_without_a_lock_has_no_service(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "lock")
    assert holder_of(tmp_path / "lock") is None
