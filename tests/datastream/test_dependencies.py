"""Python modules, archives and requirements of a job."""

import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from made_wheels import make_wheel

from penstock.common import Configuration
from penstock.common.options import BadSetting
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.dependencies import (
    Archive,
    Dependencies,
    Requirements,
    configured_dependencies,
    make_importable,
    program_place,
)
from penstock.datastream.requirements import RequirementsNotInstalled, installed_requirements


@pytest.fixture(autouse=True)
def _same_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def touch(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).touch()
    return [str(folder / name) for name in names]


class TestOfAProgram:
    def test_files_archives_and_requirements_are_collected(
        self, env: StreamExecutionEnvironment, tmp_path: Path
    ) -> None:
        module, archive, requirements = touch(tmp_path, "a.py", "data.zip", "requirements.txt")
        env.add_python_file(module)
        env.add_python_file(f"file://{tmp_path}")
        env.add_python_archive(archive)
        env.add_python_archive(archive, "words")
        env.set_python_requirements("/etc/hosts")
        env.set_python_requirements(requirements, str(tmp_path))
        assert env._dependencies == Dependencies(
            (module, str(tmp_path)),
            (Archive(archive, "data.zip"), Archive(archive, "words")),
            Requirements(requirements, str(tmp_path)),
        )

    def test_environments_do_not_share_dependencies(self, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
        env.add_python_file(str(tmp_path))
        assert StreamExecutionEnvironment.get_execution_environment()._dependencies == Dependencies()

    def test_missing_and_unusable_files_are_refused(self, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
        (text,) = touch(tmp_path, "a.txt")
        with pytest.raises(BadSetting, match=r"^add_python_file: file '.*/nothing\.py' does not exist"):
            env.add_python_file(str(tmp_path / "nothing.py"))
        with pytest.raises(BadSetting, match=r"^add_python_file: '.*/a\.txt' cannot be imported"):
            env.add_python_file(text)
        with pytest.raises(BadSetting, match="only local paths"):
            env.add_python_file("hdfs://host/module.py")
        with pytest.raises(BadSetting, match=r"^add_python_archive: archive '.*/nothing\.zip' does not exist"):
            env.add_python_archive(str(tmp_path / "nothing.zip"))
        with pytest.raises(BadSetting, match=r"^add_python_archive: '.*/a\.txt' is not an archive"):
            env.add_python_archive(text)
        with pytest.raises(BadSetting, match=r"^set_python_requirements: requirements file '.*' does not exist"):
            env.set_python_requirements(str(tmp_path / "nothing.txt"))
        with pytest.raises(BadSetting, match=r"^set_python_requirements: '.*/a\.txt' is not a folder of wheels"):
            env.set_python_requirements(text, text)

    @pytest.mark.parametrize("folder", ["../up", "/tmp/x", "a/../../b"])
    def test_an_archive_is_unpacked_below_the_workers_files_only(
        self, env: StreamExecutionEnvironment, tmp_path: Path, folder: str
    ) -> None:
        (archive,) = touch(tmp_path, "data.zip")
        with pytest.raises(BadSetting, match="is not below the worker's files"):
            env.add_python_archive(archive, folder)

    def test_two_files_of_the_same_name_are_refused(self, env: StreamExecutionEnvironment, tmp_path: Path) -> None:
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir()
            touch(tmp_path / folder, "same.py")
        env.add_python_file(str(tmp_path / "one/same.py"))
        env.add_python_file(str(tmp_path / "one/same.py"))
        with pytest.raises(BadSetting, match=r"two dependencies have the same name, among same\.py"):
            env.add_python_file(str(tmp_path / "two/same.py"))


class TestOfTheSettings:
    def test_lists_are_separated_by_commas(self, tmp_path: Path) -> None:
        first, second, archive, requirements = touch(tmp_path, "a.py", "b.whl", "data.tar.gz", "r.txt")
        settings = {
            "python.files": f"{first}, {second}",
            "python.archives": f"{archive}#words,{archive}",
            "python.requirements": f"{requirements}#{tmp_path}",
        }
        assert configured_dependencies(Configuration.from_dict(settings)) == Dependencies(
            (first, second),
            (Archive(archive, "words"), Archive(archive, "data.tar.gz")),
            Requirements(requirements, str(tmp_path)),
        )

    def test_a_missing_file_is_refused_with_its_setting(self, tmp_path: Path) -> None:
        with pytest.raises(BadSetting, match=r"^python\.files: file '.*/none\.py' does not exist"):
            configured_dependencies(Configuration.from_dict({"python.files": str(tmp_path / "none.py")}))

    def test_dependencies_of_the_program_are_added_and_its_requirements_win(self, tmp_path: Path) -> None:
        first, second = touch(tmp_path, "a.py", "b.py")
        given = Dependencies((first,), (), Requirements("a", ""))
        both = given.and_those_of(Dependencies((second, first), (), Requirements("b", "")))
        assert both == Dependencies((first, second), (), Requirements("b", ""))
        assert given.and_those_of(Dependencies()).requirements == Requirements("a", "")


class TestTheDriver:
    def test_the_driver_imports_modules_packages_folders_and_wheels(self, tmp_path: Path) -> None:
        (tmp_path / "module_of_driver.py").write_text("NAME = 'module'")
        (tmp_path / "neighbour_of_driver.py").touch()
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "inside_of_driver.py").write_text("NAME = 'folder'")
        with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
            archive.writestr("packed_of_driver.py", "NAME = 'zip'")
        make_wheel(tmp_path, "wheel_of_driver", "NAME = 'wheel'")
        wheel = "wheel_of_driver-1.0-py3-none-any.whl"
        files = [str(tmp_path / name) for name in ("module_of_driver.py", "folder", "packed.zip", wheel)]
        make_importable(Dependencies(files=tuple(files)))
        names = ["module_of_driver", "inside_of_driver", "packed_of_driver", "wheel_of_driver"]
        assert [__import__(name).NAME for name in names] == ["module", "folder", "zip", "wheel"]
        with pytest.raises(ModuleNotFoundError):
            __import__("neighbour_of_driver")
        before = list(sys.path)
        make_importable(Dependencies(files=tuple(files)))
        assert sys.path == before

    def test_the_programs_own_folder_stays_first(self, tmp_path: Path) -> None:
        first = sys.path[0]
        make_importable(Dependencies(files=(str(tmp_path),)))
        assert sys.path[:2] == [first, str(tmp_path)]


class TestRequirements:
    def test_packages_are_installed_from_a_folder_of_wheels(self, tmp_path: Path) -> None:
        make_wheel(tmp_path / "wheels", "made_for_requirements", "NAME = 'installed'")
        (tmp_path / "requirements.txt").write_text("# packages\nmade_for_requirements==1.0\n")
        requirements = Requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "wheels"))
        make_importable(Dependencies(requirements=requirements))
        assert __import__("made_for_requirements").NAME == "installed"
        assert installed_requirements(*requirements) is installed_requirements(*requirements)

    def test_a_missing_package_is_reported_with_the_words_of_pip(self, tmp_path: Path) -> None:
        (tmp_path / "wheels").mkdir()
        (tmp_path / "r.txt").write_text("no_such_package_anywhere==1.0\n")
        with pytest.raises(RequirementsNotInstalled, match=r"could not install .*:\n[^~]*no_such_package") as caught:
            installed_requirements(str(tmp_path / "r.txt"), str(tmp_path / "wheels"))
        assert f"to {tmp_path}/wheels" in caught.value.fix

    @pytest.mark.parametrize("line", ["penstock==1.0", "PySpark>=4", "pyspark[sql]", "penstock @ file:///x"])
    def test_packages_that_executors_must_have_are_refused(self, tmp_path: Path, line: str) -> None:
        (tmp_path / "r.txt").write_text(f"pyspark-extension\n{line}\n")
        with pytest.raises(RequirementsNotInstalled, match=r"names (penstock|pyspark|PySpark), which the driver"):
            installed_requirements(str(tmp_path / "r.txt"), "")

    def test_a_python_without_pip_is_reported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.datastream.requirements.find_spec", lambda name: None)
        with pytest.raises(RequirementsNotInstalled, match=r"has no pip\. Install it with .* -m ensurepip"):
            installed_requirements(*touch(tmp_path, "r.txt"), "")


