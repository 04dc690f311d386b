"""FileSource in plain Python: which files it reads, in which order, each once and unchanged since planning."""

import os

import pytest

from penstock.common import Duration
from penstock.connectors.files.input_file import UnreadableFile
from penstock.datastream.connectors.file_system import (
    BulkFormat,
    FileEnumeratorProvider,
    FileSource,
    FileSplitAssignerProvider,
    StreamFormat,
)
from penstock.errors import PenstockError

TEXT = StreamFormat.text_line_format()


def write(path, text="x\n", at=1000):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (at, at))
    return str(path)


def lines(*paths):
    return FileSource.for_record_stream_format(TEXT, *map(str, paths))


class TestFindsFiles:
    def test_files_in_directories_are_ordered_by_age_and_name(self, tmp_path):
        young = write(tmp_path / "a", at=2000)
        old = write(tmp_path / "sub" / "dir" / "z")
        same_age = write(tmp_path / "b", at=2000)
        assert list(lines(tmp_path).build().start(1)) == [old, young, same_age]

    def test_hidden_files_are_skipped(self, tmp_path):
        seen = write(tmp_path / "a")
        for name in (".a", "_a", ".dir/a", "_SUCCESS/a", "x/.penstock/1/a"):
            write(tmp_path / name)
        assert list(lines(tmp_path).build().start(1)) == [seen]

    def test_patterns_names_and_uris_find_each_file_once(self, tmp_path):
        one, two = write(tmp_path / "1" / "a.txt"), write(tmp_path / "2" / "a.txt")
        write(tmp_path / "2" / "b.csv")
        source = lines(tmp_path / "*" / "a.txt", f"file://{one}", tmp_path / "1").build()
        assert list(source.start(1)) == [one, two]
        assert source.paths[1] == f"file://{one}"

    def test_names_that_look_like_patterns_or_uris_are_found(self, tmp_path):
        odd = write(tmp_path / "a[1]%20.txt")
        assert list(lines(f"file:{odd}").build().start(1)) == [odd]


class TestEpochs:
    def test_a_bounded_source_reads_the_files_that_exist_at_the_start(self, tmp_path):
        paths = [write(tmp_path / f"{number}", at=number) for number in range(3)]
        source = lines(tmp_path).set_max_files_per_epoch(2).build()
        positions = source.start(1)
        write(tmp_path / "late", at=0)
        first = source.advance(positions, None)
        assert [path for path in first if first[path] != positions[path]] == paths[:2]
        assert first[paths[0]] == [2, 0]
        second = source.advance(first, 1)
        assert second[paths[2]] == [2, 2000]
        assert source.advance(second, None) == second
        assert source.bounded

    def test_an_unbounded_source_reads_files_as_they_appear(self, tmp_path):
        source = lines(tmp_path / "in").monitor_continuously(Duration.of_seconds(5)).build()
        assert (source.bounded, source.discovery_interval_ms) == (False, 5000)
        none = source.advance(source.start(1), None)
        assert none == {}
        first = write(tmp_path / "in" / "a")
        one = source.advance(none, None)
        assert one == {first: [2, 1_000_000]}
        write(tmp_path / "in" / "b")
        assert len(source.advance(one, None)) == 2

    def test_an_epoch_yields_the_records_of_its_files(self, tmp_path):
        path = write(tmp_path / "a", "x\ny\n")
        assert list(lines(path).build().read(path, None, [4, 1_000_000])) == ["x", "y"]
        assert list(lines(path).build().read(f"file:{path}", None, [4, 1_000_000])) == ["x", "y"]


class TestAFileThatChanges:
    def test_a_file_that_changes_before_it_is_read_is_rejected(self, tmp_path):
        path = write(tmp_path / "a", "x\ny\n")
        with pytest.raises(UnreadableFile, match=rf"{path} changed .* size was 3 bytes and is now 4"):
            list(lines(path).build().read(path, None, [3, 1_000_000]))
        with pytest.raises(
            UnreadableFile,
            match=r"time was 1970-01-01 00:16:39.000\+00:00 and is now 1970-01-01 00:16:40.000",
        ):
            list(lines(path).build().read(path, None, [4, 999_000]))

    def test_a_file_that_changes_while_it_is_read_is_rejected(self, tmp_path):
        path = write(tmp_path / "a", "x\ny\n")
        records = lines(path).build().read(path, None, [4, 1_000_000])
        assert next(records) == "x"
        with open(path, "a") as file:
            file.write("z\n")
        with pytest.raises(UnreadableFile, match="size was 4 bytes and is now 6"):
            list(records)

    def test_a_deleted_file_is_reported(self, tmp_path):
        path = write(tmp_path / "a")
        source = lines(path).build()
        positions = source.advance(source.start(1), None)
        os.unlink(path)
        for act in (lambda: source.advance({path: None}, None), lambda: list(source.read(path, None, positions[path]))):
            with pytest.raises(UnreadableFile, match=rf"{path} is missing"):
                act()


class TestRefuses:
    def test_a_path_without_files_is_rejected(self, tmp_path):
        with pytest.raises(PenstockError, match=rf"no file matches '{tmp_path}/x\*'.*monitor_continuously"):
            lines(tmp_path / "x*").build()

    @pytest.mark.parametrize("path", ["s3://bucket/a", "hdfs://host/a"])
    def test_paths_of_other_file_systems_are_rejected(self, path):
        with pytest.raises(PenstockError, match="only local paths and shared mounts"):
            lines(path).build()

    def test_a_path_with_braces_is_rejected(self, tmp_path):
        with pytest.raises(PenstockError, match="contains braces"):
            lines(tmp_path / "{a,b}").build()

    def test_objects_that_are_not_enumerators_or_assigners_are_rejected(self, tmp_path):
        builder = lines(tmp_path)
        builder.set_file_enumerator(FileEnumeratorProvider.default_non_splittable_file_enumerator())
        builder.set_split_assigner(FileSplitAssignerProvider.locality_aware_split_assigner())
        for wrong in (lambda: builder.set_file_enumerator(len), lambda: builder.set_split_assigner(len)):
            with pytest.raises(PenstockError, match=r"needs a FileEnumeratorProvider|accepts only File"):
                wrong()

    def test_invalid_settings_are_rejected(self, tmp_path):
        with pytest.raises(PenstockError, match="at least one path"):
            lines()
        with pytest.raises(PenstockError, match="needs a positive int"):
            lines(tmp_path).set_max_files_per_epoch(0)
        with pytest.raises(PenstockError, match="needs a positive interval"):
            lines(tmp_path).monitor_continuously(Duration.of_millis(0))

    def test_a_format_of_the_wrong_kind_is_rejected(self, tmp_path):
        with pytest.raises(PenstockError, match="needs a BulkFormat"):
            FileSource.for_bulk_file_format(TEXT, str(tmp_path))
        with pytest.raises(PenstockError, match="needs a StreamFormat"):
            FileSource.for_record_stream_format(BulkFormat.parquet(), str(tmp_path))
