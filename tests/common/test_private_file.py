"""Files that only this user can access."""

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.common.private_directory import NotPrivate
from penstock.common.private_file import create_private, read_private, replace_private

WRITES = pytest.mark.parametrize("write", [create_private, replace_private])
Write = Callable[[Path, bytes], None]


@WRITES
def test_a_file_is_read_as_it_was_written(write: Write, tmp_path: Path) -> None:
    write(tmp_path / "secret", b"content")
    assert read_private(tmp_path / "secret", 100) == b"content"
    assert os.listdir(tmp_path) == ["secret"]


@WRITES
def test_no_umask_opens_a_file_to_other_users(write: Write, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write(tmp_path / "secret", b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_the_first_creator_wins_and_a_replacement_always_does(tmp_path: Path) -> None:
    create_private(tmp_path / "secret", b"first")
    create_private(tmp_path / "secret", b"second")
    assert read_private(tmp_path / "secret", 100) == b"first"
    replace_private(tmp_path / "secret", b"third")
    assert read_private(tmp_path / "secret", 100) == b"third"


def test_concurrent_creators_see_one_content(tmp_path: Path) -> None:
    def create(number: int) -> bytes:
        create_private(tmp_path / "secret", f"content {number}".encode())
        return read_private(tmp_path / "secret", 100)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(create, range(32)))) == 1
    assert os.listdir(tmp_path) == ["secret"]


@WRITES
def test_content_name_and_directory_become_durable_in_this_order(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, bool]] = []
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        steps.append(("directory" if path == tmp_path else "content", (tmp_path / "secret").exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write(tmp_path / "secret", b"content")
    assert steps == [("content", False), ("directory", True)]


@WRITES
def test_a_full_disk_leaves_nothing_behind(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "secret", b"content")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.mkdir(mode=0o700), "is not a regular file"),
        (lambda path: os.mkfifo(path, 0o600), "is not a regular file"),
        (lambda path: path.symlink_to("/etc/hostname"), "is a symbolic link"),
        (lambda path: path.symlink_to("missing"), "is a symbolic link"),
        (lambda path: path.touch(mode=0o640), r"is accessible to other users \(mode 640\)"),
        (lambda path: path.touch(mode=0o604), r"is accessible to other users \(mode 604\)"),
    ],
    ids=["directory", "FIFO", "link", "dangling link", "group", "others"],
)
def test_anything_but_a_private_file_is_refused_with_the_reason(
    make: Callable[[Path], object], reason: str, tmp_path: Path
) -> None:
    make(tmp_path / "secret")
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NotPrivate, match=f"^{reason}$"):
        read_private(tmp_path / "secret", 100)
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.skipif(os.getuid() != 0, reason="needs the permission to give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    create_private(tmp_path / "secret", b"content")
    os.chown(tmp_path / "secret", 65534, -1)
    with pytest.raises(NotPrivate, match=r"belongs to another user \(uid 65534\)"):
        read_private(tmp_path / "secret", 100)


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_private(tmp_path / "secret", 100)
