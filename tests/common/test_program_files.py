"""The files of a program's folder, and archives of them."""

import io
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import program_files as files
from penstock.common.program_files import (
    BadProgram,
    check_archive,
    extract,
    importable_files,
    program_files,
    write_archive,
)


def make(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


class TestAProgramsFolder:
    def test_hidden_files_caches_environments_and_checkpoints_are_left_out(self, tmp_path: Path) -> None:
        make(tmp_path, "job.py", "data/words.txt", "lineages/notes.txt")
        make(tmp_path, ".git/config", ".env", "__pycache__/job.pyc", "pkg/__pycache__/a.pyc", "old.pyc")
        make(tmp_path, "env/pyvenv.cfg", "env/lib/x.py", "state/orders/lineages/000000000001", "state/orders/x/base")
        make(tmp_path, "saved/savepoint-1/_metadata", "saved/savepoint-1/state/a.arrow")
        assert list(program_files(tmp_path)) == ["data/words.txt", "job.py", "lineages/notes.txt"]

    def test_files_that_the_ignore_file_matches_are_left_out(self, tmp_path: Path) -> None:
        make(tmp_path, "job.py", "big/a.bin", "b.parquet", "sub/c.parquet", "sub/keep.txt", "only/here.txt", "here.txt")
        (tmp_path / ".penstockignore").write_text("# data\nbig/\n*.parquet\n\nonly/here.txt\n")
        assert list(program_files(tmp_path)) == ["here.txt", "job.py", "sub/keep.txt"]

    def test_links_are_followed_once(self, tmp_path: Path) -> None:
        make(tmp_path, "shared/common.py", "program/job.py")
        (tmp_path / "program" / "shared").symlink_to(tmp_path / "shared")
        (tmp_path / "program" / "again").symlink_to(tmp_path / "program")
        assert list(program_files(tmp_path / "program")) == ["job.py", "shared/common.py"]

    def test_a_folder_that_is_too_large_is_refused_with_its_largest_files(self, tmp_path: Path) -> None:
        make(tmp_path, "job.py")
        for number in range(7):
            (tmp_path / f"{number}.bin").write_bytes(bytes(number << 20))
        with pytest.raises(BadProgram, match=r"has 21\.0 MB .* 10\.0 MB is the limit.*penstockignore") as caught:
            program_files(tmp_path, 10 << 20)
        assert "The largest are 6.bin (6.0 MB), 5.bin (5.0 MB), 4.bin" in str(caught.value)
        assert "1.bin" not in str(caught.value)

    def test_too_many_files_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "MOST_FILES", 3)
        make(tmp_path, "a.py", "b.py", "c.py")
        program_files(tmp_path)
        make(tmp_path, "d.py")
        with pytest.raises(BadProgram, match="has more than 3 files"):
            program_files(tmp_path)

    def test_importable_files_are_modules_and_the_contents_of_packages(self, tmp_path: Path) -> None:
        make(tmp_path, "job.py", "words.txt", "lib/loose.py", "lib/notes.txt")
        make(tmp_path, "pkg/__init__.py", "pkg/table.json", "pkg/inner/deep.json")
        assert list(importable_files(tmp_path)) == [
            "job.py",
            "lib/loose.py",
            "pkg/__init__.py",
            "pkg/inner/deep.json",
            "pkg/table.json",
        ]


class TestAnArchive:
    def test_the_same_files_give_the_same_bytes(self, tmp_path: Path) -> None:
        for number, name in enumerate(("one", "two")):
            make(tmp_path / name, *sorted(["b.py", "a/c.py", "d.txt"], reverse=bool(number)))
            os.utime(tmp_path / name / "b.py", (number * 1e9, number * 1e9))
            os.chmod(tmp_path / name / "b.py", 0o755 if number else 0o600)
            write_archive(tmp_path / f"{name}.zip", program_files(tmp_path / name))
        assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
        assert {path.name for path in tmp_path.iterdir()} == {"one", "two", "one.zip", "two.zip"}

    def test_unpacking_restores_all_files(self, tmp_path: Path) -> None:
        write_archive(tmp_path / "a.zip", {"a/b.py": b"1", "c.bin": bytes(range(256))})
        extract(tmp_path / "a.zip", tmp_path / "out", "a.zip")
        assert (tmp_path / "out/a/b.py").read_bytes() == b"1"
        assert (tmp_path / "out/c.bin").read_bytes() == bytes(range(256))

    def test_packages_without_an_init_file_can_be_imported_from_it(self, tmp_path: Path) -> None:
        make(tmp_path, "in/space/inner/module.py")
        command = "import space.inner.module as m; print(m.__file__)"
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "a.zip")}
        (tmp_path / "in/space/inner/module.py").write_text("")
        write_archive(tmp_path / "a.zip", program_files(tmp_path / "in"))
        done = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True)
        assert done.stdout == f"{tmp_path}/a.zip/space/inner/module.py\n", done.stderr

    def test_a_failed_write_leaves_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            write_archive(tmp_path / "a.zip", {"a": b"1", "b": tmp_path / "nothing"})
        assert list(tmp_path.iterdir()) == []


