"""Unusable checkpoints: the error names the damage, nothing is destroyed, and a repair is sufficient."""

from __future__ import annotations

import hashlib
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.checkpoint.manifest import FORMAT, BadManifest, digest_of
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.epoch_errors import EpochFailed
from penstock.driver.epoch_settings import Settings
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import StorageError
from penstock.testing import JobHarness

FILES = Settings(backend="filesystem", inline_bytes=0)
LAST = "manifests/000000000003"


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.n.update((self.n.value() or 0) + 1)
        yield value, self.n.value()


def start(root: Path) -> JobHarness:
    env = StreamExecutionEnvironment.get_execution_environment()
    counts = env.from_collection([]).uid("words").key_by(lambda word: word).process(Count()).name("counts").uid("count")
    return JobHarness(counts, storage=LocalStorage(root), settings=FILES)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the checkpoints of a job that counted two words in three epochs and whose processes are gone."""
    root = tmp_path / "checkpoints"
    with start(root) as job:
        for _ in range(3):
            job.push("a", "b").epoch()
    return root


def checksum(root: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        total.update(f"{path.relative_to(root)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def go_on(root: Path) -> list[Any]:
    """Run the fourth epoch in new processes and return its output."""
    with start(root) as job:
        return job.push("a", "b").epoch() and job.output


def delta(root: Path, epoch: int) -> Path:
    (path,) = (root / "deltas" / f"{epoch:012d}").iterdir()
    return path


def rewritten(root: Path, change: Callable[[list[Any]], None]) -> None:
    """Rewrite the last manifest with changed content and a matching hash."""
    path = root / LAST
    body = msgspec.msgpack.decode(path.read_bytes()[16:])
    change(body)
    data = msgspec.msgpack.encode(body)
    path.write_bytes(digest_of(data) + data)


def newer(root: Path) -> str:
    rewritten(root, lambda body: body.__setitem__(0, FORMAT + 1))
    version = f"this version of Penstock reads formats 2 to {FORMAT}"
    return f"{LAST} in {root}, checkpoint 3, has format {FORMAT + 1}; {version}"


def flipped_manifest(root: Path) -> str:
    flip(root / LAST)
    return f"{LAST} in {root}, checkpoint 3, is damaged"


def truncated_manifest(root: Path) -> str:
    path = root / "manifests" / "000000000002"
    path.write_bytes(path.read_bytes()[:-10])
    return f"manifests/000000000002 in {root}, checkpoint 2, is damaged"


def missing_manifest(root: Path) -> str:
    (root / "manifests" / "000000000002").unlink()
    return rf"'manifests/000000000002' is missing in file://{root}"


def replaced_manifest(root: Path) -> str:
    (root / "manifests" / "000000000002").write_bytes((root / "manifests" / "000000000001").read_bytes())
    return "manifests/000000000002 in .* was replaced by another"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def flipped_delta(root: Path) -> str:
    path = delta(root, 2)
    data = bytearray(path.read_bytes())
    # In the last batch: before the footer and its length prefix.
    data[-len(b"ARROW1") - 4 - int.from_bytes(data[-10:-6], "little") - 8 - 1] ^= 1
    path.write_bytes(data)
    return rf"Operator 'counts' \(uid 'count'\): Corrupt: '{path.relative_to(root)}', the delta of checkpoint 2 for "


def truncated_delta(root: Path) -> str:
    path = delta(root, 1)
    path.write_bytes(path.read_bytes()[:100])
    return rf"Corrupt: '{path.relative_to(root)}', the delta of checkpoint 1 for operator 'count', in {root}"


def empty_delta(root: Path) -> str:
    path = delta(root, 3)
    path.write_bytes(b"")
    return rf"Corrupt: '{path.relative_to(root)}', the delta of checkpoint 3 for operator 'count', in {root}"


def missing_delta(root: Path) -> str:
    path = delta(root, 1)
    path.unlink()
    return (
        rf"Operator 'counts' \(uid 'count'\): '{path.relative_to(root)}', the delta of checkpoint 1 for operator "
        rf"'count', is missing in {root}"
    )


@pytest.mark.parametrize(
    "damage",
    [
        newer,
        flipped_manifest,
        truncated_manifest,
        missing_manifest,
        replaced_manifest,
        flipped_delta,
        truncated_delta,
        empty_delta,
        missing_delta,
    ],
)
def test_damage_is_named_nothing_is_destroyed_and_a_repair_is_sufficient(
    root: Path, damage: Callable[[Path], str]
) -> None:
    intact = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    message = damage(root)
    before = checksum(root)
    for _ in range(2):
        with pytest.raises((BadManifest, EpochFailed, StorageError), match=message) as error:
            go_on(root)
        assert checksum(root) == before
        assert error.value.fix.startswith("Run the version" if damage is newer else "Restore it from a backup")
        assert "Nothing was changed" in error.value.fix
        assert damage is newer or "execution.checkpointing.num-retained" in error.value.fix
    for path, data in intact.items():
        path.write_bytes(data)
    assert sorted(go_on(root)) == [("a", 4), ("b", 4)]


def test_a_warm_replica_does_not_read_old_deltas(tmp_path: Path) -> None:
    """A missing delta can therefore be detected late, which is not a reason to fail earlier."""
    root = tmp_path / "checkpoints"
    with start(root) as job:
        job.push("a").epoch()
        job.push("a").epoch()
        delta(root, 1).unlink()
        job.push("a").epoch()
        assert job.output[-1] == ("a", 3)


FULL_DISK = """
import resource, sys
sys.path[:0] = [{tests!r}]
from test_damage import *

root = Path({root!r})
job = start(root)
job.push("x" * {size}).epoch()
before = checksum(root)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
try:
    job.push("y" * {size}).epoch()
except EpochFailed as error:
    print(type(error).__name__, error, sep="|")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(checksum(root) == before)
job.crash()
job.epoch()
print([n for _, n in job.output], job.checkpoint)
"""


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY, reason="the limit could not be lifted again"
)
def test_a_full_disk_fails_the_epoch_and_the_job_continues_once_there_is_space(tmp_path: Path) -> None:
    code = FULL_DISK.format(tests=str(Path(__file__).parent), root=str(tmp_path / "c"), size=300_000, limit=200_000)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    failure, unchanged, output = done.stdout.splitlines()
    assert failure.startswith(
        "EpochFailed|Epoch 2 was declined: Operator 'counts' (uid 'count'): Cannot write 'deltas/"
    )
    assert "File too large. Make sure that the directory exists, is writable and has free space" in failure
    assert "(state.checkpoints.dir)" in failure
    assert (unchanged, output) == ("True", "[1, 1] 2")
