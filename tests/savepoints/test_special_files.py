"""Savepoint and checkpoint files that are not regular, are huge or cannot be read: no operation hangs or reads without
end, and such a file does not hide the others."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from savepoint_jobs import sums
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import PenstockError
from penstock.savepoint import format as savepoints
from penstock.savepoint.format import (
    SavepointError,
    dispose_savepoint,
    list_savepoints,
    load_savepoint,
    savepoint_storage,
)
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage
from penstock.state.storage import MissingObject, StorageError
from penstock.tables import Checkpoint, Savepoint, history
from penstock.testing import JobHarness

# Opening a FIFO naively waits for a writer forever.
pytestmark = pytest.mark.timeout(30)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with JobHarness(sums(), parallelism=2) as job:
        job.push(*((key, 1) for key in range(100))).epoch()
        return Path(job.savepoint(folder))


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "savepoint-good")
    shutil.copytree(made, tmp_path / "savepoint-odd")
    return tmp_path / "savepoint-odd"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(path.parent, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def huge(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


Make = Callable[[Path], None]
NOT_READABLE = [fifo, endless_device, a_socket, loop, huge]


def put(make: Make, path: Path) -> None:
    path.unlink()
    make(path)


def call(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.output


@pytest.mark.parametrize("make", NOT_READABLE)
class TestMetadata:
    def test_every_command_refuses_metadata_that_is_not_a_regular_file(self, path: Path, make: Make) -> None:
        put(make, path / "_metadata")
        good = str(path.with_name("savepoint-good"))
        for command in (
            ["savepoint", "inspect", str(path)],
            ["savepoint", "diff", good, str(path)],
            ["savepoint", "-d", str(path)],
            ["state", "ls", str(path)],
            ["state", "get", str(path), "sum", "sum"],
        ):
            code, said = call(*command)
            assert code == 1, command
            assert "'_metadata'" in said
            assert str(path) in said
        assert len(list((path / "state").iterdir())) > 10

    def test_metadata_that_is_not_a_regular_file_is_not_restored(self, path: Path, make: Make) -> None:
        put(make, path / "_metadata")
        with pytest.raises(PenstockError, match="'_metadata'"):
            JobHarness(sums(), from_savepoint=str(path))

    def test_metadata_that_is_not_a_regular_file_does_not_hide_other_savepoints(self, path: Path, make: Make) -> None:
        put(make, path / "_metadata")
        code, said = call("savepoint", "list", str(path.parent))
        lines = {line.split()[0]: line for line in said.splitlines()}
        assert code == 0
        assert "harness" in lines[str(path.with_name("savepoint-good"))]
        assert "Cannot read" in lines[str(path)] or "at most" in lines[str(path)]
        found = {each.name: each for each in Savepoint.list(path.parent)}
        assert found["savepoint-good"].metadata is not None
        assert found["savepoint-odd"].metadata is None
        assert "_metadata" in found["savepoint-odd"].problem
        assert history(path.parent, "sum", "sum", 1)


@pytest.mark.parametrize("make", NOT_READABLE)
def test_a_block_that_is_not_a_regular_file_is_refused(path: Path, make: Make) -> None:
    block = sorted((path / "state").iterdir())[0]
    put(make, block)
    with pytest.raises(PenstockError, match=f"state/{block.name}"):
        JobHarness(sums(), from_savepoint=str(path))
    with pytest.raises(PenstockError, match=f"state/{block.name}"):
        list(Savepoint.load(path).state("sum", "sum").rows())


def test_an_unreadable_directory_does_not_hide_other_savepoints(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a directory of another user, because root can read everything."""

    def refused(call: Callable[..., Any]) -> Callable[..., Any]:
        def act(where: Any = ".", *rest: Any, **more: Any) -> Any:
            if isinstance(where, (str, os.PathLike)) and os.fspath(where).startswith(str(path)):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(where))
            return call(where, *rest, **more)

        return act

    for name in ("open", "scandir", "stat", "listdir"):
        monkeypatch.setattr(os, name, refused(getattr(os, name)))
    found = {each.name: each for each in list_savepoints(savepoint_storage(str(path.parent)))}
    assert found["savepoint-good"].metadata is not None
    assert "Permission denied" in found["savepoint-odd"].problem
    with pytest.raises(StorageError, match="Permission denied"):
        load_savepoint(savepoint_storage(str(path)))
    with pytest.raises(StorageError, match=r"Cannot list .*Permission denied"):
        LocalStorage(path.parent).list("")
    with pytest.raises(StorageError, match="Permission denied"):
        LocalStorage(path).exists("_metadata")


