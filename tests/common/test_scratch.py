"""Scratch directories of drivers are removed with their driver, and never before."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.common import scratch
from penstock.common.scratch import remove_scratch, scratch_directory

DRIVER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from penstock.common.scratch import scratch_directory
print(scratch_directory(), flush=True)
sys.stdin.read()
"""

IN_ANOTHER_NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    for path in list(scratch._held):
        if path.is_relative_to(tmp_path):
            remove_scratch(path)


class Driver:
    def __init__(self, temporary: Path, *how: str) -> None:
        self.process = subprocess.Popen(
            [*how, sys.executable, "-c", DRIVER, str(temporary)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.directory = Path(self.process.stdout.readline().strip())

    def end(self) -> None:
        self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_a_sweep_removes_the_directory_of_a_killed_driver_but_not_of_a_live_one(temporary: Path) -> None:
    live, killed, ended = Driver(temporary), Driver(temporary), Driver(temporary)
    (live.directory / "spark-log").write_text("x")
    killed.kill()
    ended.end()
    assert not ended.directory.exists()
    assert killed.directory.exists()
    scratch_directory()
    assert not killed.directory.exists()
    assert (live.directory / "spark-log").exists()
    live.end()
    assert not live.directory.exists()


def test_a_driver_in_another_pid_namespace_does_not_sweep_a_live_driver(temporary: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run([*IN_ANOTHER_NAMESPACE, "true"], stderr=-3).returncode:
        pytest.skip("this user cannot make PID namespaces")
    mine = scratch_directory()
    other = Driver(temporary, *IN_ANOTHER_NAMESPACE)
    assert mine.exists()
    another = scratch_directory()
    assert other.directory.exists()
    assert another.exists()
    other.end()
    assert not other.directory.exists()


def test_a_directory_without_a_lock_file_is_not_swept(temporary: Path) -> None:
    # An earlier version created it, in this PID namespace or another.
    earlier = temporary / "penstock-driver-4194305-abcdefgh"
    being_made = temporary / "penstock-scratch-abcdefgh"
    for path in (earlier, being_made):
        path.mkdir()
    scratch_directory()
    assert earlier.exists()
    assert being_made.exists()


def test_a_directory_swept_before_it_is_locked_is_created_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, swept = fcntl.flock, []

    def slow(file: int, how: int) -> None:
        if how == fcntl.LOCK_EX and not swept:
            swept.extend(temporary.iterdir())
            scratch._sweep(str(temporary))
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    path = scratch_directory()
    assert swept
    assert swept != [path]
    assert not swept[0].exists()
    assert path.exists()


def test_directories_of_other_users_and_links_are_left_alone(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (temporary / "penstock-scratch-link").symlink_to(elsewhere)
    other = temporary / "penstock-scratch-other"
    other.mkdir()
    (other / "lock").touch()
    user = os.getuid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getuid", lambda: user + 1)
        scratch._sweep(str(temporary))
        assert other.exists()
    scratch._sweep(str(temporary))
    assert not other.exists()
    assert (elsewhere / "lock").exists()


def test_removing_releases_the_lock_and_can_be_repeated(temporary: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        path = scratch_directory()
        assert path.stat().st_mode & 0o077 == 0
        remove_scratch(path)
        remove_scratch(path)
        assert not path.exists()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_forked_child_does_not_remove_directories_of_its_parent(temporary: Path) -> None:
    program = DRIVER.replace(
        "sys.stdin.read()",
        "import os\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\nprint(d.exists())",
    ).replace("print(scratch_directory(), flush=True)", "d = scratch_directory()")
    done = subprocess.run([sys.executable, "-c", program, str(temporary)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]
    assert list(temporary.iterdir()) == []
