"""Files in, state, files out, with processes killed at each step: every record in exactly one finished part file.

While the job runs, a reader repeatedly looks at the output, as any other program might: a visible file must be complete
and must not change.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from file_job import run as run_here
from programs import words
from test_crashes import plan

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# With a sink in the chain of the keyed operator there are two levels: the source and this chain.
TASK_POINTS = [
    *(f"source.{point}" for point in ("processed", "snapshot", "reported")),
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
]
# Workers are killed at each point; executors at those of the sink and at those that test_nondeterminism.py omits.
EXECUTOR_POINTS = TASK_POINTS[1:2] + TASK_POINTS[3:]
# Nothing is prepared yet; all is prepared but nothing committed. test_crashes.py covers the others, the harness all.
DRIVER_POINTS = ["triggered", "published"]
FILES, LINES = 10, 12


def write_input(directory: Path) -> Counter[str]:
    """Write files of words; return the expected output: one line per record, each count of each word once."""
    (directory / "in").mkdir()
    every: list[str] = []
    for number in range(FILES):
        some = words(LINES, number + 3)
        every += some
        (directory / "in" / f"{number:03d}.txt").write_text("".join(f"{word}\n" for word in some))
    return Counter(f"{word} {n + 1}" for word, count in Counter(every).items() for n in range(count))


def visible(directory: Path) -> list[Path]:
    """Return the files that directory readers such as Spark, Hadoop and Arrow see: no names with a leading dot."""
    files = []
    for folder, inner, names in os.walk(directory):
        inner[:] = [name for name in inner if not name.startswith((".", "_"))]
        files += [Path(folder, name) for name in names if not name.startswith((".", "_"))]
    return sorted(files)


class Reader(threading.Thread):
    """Repeatedly reads every visible file of a directory and records those that are incomplete or change."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self._directory = directory
        self._stopped = threading.Event()
        self.seen: dict[str, bytes] = {}
        self._stamps: dict[str, tuple[int, ...]] = {}
        self.wrong: list[str] = []
        self.looks = 0

    def run(self) -> None:
        while not self._stopped.wait(0.002):
            self.look()

    def look(self, everything: bool = False) -> None:
        """Read the files that changed since the last look, or `everything`."""
        self.looks += 1
        for path in visible(self._directory):
            name = str(path.relative_to(self._directory))
            stat = path.stat()
            stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            if self._stamps.get(name) == stamp and not everything:
                continue
            self._stamps[name] = stamp
            data = path.read_bytes()
            if not data or not data.endswith(b"\n"):
                self.wrong.append(f"{name} was seen half-written")
            if self.seen.setdefault(name, data) != data:
                self.wrong.append(f"{name} changed after it was seen")
        gone = [name for name in self.seen if not (self._directory / name).exists()]
        self.wrong += [f"{name} went away" for name in gone]

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def run(directory: Path, master: str, policy: str, crashes: str) -> subprocess.CompletedProcess[str]:
    arguments = directory / "arguments.json"
    arguments.write_text(json.dumps({"directory": str(directory), "master": master, "policy": policy}))
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name("file_job.py")), str(arguments)],
        env={**os.environ, "PENSTOCK_CRASH": crashes},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=280,
    )


def check_output(directory: Path, expected: Counter[str], reader: Reader) -> None:
    reader.stop()
    reader.look(everything=True)
    assert reader.wrong == []
    assert reader.looks > 10
    lines = [line for data in reader.seen.values() for line in data.decode().splitlines()]
    assert Counter(lines) == expected
    everything = sorted(path for path in (directory / "out").rglob("*") if path.is_file())
    assert everything == visible(directory / "out")


@pytest.mark.parametrize(
    ("role", "master", "policy", "points"),
    [
        ("task", "local[2]", "by size", TASK_POINTS),
        ("executor", "local-cluster[2,1,1024]", "each checkpoint", EXECUTOR_POINTS),
    ],
)
def test_output_is_correct_after_a_worker_or_executor_is_killed_at_each_step(
    tmp_path: Path, role: str, master: str, policy: str, points: list[str]
) -> None:
    expected = write_input(tmp_path)
    reader = Reader(tmp_path / "out")
    reader.start()
    crashes, markers = plan(role, points, tmp_path)
    done = run(tmp_path, master, policy, crashes)
    assert done.returncode == 0, done.stderr
    assert all(marker.exists() for marker in markers)
    check_output(tmp_path, expected, reader)


def test_output_is_correct_after_a_driver_is_killed_before_writing_and_before_committing(
    session: Any, tmp_path: Path
) -> None:
    expected = write_input(tmp_path)
    reader = Reader(tmp_path / "out")
    reader.start()
    crashes, markers = plan("driver", DRIVER_POINTS, tmp_path)
    for marker in markers:
        done = run(tmp_path, "local[2]", "by size", crashes)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert marker.exists()
    run_here(str(tmp_path), "local[2]", "by size", session)
    check_output(tmp_path, expected, reader)
