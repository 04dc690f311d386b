"""Choice of the lineage to resume, on files and on an object store, and recovery from drivers that die."""

from __future__ import annotations

import logging
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.lineages import Lineages, MissingCheckpoints, SharedStorage, new_lineage
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage
from penstock.state.storage import StorageError

LAST = 2
"""The last checkpoint of the lineages below."""


@pytest.fixture(params=["local", "memory", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> SharedStorage:
    if request.param == "local":
        return LocalStorage(tmp_path / "job")
    if request.param == "memory":
        return ObjectStorage(f"memory://{uuid.uuid4().hex}/job")
    return request.getfixturevalue("s3")()


def checkpointed(root: SharedStorage) -> str:
    """Create a lineage with objects of every kind, whose driver is gone."""
    lineage = Lineages(root).current()
    storage = Lineages(root).storage_of(lineage)
    for name in ("manifests/000000000001", "manifests/000000000002", "deltas/1/abc", "bases/x", "inputs/source-0.done"):
        storage.write(name, b"x")
    return lineage


def objects_of(root: SharedStorage, lineage: str) -> list[str]:
    return root.list(f"{lineage}/")


class Died(Exception):
    pass


class Dying:
    """A storage whose process dies at the n-th change."""

    def __init__(self, storage: SharedStorage, changes: int) -> None:
        self._storage = storage
        self._left = changes

    def __getattr__(self, name: str) -> Any:
        if name in ("publish", "write", "delete", "delete_below"):
            if self._left == 0:
                raise Died
            self._left -= 1
        return getattr(self._storage, name)


class TestResuming:
    def test_a_lineage_that_has_not_ended_is_resumed(self, root: SharedStorage) -> None:
        first = checkpointed(root)
        assert Lineages(root).current() == Lineages(root).current() == first
        assert len(objects_of(root, first)) == 5

    def test_files_of_other_programs_are_ignored(self, root: SharedStorage) -> None:
        root.write("lineages/.DS_Store", b"")
        root.write("lineages/000000000001.bak", b"")
        assert Lineages(root).newest() is None
        assert Lineages(root).current() == Lineages(root).newest()
        assert "lineages/.DS_Store" in root.list("")

    def test_a_lineage_without_a_manifest_is_resumed(self, root: SharedStorage) -> None:
        assert Lineages(root).current() == Lineages(root).current()

    @pytest.mark.parametrize("retain", [True, False])
    def test_a_new_lineage_starts_after_one_that_ended(self, root: SharedStorage, retain: bool) -> None:
        first = checkpointed(root)
        lineages = Lineages(root)
        lineages.end(lineages.current(), last=LAST, retain=retain)
        second = Lineages(root).current()
        assert second != first
        assert Lineages(root).current() == Lineages(root).newest() == second
        assert len(objects_of(root, first)) == (5 if retain else 0)

    def test_drivers_that_start_simultaneously_get_the_same_lineage(self, root: SharedStorage) -> None:
        barrier, got = threading.Barrier(4), []

        def start() -> None:
            barrier.wait()
            got.append(Lineages(root).current())

        threads = [threading.Thread(target=start) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(got) == 4
        assert len(set(got)) == 1

    def test_a_lineage_that_ends_between_listing_and_reading_is_not_resumed(
        self, root: SharedStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = checkpointed(root)
        other, read = Lineages(root), type(root).read
        other.current()

        def ending(storage: SharedStorage, name: str) -> bytes:
            monkeypatch.undo()
            other.end(first, last=LAST, retain=False)
            return read(storage, name)

        monkeypatch.setattr(type(root), "read", ending)
        assert Lineages(root).current() != first


class TestRemoving:
    def test_removal_leaves_only_the_mark_of_the_number(self, root: SharedStorage) -> None:
        first = checkpointed(root)
        lineages = Lineages(root)
        lineages.current()
        lineages.end(first, last=LAST, retain=False)
        assert root.list("") == ["lineages/000000000001.removed"]
        second = Lineages(root).current()
        assert root.list("") == ["lineages/000000000001.removed", "lineages/000000000002"]
        assert Lineages(root).current() == second
        assert root.list("") == ["lineages/000000000002"]

    def test_a_lineage_is_neither_resumed_nor_left_behind_if_the_driver_dies_at_any_step(
        self, root: SharedStorage
    ) -> None:
        steps = 0
        while True:
            lineage = checkpointed(root)
            dying: Any = Dying(root, steps)
            lineages = Lineages(dying)
            assert lineages.current() == lineage
            dying._left = steps
            try:
                lineages.end(lineage, last=LAST, retain=False)
                break
            except Died:
                pass
            if steps == 0:
                assert Lineages(root).current() == lineage
                assert len(objects_of(root, lineage)) == 5
            else:
                following = Lineages(root).current()
                assert following != lineage
                assert objects_of(root, lineage) == []
            steps += 1
        assert steps == 3

    @pytest.mark.parametrize("retain", [True, False])
    def test_the_log_reports_kept_and_removed_checkpoints(
        self, root: SharedStorage, retain: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "penstock")
        lineage = checkpointed(root)
        lineages = Lineages(root)
        lineages.current()
        lineages.end(lineage, last=LAST, retain=retain)
        Lineages(root).current()
        done = "Kept" if retain else "Removed"
        where = root.below(lineage).where
        assert caplog.messages == [f"{done} the checkpoints of a finished job: {where}."]

    def test_the_log_reports_a_removal_completed_after_a_driver_died(
        self, root: SharedStorage, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "penstock")
        lineage = checkpointed(root)
        dying: Any = Dying(root, 1)
        lineages = Lineages(dying)
        lineages.current()
        with pytest.raises(Died):
            lineages.end(lineage, last=LAST, retain=False)
        assert caplog.messages == []
        for _ in range(2):
            Lineages(root).current()
        where = root.below(lineage).where
        assert caplog.messages == [f"Completed the removal of the checkpoints of a finished job: {where}."]

    def test_an_interrupted_sweep_is_completed_by_the_next_one(self, root: SharedStorage) -> None:
        steps = 0
        while True:
            lineage = checkpointed(root)
            lineages = Lineages(root)
            half: Any = Dying(root, 1)
            lineages._root = half
            lineages._records[lineage] = root.list("lineages/")[-1]
            with pytest.raises(Died):
                lineages.end(lineage, last=LAST, retain=False)
            dying: Any = Dying(root, steps)
            try:
                new = Lineages(dying).current()
                break
            except Died:
                pass
            new = Lineages(root).current()
            assert objects_of(root, lineage) == []
            assert Lineages(root).current() == new
            ending = Lineages(root)
            ending.end(ending.current(), last=LAST, retain=False)
            steps += 1
        assert steps > 2
        assert new != lineage

    @pytest.mark.parametrize("retain", [True, False])
    def test_a_driver_presumed_dead_ends_nothing(self, root: SharedStorage, retain: bool) -> None:
        lineage = checkpointed(root)
        old = Lineages(root)
        old.current()
        Lineages(root).storage_of(lineage).publish("manifests/000000000003", b"another driver's")
        before = root.list("")
        old.end(lineage, last=LAST, retain=retain)
        assert root.list("") == before
        assert Lineages(root).current() == lineage

    def test_retained_lineages_are_never_swept(self, root: SharedStorage) -> None:
        kept = []
        for retain in (True, False, True, False):
            lineages = Lineages(root)
            lineage = checkpointed(root)
            assert lineages.current() == lineage
            lineages.end(lineage, last=LAST, retain=retain)
            kept += [lineage] if retain else []
        Lineages(root).current()
        assert len(kept) == 2
        assert all(len(objects_of(root, lineage)) == 5 for lineage in kept)

    def test_a_lineage_without_a_record_is_only_deleted(self, root: SharedStorage) -> None:
        lineages, unlisted = Lineages(root), new_lineage()
        lineages.storage_of(unlisted).write("deltas/1/x", b"x")
        lineages.end(unlisted, last=0, retain=False)
        assert root.list("") == []


def test_half_written_files_of_a_crash_are_removed_with_their_lineage(tmp_path: Path) -> None:
    root = LocalStorage(tmp_path)
    lineage = checkpointed(root)
    (tmp_path / lineage / "deltas" / "1" / ".tmp-1-abc").write_bytes(b"half")
    lineages = Lineages(root)
    lineages.end(lineages.current(), last=LAST, retain=False)
    assert [path.name for path in tmp_path.iterdir()] == ["lineages"]


def test_a_failed_deletion_is_reported_and_the_lineage_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    root = LocalStorage(tmp_path)
    lineage = checkpointed(root)
    lineages = Lineages(root)
    lineages.current()
    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(StorageError, match=r"Cannot delete.*Permission denied"):
        lineages.end(lineage, last=LAST, retain=False)
    monkeypatch.undo()
    assert Lineages(root).current() != lineage
    assert objects_of(root, lineage) == []


def test_a_directory_without_any_lineage_is_missing_to_a_job_that_has_run(tmp_path: Path) -> None:
    lineages = Lineages(LocalStorage(tmp_path))
    with pytest.raises(MissingCheckpoints, match="are gone"):
        lineages.check_begun()
    lineage = lineages.current()
    lineages.check_begun()
    lineages.end(lineage, last=0, retain=False)
    lineages.check_begun()
