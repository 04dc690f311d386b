"""Replicas contain a user's data: other users can neither read nor replace them."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_support import change, contents

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.checkpoint_settings import state_settings
from penstock.state.backend_settings import backend_settings
from penstock.state.backends import Backend, BadBackend, ReplicaStore, check_directory, remove_replicas

NAMES = ["filesystem", "rocksdb"]


@pytest.fixture(autouse=True)
def _loose_umask() -> object:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory that all users can write to, such as /tmp."""
    path = tmp_path / "shared"
    path.mkdir()
    path.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


def by_default(name: str) -> Backend:
    settings = {"state.backend": name, "state.checkpoints.dir": "/never-written"}
    return backend_settings(Configuration.from_dict(settings))[0]


def fill(backend: Backend) -> None:
    engine = ReplicaStore(backend).opener("lineage")("operator", range(3, 4))
    assert engine.apply(engine.position(), [change((b"key", b"secret"))], b"here")
    assert contents(engine) == [(b"key", b"secret")]
    engine.release()


@pytest.mark.parametrize("name", NAMES)
def test_other_users_cannot_access_the_default_directory(name: str, shared: Path) -> None:
    fill(by_default(name))
    (root,) = shared.iterdir()
    assert root.name == f"penstock-replicas-{os.getuid()}"
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "lineage").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", NAMES)
def test_other_users_cannot_access_replicas_in_a_configured_directory(name: str, shared: Path) -> None:
    backend = Backend(name=name, directories=[str(shared)])
    fill(backend)
    assert stat.S_IMODE((shared / "lineage").stat().st_mode) == 0o700


def test_lmdb_files_are_accessible_only_to_their_owner(shared: Path) -> None:
    fill(by_default("filesystem"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in shared.rglob("*") if path.is_file()}
    assert {"data.mdb", "lock.mdb", "guard", "stamp"} <= modes.keys()
    assert set(modes.values()) == {0o600}


def of_another_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: path.stat().st_uid + 1)
    return "belongs to another user"


def open_to_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path.mkdir()
    path.chmod(0o777)
    return "writable by other users .mode 777"


def a_link(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    elsewhere = path.with_name("elsewhere")
    elsewhere.mkdir(mode=0o700)
    path.symlink_to(elsewhere)
    return "cannot be opened as a directory"


def a_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path.write_text("")
    return "cannot be opened as a directory"


Attack = Callable[[Path, pytest.MonkeyPatch], str]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attack", [of_another_user, open_to_others, a_link, a_file])
def test_a_directory_that_another_user_could_have_created_is_rejected(
    name: str, attack: Attack, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = by_default(name)
    root = Path(backend.directories[0])
    words = attack(root, monkeypatch)
    for use in (check_directory, fill):
        with pytest.raises(BadBackend, match=words) as caught:
            use(backend)
        assert str(root) in str(caught.value)
        assert "state.backend.local-dir" in str(caught.value.fix)
    assert not root.is_dir() or list(root.iterdir()) == []


@pytest.mark.parametrize("attack", [of_another_user, a_link])
def test_a_run_directory_created_by_another_user_is_rejected(
    attack: Attack, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = attack(shared / "lineage", monkeypatch)
    with pytest.raises(BadBackend, match=words):
        fill(Backend(name="filesystem", directories=[str(shared)]))


def test_a_run_directory_writable_by_others_is_made_private(shared: Path) -> None:
    (shared / "lineage").mkdir(mode=0o775)
    fill(Backend(name="filesystem", directories=[str(shared)]))
    assert stat.S_IMODE((shared / "lineage").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", NAMES)
def test_a_replaced_directory_is_not_followed(name: str, shared: Path) -> None:
    shared.chmod(0o777)  # without the sticky bit, any user can rename its contents
    backend = by_default(name)
    root = Path(backend.directories[0])
    store = ReplicaStore(backend)
    store.opener("lineage")("operator", range(3, 4)).apply(None, [], b"here")
    root.rename(shared / "moved")
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    engine = store.opener("lineage")("operator", range(3, 4))
    assert engine.position() == b"here"
    engine.release()
    assert list(root.iterdir()) == []
    with pytest.raises(BadBackend):
        fill(backend)


@pytest.mark.parametrize("mode", [0o1777, 0o777])
def test_a_deleted_directory_is_created_again(mode: int, shared: Path) -> None:
    shared.chmod(mode)
    backend = by_default("filesystem")
    store = ReplicaStore(backend)
    store.opener("lineage")("operator", range(3, 4)).apply(None, [], b"here")
    shutil.rmtree(backend.directories[0])
    engine = store.opener("lineage")("operator", range(4, 5))
    assert engine.position() is None
    assert engine.apply(None, [], b"there")


def test_removing_the_replicas_of_a_run_does_not_follow_links(shared: Path, tmp_path: Path) -> None:
    backend = by_default("filesystem")
    fill(backend)
    root = Path(backend.directories[0])
    remove_replicas(backend, "lineage")
    assert list(root.iterdir()) == []
    root.rmdir()
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "lineage").mkdir(parents=True)
    root.symlink_to(elsewhere)
    remove_replicas(backend, "lineage")
    assert (elsewhere / "lineage").exists()


def test_a_job_with_an_unsafe_replica_directory_is_rejected_before_spark_starts(shared: Path, tmp_path: Path) -> None:
    settings = {"state.checkpoints.dir": str(tmp_path / "checkpoints")}
    env = StreamExecutionEnvironment(Configuration.from_dict(settings))
    (shared / f"penstock-replicas-{os.getuid()}").symlink_to(tmp_path)
    with pytest.raises(BadBackend, match="penstock-replicas"):
        state_settings(env.get_configuration(), "orders")
