"""Files of collections and batch DataFrames in a store that Spark cannot read. These tests need no Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.checkpoint.manifest import Manifest
from penstock.common.options import BadSetting
from penstock.spark.inputs import CopiedInputs, LocalInputs, inputs_of
from penstock.spark.log import SparkLog
from penstock.state.driver_storage import DriverStorage
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage
from penstock.state.storage import StorageError

MakeStorage = Callable[..., ObjectStorage]


def files_of(folder: Path) -> list[tuple[bytes, int]]:
    """Return contents and modification times in order of time, which Spark uses."""
    found = [(path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()]
    return sorted(found, key=lambda file: file[1])


def write(*contents: bytes) -> Callable[[Path], None]:
    def into(folder: Path) -> None:
        for number, content in enumerate(contents):
            (folder / f"{number:06d}.parquet").write_bytes(content)

    return into


def never(folder: Path) -> None:
    raise AssertionError("the input was already written")


def test_inputs_are_written_once_and_every_driver_has_the_same(s3: MakeStorage, tmp_path: Path) -> None:
    storage = s3()
    first = CopiedInputs(storage, tmp_path / "first", "local[2]").folder("source-0", "words", write(b"b", b"a", b"c"))
    second = CopiedInputs(storage, tmp_path / "second", "local[2]").folder("source-0", "words", never)
    assert [content for content, _ in files_of(first)] == [b"b", b"a", b"c"]
    assert files_of(first) == files_of(second)
    assert {path.name for path in first.iterdir()} == {path.name for path in second.iterdir()}


def test_a_restarted_query_has_its_files_and_an_interrupted_copy_is_repeated(
    s3: MakeStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = s3()
    inputs = CopiedInputs(storage, tmp_path, "local")
    read, reads = storage.read, []

    def broken(name: str) -> bytes:
        reads.append(name)
        if len(reads) == 3:
            raise StorageError("gone")
        return read(name)

    monkeypatch.setattr(storage, "read", broken)
    with pytest.raises(StorageError, match="gone"):
        inputs.folder("source-0", "words", write(b"a", b"b"))
    folder = inputs.folder("source-0", "words", never)
    assert [content for content, _ in files_of(folder)] == [b"a", b"b"]
    seen = len(reads)
    assert inputs.folder("source-0", "words", never) == folder
    assert len(reads) == seen


@pytest.mark.parametrize("place", ["s3", "directory"])
def test_drivers_that_write_concurrently_have_the_same_inputs(s3: MakeStorage, tmp_path: Path, place: str) -> None:
    storage = s3() if place == "s3" else LocalStorage(tmp_path / "lineage")
    barrier, folders = threading.Barrier(3), []

    def start(number: int) -> None:
        def into(folder: Path) -> None:
            write(b"%d" % number, b"x" * number)(folder)
            barrier.wait()

        folders.append(inputs_of(storage, tmp_path / str(number), "local").folder("source-0", "words", into))

    threads = [threading.Thread(target=start, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, *others = map(files_of, folders)
    assert others == [first, first]
    assert len(storage.list("inputs/")) == 3


def test_an_interrupted_upload_is_repeated(s3: MakeStorage, tmp_path: Path) -> None:
    storage = s3()
    storage.write("inputs/source-0/half-000000.parquet", b"of another attempt")
    folder = CopiedInputs(storage, tmp_path, "local").folder("source-0", "words", write(b"a"))
    assert [content for content, _ in files_of(folder)] == [b"a"]


def test_copied_inputs_are_refused_on_a_cluster_with_a_fix(s3: MakeStorage, tmp_path: Path) -> None:
    for master in ("yarn", "spark://host:7077", "k8s://https://host"):
        with pytest.raises(BadSetting, match=r"source 'words'.*executors of .* cannot read.*mounted on every host"):
            CopiedInputs(s3(), tmp_path, master).folder("source-0", "words", never)
    CopiedInputs(s3(), tmp_path, "local-cluster[2,1,1024]").folder("source-0", "words", write(b"a"))


def test_a_directory_shared_with_executors_needs_no_copies(tmp_path: Path) -> None:
    lineage, scratch = tmp_path / "lineage", tmp_path / "scratch"
    for storage, place in ((LocalStorage(lineage), lineage / "inputs"), (DriverStorage(), scratch)):
        local = inputs_of(storage, scratch, "yarn")
        assert isinstance(local, LocalInputs)
        folder = local.folder("source-0", "words", write(b"a"))
        assert folder.parent == place
        assert [content for content, _ in files_of(folder)] == [b"a"]
        assert inputs_of(storage, scratch, "yarn").folder("source-0", "words", never) == folder


def test_sparks_log_names_the_copies_of_the_driver_that_reads_it(tmp_path: Path) -> None:
    """Otherwise Spark would treat another driver's copies as new files."""
    first, second = tmp_path / "first", tmp_path / "second"
    log = SparkLog(first / "log", first / "inputs")
    entry = f'v1\n{{"path":"{(first / "inputs").as_uri()}/source-0/a.parquet","timestamp":1}}'
    for path, text in (("offsets/0", "v1\n{}"), ("sources/0/0", entry)):
        (log.root / path).parent.mkdir(parents=True)
        (log.root / path).write_text(text)
    files = log.appeared(0)
    assert b"first" not in files["sources/0/0"]

    def manifest(number: int) -> Manifest:
        return Manifest(
            format=1,
            lineage="",
            id=number,
            batch=0,
            parent=b"",
            token="",
            timestamp=0,
            ended=False,
            operators={},
            committables=[],
            records={},
            spark_log=files,
            log_index=log.index(1, files),
            bases={},
            since_base={},
        )

    other = SparkLog(second / "log", second / "inputs")
    other.rewrite(manifest(1), manifest)
    assert (other.root / "sources/0/0").read_text() == entry.replace("first", "second")
