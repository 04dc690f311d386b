"""Paths that cannot be restored: each error states its reason and a fix."""

import shutil
from pathlib import Path

import msgspec
import pytest
from savepoint_jobs import sums

from penstock.checkpoint.manifest import digest_of
from penstock.savepoint.format import (
    DamagedSavepoint,
    IncompleteSavepoint,
    NewerSavepoint,
    NotASavepoint,
    dispose_savepoint,
    list_savepoints,
    load_savepoint,
    savepoint_storage,
)
from penstock.testing import JobHarness


@pytest.fixture
def path(tmp_path):
    job = JobHarness(sums(), parallelism=2)
    job.push(*((key, 1) for key in range(100))).epoch()
    return Path(job.stop_with_savepoint(tmp_path / "savepoints"))


def restore(path):
    JobHarness(sums(), from_savepoint=str(path)).close()


def rewritten(path, **fields):
    """Change the metadata and update its checksum."""
    data = (path / "_metadata").read_bytes()
    start = data.index(b"\n") + 1
    body = msgspec.msgpack.encode(msgspec.msgpack.decode(data[start + 16 :]) | fields)
    (path / "_metadata").write_bytes(data[:start] + digest_of(body) + body)


class TestAPath:
    @pytest.mark.parametrize("given", ["{}", "{}/", "file://{}", "{}/_metadata"])
    def test_a_path_can_have_several_forms(self, path, given):
        restore(given.format(path))

    def test_a_path_that_does_not_exist_is_refused(self, tmp_path):
        with pytest.raises(NotASavepoint, match=r"No savepoint found in .*nowhere"):
            restore(tmp_path / "nowhere")

    def test_a_directory_with_other_files_is_refused(self, tmp_path):
        (tmp_path / "file").write_text("something else")
        with pytest.raises(NotASavepoint, match="it has no _metadata"):
            restore(tmp_path)

    def test_metadata_of_another_program_is_refused(self, tmp_path):
        (tmp_path / "_metadata").write_bytes(b"\x49\x60\x72\x78")
        with pytest.raises(NotASavepoint, match=r"does not belong to a Penstock savepoint.*Flink"):
            restore(tmp_path)

    def test_a_savepoint_without_metadata_is_incomplete(self, path):
        (path / "_metadata").unlink()
        with pytest.raises(IncompleteSavepoint, match=f"has state, but no _metadata.*penstock savepoint -d {path}"):
            restore(path)

    def test_a_partly_copied_savepoint_is_incomplete(self, path):
        gone = sorted((path / "state").iterdir())[3]
        gone.unlink()
        with pytest.raises(IncompleteSavepoint, match=f"'state/{gone.name}' is missing"):
            restore(path)

    @pytest.mark.parametrize("place", [0, 25, 40, -1])
    def test_damaged_metadata_is_refused(self, path, place):
        data = bytearray((path / "_metadata").read_bytes())
        data[place] ^= 1
        (path / "_metadata").write_bytes(data)
        with pytest.raises(DamagedSavepoint if place else NotASavepoint, match=str(path)):
            restore(path)

    def test_truncated_metadata_is_refused(self, path):
        data = (path / "_metadata").read_bytes()
        (path / "_metadata").write_bytes(data[:-20])
        with pytest.raises(DamagedSavepoint, match="does not have the hash"):
            restore(path)

    def test_damaged_state_is_refused(self, path):
        damaged = sorted((path / "state").iterdir())[3]
        data = bytearray(damaged.read_bytes())
        data[len(data) // 2] ^= 1
        damaged.write_bytes(data)
        with pytest.raises(DamagedSavepoint, match=f"'state/{damaged.name}' does not have the size and hash"):
            restore(path)

    def test_a_savepoint_of_a_newer_version_is_refused(self, path):
        rewritten(path, format=4, penstock="9.1", operators="laid out otherwise")
        with pytest.raises(NewerSavepoint, match=r"made by Penstock 9\.1 and has format 4.*Run Penstock 9\.1 or later"):
            restore(path)

    def test_a_savepoint_of_an_older_version_is_read(self, path):
        rewritten(path, format=1)
        restore(path)

    def test_an_unknown_metadata_field_is_ignored(self, path):
        rewritten(path, added_later=[1, 2])
        restore(path)

    def test_invalid_metadata_is_refused(self, path):
        rewritten(path, operators="none")
        with pytest.raises(DamagedSavepoint, match="cannot be read"):
            restore(path)


class TestAList:
    def test_a_list_has_savepoints_and_leftovers(self, path):
        complete = load_savepoint(savepoint_storage(str(path)))
        shutil.copytree(path, path.with_name("savepoint-half"))
        (path.with_name("savepoint-half") / "_metadata").unlink()
        (path.parent / "other").mkdir()
        (path.parent / "other" / "file").write_text("not ours")
        half, found = list_savepoints(savepoint_storage(str(path.parent)))
        assert (found.name, found.metadata, found.problem) == (path.name, complete, "")
        assert (half.name, half.metadata) == ("savepoint-half", None)
        assert "is not complete" in half.problem

    def test_a_list_of_a_directory_without_savepoints_is_empty(self, tmp_path):
        assert list_savepoints(savepoint_storage(str(tmp_path / "nothing"))) == []


class TestDisposing:
    def test_disposing_removes_the_entire_savepoint(self, path):
        dispose_savepoint(savepoint_storage(str(path)))
        assert not path.exists()
        assert path.parent.exists()

    def test_disposing_removes_leftovers(self, path):
        (path / "_metadata").unlink()
        dispose_savepoint(savepoint_storage(str(path)))
        assert not path.exists()

    def test_disposing_removes_damaged_and_newer_savepoints(self, path):
        rewritten(path, format=2)
        dispose_savepoint(savepoint_storage(str(path)))
        assert not path.exists()

    def test_disposing_keeps_other_files(self, path):
        (path / "notes.txt").write_text("mine")
        dispose_savepoint(savepoint_storage(str(path)))
        assert [file.name for file in path.iterdir()] == ["notes.txt"]

    def test_disposing_of_something_else_is_refused(self, tmp_path):
        (tmp_path / "_metadata").write_text("someone else's")
        with pytest.raises(NotASavepoint):
            dispose_savepoint(savepoint_storage(str(tmp_path)))
        assert (tmp_path / "_metadata").exists()