def test_empty_directories_and_links_are_not_listed(path: Path) -> None:
    (path.parent / "savepoint-empty").mkdir()
    (path.parent / "savepoint-link").symlink_to(path)
    (path.parent / "savepoint-file").write_text("")
    assert [each.name for each in Savepoint.list(path.parent)] == ["savepoint-good", "savepoint-odd"]


class TestDisposing:
    @pytest.mark.parametrize("name", ["state", "_metadata"])
    def test_disposing_of_a_savepoint_with_a_link_removes_nothing(self, path: Path, tmp_path: Path, name: str) -> None:
        elsewhere = tmp_path / "elsewhere"
        (path / name).rename(elsewhere)
        (path / name).symlink_to(elsewhere)
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SavepointError, match=f"'{name}' of the savepoint in .* is a link"):
            dispose_savepoint(savepoint_storage(str(path)))
        code, said = call("savepoint", "-d", str(path))
        assert code == 1
        assert "None" not in said
        assert "Nothing was changed" in said
        assert sorted(tmp_path.rglob("*")) == before

    def test_disposing_does_not_follow_links_among_the_blocks(self, path: Path, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "file").write_text("kept")
        (path / "state" / "folder").symlink_to(elsewhere)
        (path / "state" / "file").symlink_to(elsewhere / "file")
        dispose_savepoint(savepoint_storage(str(path)))
        assert not path.exists()
        assert (elsewhere / "file").read_text() == "kept"

    def test_a_failed_deletion_reports_the_reason(self, tmp_path: Path) -> None:
        (tmp_path / "linked").symlink_to(tmp_path)
        with pytest.raises(StorageError, match=r"Cannot delete 'linked'.*symbolic link"):
            LocalStorage(tmp_path).delete_below("linked")


def test_metadata_on_an_object_store_has_a_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = ObjectStorage("memory://special-files/savepoint")
    storage.write("_metadata", bytes(5000))
    monkeypatch.setattr(savepoints, "_LARGEST_METADATA", 4999)
    with pytest.raises(StorageError, match=r"'_metadata' in memory://.* has 5,000 bytes.*at most 4,999"):
        load_savepoint(storage)
    with pytest.raises(MissingObject):
        storage.read("else", 10)


def test_metadata_too_large_to_read_is_not_written(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = load_savepoint(savepoint_storage(str(made)))
    monkeypatch.setattr(savepoints, "_LARGEST_METADATA", 2000)
    with pytest.raises(SavepointError, match="operator state"):
        savepoints.publish_metadata(LocalStorage(tmp_path), metadata)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with JobHarness(sums(), backend="filesystem", storage=LocalStorage(tmp_path / "run")) as job:
        for number in range(4):
            job.push(*((key, number) for key in range(10))).epoch()
    return tmp_path / "run"


@pytest.mark.parametrize("make", NOT_READABLE)
def test_a_checkpoint_that_is_not_a_regular_file_does_not_hide_others(
    run: Path, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = [checkpoint.manifest.id for checkpoint in Checkpoint.list(run)]
    last = run / "manifests" / f"{numbers[-1]:012d}"
    put(make, last)
    assert [checkpoint.manifest.id for checkpoint in Checkpoint.list(run)] == numbers[:-1]
    assert f"Checkpoint {numbers[-1]} in {run} is left out" in caplog.text
    for command in (["state", "ls", str(run)], ["state", "get", str(run), "sum", "sum"], ["state", "ls", str(last)]):
        code, said = call(*command)
        assert code == 1, command
        assert last.name in said
    with pytest.raises(PenstockError, match=last.name):
        JobHarness(sums(), backend="filesystem", storage=LocalStorage(run))
