"""Programs are packed by clients, checked on upload, unpacked and prepared."""

import asyncio
import json
import os
import string
import zipfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_wheels import make_wheel

import penstock
from penstock.cluster.gateway import RunRequest
from penstock.cluster.inspection import inspect
from penstock.cluster.program import MANIFEST, Manifest, check_upload, pack, prepare, unpack, upload_name
from penstock.common.program_files import BadProgram


def write(folder: Path, **contents: str) -> Path:
    for name, text in contents.items():
        path = folder / name.replace("__slash__", "/")
        path = path.with_suffix(".py") if not path.suffix else path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "pkg").mkdir(parents=True)
    (folder / "job.py").write_text("import helpers\n")
    (folder / "helpers.py").write_text("X = 1\n")
    (folder / "pkg" / "__init__.py").touch()
    (folder / "pkg" / "main.py").write_text("print('main')\n")
    return folder


def unpacked(packed: Path) -> Path:
    target = packed.parent / f"{packed.stem}-unpacked"
    check_upload(packed, packed.name)
    unpack(packed, target, packed.name)
    return target


class TestAPackedProgram:
    def test_the_folder_of_the_file_is_packed_and_runs(self, source: Path, tmp_path: Path) -> None:
        folder = unpacked(pack(source / "job.py", tmp_path / "p.zip"))
        assert prepare(folder) == (folder / "program/job.py", "", {})
        assert (folder / "program/helpers.py").read_text() == "X = 1\n"
        assert (folder / "program/pkg/main.py").exists()
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
        assert manifest.penstock == penstock.__version__

    def test_what_the_user_cannot_read_is_left_out(
        self, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (source / "private").mkdir()
        (source / "private" / "data.txt").touch()
        (source / "secret.txt").touch()
        access = os.access
        denied = {str(source / "private"), str(source / "secret.txt")}
        monkeypatch.setattr(os, "access", lambda path, mode: str(path) not in denied and access(path, mode))
        folder = unpacked(pack(source / "job.py", tmp_path / "p.zip"))
        assert sorted(path.name for path in (folder / "program").iterdir()) == ["helpers.py", "job.py", "pkg"]

    def test_a_file_that_cannot_be_read_is_named(self, source: Path, tmp_path: Path) -> None:
        missing = tmp_path / "missing"
        with pytest.raises(BadProgram, match=f"{missing} cannot be packed: No such file or directory"):
            pack(source / "job.py", tmp_path / "p.zip", wheels=str(missing))
        with pytest.raises(BadProgram, match=f"{missing} cannot be packed: No such file or directory"):
            pack(source / "job.py", tmp_path / "p.zip", requirements=str(missing))

    def test_equal_programs_give_equal_files(self, source: Path, tmp_path: Path) -> None:
        first = pack(source / "job.py", tmp_path / "a.zip").read_bytes()
        os.utime(source / "helpers.py", (1, 1))
        assert pack(source / "job.py", tmp_path / "b.zip").read_bytes() == first
        (source / "helpers.py").write_text("X = 2\n")
        assert pack(source / "job.py", tmp_path / "b.zip").read_bytes() != first

    def test_a_module_runs_in_its_folder(self, source: Path, tmp_path: Path) -> None:
        folder = unpacked(pack(source, tmp_path / "p.zip", module="pkg.main"))
        assert prepare(folder) == (folder / "program", "pkg.main", {})

    def test_a_folder_with_a_main_file_runs(self, source: Path, tmp_path: Path) -> None:
        with pytest.raises(BadProgram, match=r"has no file __main__\.py"):
            pack(source, tmp_path / "p.zip")
        (source / "__main__.py").write_text("print(1)")
        folder = unpacked(pack(source, tmp_path / "p.zip"))
        assert prepare(folder) == (folder / "program/__main__.py", "", {})

    def test_dependencies_travel_and_become_settings(self, source: Path, tmp_path: Path) -> None:
        for name in ("one.py", "two.zip", "data.zip", "lib/inside.py", "wheels/a.whl", "requirements.txt"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(name)
        packed = pack(
            source / "job.py",
            tmp_path / "p.zip",
            py_files=[str(tmp_path / name) for name in ("one.py", "two.zip", "lib")],
            archives=[(str(tmp_path / "data.zip"), "data"), (str(tmp_path / "two.zip"), "")],
            requirements=str(tmp_path / "requirements.txt"),
            wheels=str(tmp_path / "wheels"),
        )
        folder = unpacked(packed)
        settings = prepare(folder).settings
        assert settings == {
            "python.files": f"{folder}/py-files/0/one.py,{folder}/py-files/1/two.zip,{folder}/py-files/2/lib",
            "python.archives": f"{folder}/archives/0/data.zip#data,{folder}/archives/1/two.zip#two.zip",
            "python.requirements": f"{folder}/requirements/requirements.txt#{folder}/requirements/wheels",
        }
        assert (folder / "py-files/2/lib/inside.py").read_text() == "lib/inside.py"
        assert (folder / "requirements/wheels/a.whl").read_text() == "wheels/a.whl"

    def test_a_missing_dependency_is_refused(self, source: Path, tmp_path: Path) -> None:
        with pytest.raises(BadProgram, match=r"The dependency .*/none\.py does not exist"):
            pack(source / "job.py", tmp_path / "p.zip", py_files=[str(tmp_path / "none.py")])

    def test_a_file_that_is_left_out_cannot_run(self, source: Path, tmp_path: Path) -> None:
        (source / ".penstockignore").write_text("job.py\n")
        with pytest.raises(BadProgram, match=r"has no file job\.py that can be packed"):
            pack(source / "job.py", tmp_path / "p.zip")

    def test_settings_of_the_submission_are_added(self, source: Path, tmp_path: Path) -> None:
        folder = unpacked(pack(source / "job.py", tmp_path / "p.zip", py_files=[str(source / "helpers.py")]))
        merged = prepare(folder).settings_with({"python.files": "/x.py", "parallelism.default": "2"})
        assert merged == {
            "python.files": f"{folder}/py-files/0/helpers.py,/x.py",
            "parallelism.default": "2",
        }


def manifest_zip(path: Path, **fields: object) -> Path:
    values = {"python": ".".join(map(str, __import__("sys").version_info[:3])), "penstock": "1", **fields}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MANIFEST, msgspec.json.encode(values))
        archive.writestr("program/job.py", "print(1)")
    return path


class TestTheManifestOfAnUpload:
    @pytest.mark.parametrize(
        ("fields", "problem"),
        [
            ({"entry": "../../job.py"}, "names '../../job.py', which is not a plain path"),
            ({"py_files": ["/etc/passwd"]}, "names '/etc/passwd', which is not a plain path"),
            ({"archives": {"a.zip": "../x"}}, "names '../x', which is not a plain path"),
            ({"requirements": "a#b"}, "names 'a#b', which is not a plain path"),
            ({"entry": "none.py"}, r"has no file program/none\.py, although its manifest names it"),
            ({"python": "3.5.0"}, r"was packed with Python 3\.5\.0, but the service runs 3\."),
            ({"entry": 7}, "cannot be read"),
            ({"surprise": 1}, "cannot be read"),
        ],
    )
    def test_a_hostile_manifest_is_refused_on_upload(
        self, tmp_path: Path, fields: dict[str, object], problem: str
    ) -> None:
        with pytest.raises(BadProgram, match=problem):
            check_upload(manifest_zip(tmp_path / "p.zip", **fields), "p.zip")


class TestAnUpload:
    def test_a_python_file_runs(self, tmp_path: Path) -> None:
        (tmp_path / "upload").write_text("print(1)\n")
        assert check_upload(tmp_path / "upload", "job.py") == "py"
        unpack(tmp_path / "upload", tmp_path / "out", "job.py")
        assert prepare(tmp_path / "out") == (tmp_path / "out/job.py", "", {})

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (b"def f(:\n", r"job\.py, line 1: "),
            (b"x = '\xff'\n", r"job\.py"),
            (b"x\x00y", r"job\.py"),
            (b"(" * 5000, r"job\.py"),
            (b"-" * 200_000 + b"1", r"job\.py is not a Python program"),
        ],
    )
    def test_a_file_that_does_not_compile_is_refused(self, tmp_path: Path, content: bytes, problem: str) -> None:
        (tmp_path / "upload").write_bytes(content)
        with pytest.raises(BadProgram, match=problem):
            check_upload(tmp_path / "upload", "job.py")

    def test_a_huge_python_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "upload").write_bytes(b"#" * (9 << 20))
        with pytest.raises(BadProgram, match=r"job\.py has more than 8 MB"):
            check_upload(tmp_path / "upload", "job.py")

    def test_nothing_of_an_upload_runs(self, tmp_path: Path) -> None:
        (tmp_path / "upload").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
        check_upload(tmp_path / "upload", "job.py")
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize(
        ("names", "entry", "expected"),
        [
            (["__main__.py", "a.py"], "", ("__main__.py", "")),
            (["a.py"], "", ("a.py", "")),
            (["app/__main__.py", "app/__init__.py", "lib/x.py"], "", ("", "app")),
            (["app/main.py", "lib/x.py"], "app.main", ("", "app.main")),
            (["app/main.py", "lib/x.py"], "app/main.py", ("app/main.py", "")),
        ],
    )
    def test_the_entry_of_a_zip_file_is_found(
        self, tmp_path: Path, names: list[str], entry: str, expected: tuple[str, str]
    ) -> None:
        with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
            for name in names:
                archive.writestr(name, "pass")
        folder = unpacked(tmp_path / "p.zip")
        assert prepare(folder, entry)[:2] == (folder / expected[0], expected[1])

    @pytest.mark.parametrize("entry", ["../x.py", "/etc/x.py", "none.py", "a b", "a..b", "os; x", "-c"])
    def test_a_wrong_entry_is_refused(self, tmp_path: Path, entry: str) -> None:
        (tmp_path / "a.py").touch()
        (tmp_path.parent / "x.py").touch()
        with pytest.raises(BadProgram, match="has no file or module"):
            prepare(tmp_path, entry)

    def test_a_zip_file_without_a_single_main_module_needs_an_entry(self, tmp_path: Path) -> None:
        write(tmp_path, a="", b="")
        with pytest.raises(BadProgram, match="the module to run is unknown"):
            prepare(tmp_path)

    def test_a_zip_file_without_modules_is_refused(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
            archive.writestr("readme.txt", "")
        with pytest.raises(BadProgram, match=r"p\.zip contains no Python module"):
            check_upload(tmp_path / "p.zip", "p.zip")

    def test_a_zip_file_whose_main_module_does_not_compile_is_refused(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
            archive.writestr("__main__.py", "x = = 1")
        with pytest.raises(BadProgram, match=r"p\.zip/__main__\.py, line 1: invalid syntax"):
            check_upload(tmp_path / "p.zip", "p.zip")

    def test_a_wheel_needs_metadata(self, tmp_path: Path) -> None:
        for name in ("pkg/main.py", "pkg-1.dist-info/METADATA"):
            with zipfile.ZipFile(tmp_path / "p.whl", "a") as archive:
                archive.writestr(name, "")
            if name == "pkg/main.py":
                with pytest.raises(BadProgram, match="is not a wheel"):
                    check_upload(tmp_path / "p.whl", "p.whl")
        assert check_upload(tmp_path / "p.whl", "p.whl") == "whl"
        unpack(tmp_path / "p.whl", tmp_path / "out", "p.whl")
        assert prepare(tmp_path / "out", "pkg.main")[:2] == (tmp_path / "out", "pkg.main")


class TestTheNameOfAnUpload:
    @pytest.mark.parametrize(
        ("name", "plain"),
        [
            ("job.py", "job.py"),
            ("../../etc/job.py", "job.py"),
            ("C:\\jobs\\my job.zip", "my_job.zip"),
            ("...hidden.whl", "hidden.whl"),
            ("a\x00b\n.py", "a_b_.py"),
            ("pkg-1.0+x-py3-none-any.whl", "pkg-1.0+x-py3-none-any.whl"),
            ("ü.py", "ü.py"),
        ],
    )
    def test_a_path_becomes_a_plain_name(self, name: str, plain: str) -> None:
        assert upload_name(name) == plain

    @pytest.mark.parametrize("name", ["", "job", "job.jar", ".py", "..", "/", "job.py/", "job.pyc", "a.zip.exe"])
    def test_other_files_are_refused(self, name: str) -> None:
        with pytest.raises(BadProgram, match=r"is not a program\. Upload a \.py, \.zip or \.whl file\."):
            upload_name(name)

    @given(st.text(st.sampled_from(string.printable + "äß\x00/\\"), max_size=400), st.sampled_from([".py", ".zip"]))
    def test_any_accepted_name_is_a_short_plain_file_name(self, name: str, suffix: str) -> None:
        try:
            plain = upload_name(name + suffix)
        except BadProgram:
            return
        assert os.path.basename(plain) == plain
        assert not plain.startswith(".")
        assert len(plain) <= 150
        assert plain.endswith(suffix)
        assert plain.isprintable()
        assert upload_name(plain) == plain


def test_a_packed_program_imports_its_dependencies_from_its_first_line(source: Path, tmp_path: Path) -> None:
    (tmp_path / "py_file_of_program.py").write_text("def twice(n): return 2 * n\n")
    make_wheel(tmp_path / "wheels", "requirement_of_program", "def more(n): return n + 1\n")
    (tmp_path / "requirements.txt").write_text("requirement_of_program\n")
    (source / "job.py").write_text(
        "import helpers, py_file_of_program, requirement_of_program\n"
        "from penstock.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "stream = env.from_collection([helpers.X]).map(py_file_of_program.twice).name('Twice')\n"
        "stream.map(requirement_of_program.more).print()\n"
        "env.execute('packed')\n"
    )
    packed = pack(
        source / "job.py",
        tmp_path / "p.zip",
        py_files=[str(tmp_path / "py_file_of_program.py")],
        requirements=str(tmp_path / "requirements.txt"),
        wheels=str(tmp_path / "wheels"),
    )
    request = RunRequest(program="p", configuration={"parallelism.default": "1"})
    plan = json.loads(asyncio.run(inspect(packed.read_bytes(), "p.zip", request, {}, tmp_path, savepoint=False)))
    assert "Twice" in [node["type"] for node in plan["nodes"]]
    assert (plan["batch"], plan["parallelism"]) == (False, 1)