def written(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


class TestAHostileArchive:
    @pytest.mark.filterwarnings("ignore:Duplicate name")
    @pytest.mark.parametrize(
        ("members", "problem"),
        [
            ([("/etc/passwd", b"")], "is not a relative path"),
            ([("../up.py", b"")], "is not a relative path"),
            ([("a/../../up.py", b"")], "is not a relative path"),
            ([("a//b.py", b"")], "is not a relative path"),
            ([("./b.py", b"")], "is not a relative path"),
            ([("a\\..\\b.py", b"")], "is not a relative path"),
            ([("a" * 256, b"")], "a name that cannot be used: 'aaaa"),
            ([("a/" * 600 + "b", b"")], "a name that cannot be used: 'a/a/"),
            ([("a\nb", b"")], "a name that cannot be used: 'a.nb'"),
            ([(link("a"), b"/etc")], "has a link or a special file, 'a'"),
            ([("a.py", b"1"), ("a.py", b"2")], "two files with the name 'a.py'"),
            ([("a", b"1"), ("a/b.py", b"2")], "a file and a folder with the name 'a'"),
        ],
    )
    def test_an_unsafe_archive_is_refused(
        self, tmp_path: Path, members: list[tuple[str | zipfile.ZipInfo, bytes]], problem: str
    ) -> None:
        archive = written(tmp_path / "x.zip", *members)
        with pytest.raises(BadProgram, match=problem):
            extract(archive, tmp_path / "out", "x.zip")
        assert {path.name for path in tmp_path.iterdir()} == {"x.zip"}

    def test_a_zip_bomb_is_refused_before_it_is_unpacked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "MOST_UNPACKED_BYTES", 1 << 20)
        archive = written(tmp_path / "x.zip", *((f"{n}", bytes(1 << 18)) for n in range(5)))
        assert archive.stat().st_size < 10_000
        with pytest.raises(BadProgram, match=r"x\.zip has 1\.2 MB of files, but 1\.0 MB is the limit"):
            check_archive(archive, "x.zip")

    @pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_an_archive_that_python_unpacks_without_a_limit_is_refused(self, tmp_path: Path, method: int) -> None:
        with zipfile.ZipFile(tmp_path / "x.zip", "w", method) as archive:
            archive.writestr("job.py", b"print()")
        for act in (check_archive, lambda archive, name: extract(archive, tmp_path / "out", name)):
            with pytest.raises(BadProgram, match="compressed with a method other than deflate"):
                act(tmp_path / "x.zip", "x.zip")

    def test_an_archive_without_compression_is_accepted(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("job.py", b"print()")
        assert check_archive(tmp_path / "x.zip", "x.zip") == ["job.py"]

    def test_an_archive_of_too_many_files_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "MOST_FILES", 2)
        with pytest.raises(BadProgram, match="has 3 files, but 2 is the limit"):
            check_archive(written(tmp_path / "x.zip", ("a", b""), ("b", b""), ("c", b"")), "x.zip")

    def test_a_size_that_the_archive_understates_does_not_unpack_more(self, tmp_path: Path) -> None:
        archive = written(tmp_path / "x.zip", ("a", bytes(1 << 20)))
        data = archive.read_bytes().replace((1 << 20).to_bytes(4, "little"), (100).to_bytes(4, "little"))
        archive.write_bytes(data)
        with pytest.raises(BadProgram, match="is damaged"):
            extract(archive, tmp_path / "out", "x.zip")
        assert not (tmp_path / "out").exists()

    @given(st.binary(max_size=200), st.integers(0, 2000), st.integers(0, 255))
    def test_a_damaged_archive_is_refused_or_has_the_same_content(self, noise: bytes, place: int, value: int) -> None:
        import tempfile

        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.py", b"print(1)\n" * 50)
        data = bytearray(made.getvalue())
        if place < len(data):
            data[place] = value
        with tempfile.TemporaryDirectory() as folder:
            for content in (bytes(data), noise, bytes(data)[:place]):
                path = Path(folder) / "x.zip"
                path.write_bytes(content)
                out = Path(folder) / f"out-{len(content)}"
                try:
                    extract(path, out, "x.zip")
                except BadProgram:
                    assert not out.exists()
                else:
                    found = [each for each in out.rglob("*") if each.is_file()]
                    assert all(each.read_bytes() == b"print(1)\n" * 50 for each in found)


def test_a_folder_unpacked_by_another_process_is_kept(tmp_path: Path) -> None:
    archive = written(tmp_path / "x.zip", ("a.py", b"new"))
    make(tmp_path, "out/a.py")
    extract(archive, tmp_path / "out", "x.zip")
    assert (tmp_path / "out/a.py").read_text() == "out/a.py"


def test_the_loser_of_a_race_to_unpack_keeps_the_winners_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = written(tmp_path / "x.zip", ("a.py", b"mine"))
    rename: Callable[[Path, Path], Path] = Path.rename

    def late(self: Path, target: Path) -> Path:
        make(tmp_path, "out/a.py")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    extract(archive, tmp_path / "out", "x.zip")
    assert (tmp_path / "out/a.py").read_text() == "out/a.py"
    assert {path.name for path in tmp_path.iterdir()} == {"x.zip", "out"}
