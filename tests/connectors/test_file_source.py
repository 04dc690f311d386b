"""FileSource in plain Python: which files, in which order, each read once and only as it was planned."""

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
    def test_below_directories_by_age_and_name(self, tmp_path):
        young = write(tmp_path / "a", at=2000)
        old = write(tmp_path / "sub" / "dir" / "z")
        same_age = write(tmp_path / "b", at=2000)
        assert list(lines(tmp_path).build().start(1)) == [old, young, same_age]

    def test_that_are_not_hidden(self, tmp_path):
        seen = write(tmp_path / "a")
        for name in (".a", "_a", ".dir/a", "_SUCCESS/a", "x/.penstock/1/a"):
            write(tmp_path / name)
        assert list(lines(tmp_path).build().start(1)) == [seen]

    def test_by_pattern_by_name_and_by_uri_each_once(self, tmp_path):
        one, two = write(tmp_path / "1" / "a.txt"), write(tmp_path / "2" / "a.txt")
        write(tmp_path / "2" / "b.csv")
        source = lines(tmp_path / "*" / "a.txt", f"file://{one}", tmp_path / "1").build()
        assert list(source.start(1)) == [one, two]
        assert source.paths[1] == f"file://{one}"

    def test_whose_names_look_like_patterns_or_uris(self, tmp_path):
        odd = write(tmp_path / "a[1]%20.txt")
        assert list(lines(f"file:{odd}").build().start(1)) == [odd]


class TestEpochs:
    def test_of_a_bounded_source_read_what_was_there_at_the_start(self, tmp_path):
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

    def test_of_one_that_goes_on_read_what_has_appeared(self, tmp_path):
        source = lines(tmp_path / "in").monitor_continuously(Duration.of_seconds(5)).build()
        assert (source.bounded, source.discovery_interval_ms) == (False, 5000)
        none = source.advance(source.start(1), None)
        assert none == {}
        first = write(tmp_path / "in" / "a")
        one = source.advance(none, None)
        assert one == {first: [2, 1_000_000]}
        write(tmp_path / "in" / "b")
        assert len(source.advance(one, None)) == 2

    def test_read_the_records(self, tmp_path):
        path = write(tmp_path / "a", "x\ny\n")
        assert list(lines(path).build().read(path, None, [4, 1_000_000])) == ["x", "y"]
        assert list(lines(path).build().read(f"file:{path}", None, [4, 1_000_000])) == ["x", "y"]


class TestAFileThatChanges:
    def test_before_it_is_read(self, tmp_path):
        path = write(tmp_path / "a", "x\ny\n")
        with pytest.raises(UnreadableFile, match=rf"{path} has changed .* had 3 bytes, now 4"):
            list(lines(path).build().read(path, None, [3, 1_000_000]))
        with pytest.raises(
            UnreadableFile, match=r"modified at 1970-01-01 00:16:40.000\+00:00, before at 1970-01-01 00:16:39.000"
        ):
            list(lines(path).build().read(path, None, [4, 999_000]))

    def test_while_it_is_read(self, tmp_path):
        path = write(tmp_path / "a", "x\ny\n")
        records = lines(path).build().read(path, None, [4, 1_000_000])
        assert next(records) == "x"
        with open(path, "a") as file:
            file.write("z\n")
        with pytest.raises(UnreadableFile, match="had 4 bytes, now 6"):
            list(records)

    def test_by_going_away(self, tmp_path):
        path = write(tmp_path / "a")
        source = lines(path).build()
        positions = source.advance(source.start(1), None)
        os.unlink(path)
        for act in (lambda: source.advance({path: None}, None), lambda: list(source.read(path, None, positions[path]))):
            with pytest.raises(UnreadableFile, match=rf"{path} is gone"):
                act()


class TestRefuses:
    def test_a_path_with_nothing_at_it(self, tmp_path):
        with pytest.raises(PenstockError, match=rf"nothing at '{tmp_path}/x\*'.*monitor_continuously"):
            lines(tmp_path / "x*").build()

    @pytest.mark.parametrize("path", ["s3://bucket/a", "hdfs://host/a"])
    def test_other_file_systems(self, path):
        with pytest.raises(PenstockError, match="only local paths and mounts shared by all hosts"):
            lines(path).build()

    def test_braces(self, tmp_path):
        with pytest.raises(PenstockError, match="has braces"):
            lines(tmp_path / "{a,b}").build()

    def test_what_it_cannot_do(self, tmp_path):
        builder = lines(tmp_path)
        builder.set_file_enumerator(FileEnumeratorProvider.default_non_splittable_file_enumerator())
        builder.set_split_assigner(FileSplitAssignerProvider.locality_aware_split_assigner())
        with pytest.raises(PenstockError, match="Files are not split here"):
            FileEnumeratorProvider.default_splittable_file_enumerator()
        for wrong in (lambda: builder.set_file_enumerator(len), lambda: builder.set_split_assigner(len)):
            with pytest.raises(PenstockError, match="takes File"):
                wrong()

    def test_settings_that_make_no_sense(self, tmp_path):
        with pytest.raises(PenstockError, match="at least one path"):
            lines()
        with pytest.raises(PenstockError, match="above 0"):
            lines(tmp_path).set_max_files_per_epoch(0)
        with pytest.raises(PenstockError, match="interval above 0"):
            lines(tmp_path).monitor_continuously(Duration.of_millis(0))

    def test_formats_of_the_other_kind(self, tmp_path):
        with pytest.raises(PenstockError, match="needs a BulkFormat"):
            FileSource.for_bulk_file_format(TEXT, str(tmp_path))
        with pytest.raises(PenstockError, match="needs a StreamFormat"):
            FileSource.for_record_stream_format(BulkFormat.parquet(), str(tmp_path))