class TestThePlaceOfTheProgram:
    @pytest.fixture(autouse=True)
    def _main(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])

    def place(self, **attributes: object) -> Path | None:
        main = ModuleType("__main__")
        vars(main).update(attributes)
        sys.modules["__main__"] = main
        return program_place()

    def test_a_file_is_in_its_folder(self, tmp_path: Path) -> None:
        (job,) = touch(tmp_path, "job.py")
        assert self.place(__file__=job) == tmp_path

    def test_a_module_is_below_the_folder_of_its_package(self, tmp_path: Path) -> None:
        (tmp_path / "a" / "b").mkdir(parents=True)
        (job,) = touch(tmp_path / "a" / "b", "main.py")
        assert self.place(__file__=job, __package__="a.b") == tmp_path
        assert self.place(__file__=job, __package__="") == tmp_path / "a" / "b"

    def test_an_archive_is_its_own_place(self, tmp_path: Path) -> None:
        (archive,) = touch(tmp_path, "app.zip")
        assert self.place(__file__=f"{archive}/__main__.py") == Path(archive)

    def test_notebooks_and_installed_tools_have_none(self) -> None:
        assert self.place() is None
        assert self.place(__file__=pytest.__file__, __package__="pytest") is None
        assert self.place(__file__=str(Path(sysconfig.get_path("scripts")) / "pytest")) is None
