"""`penstock run` runs files, folders, archives and modules, with their dependencies."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from made_wheels import make_wheel

PENSTOCK = [sys.executable, "-m", "penstock.cli.main", "run"]
SHOWS = (
    "import json, sys\n"
    "from penstock.datastream.launch import launch_context\n"
    "settings = dict(launch_context().settings)\n"
    "print(json.dumps([__name__, __file__, __package__, sys.argv, settings]))\n"
)


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PENSTOCK, *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=cwd)


def shown(*arguments: object, cwd: Path) -> Any:
    done = run(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    (tmp_path / "job.py").write_text(SHOWS)
    (tmp_path / "app" / "__init__.py").touch()
    (tmp_path / "app" / "sibling.py").touch()
    (tmp_path / "app" / "__main__.py").write_text(f"import app.sibling\nfrom . import sibling\n{SHOWS}")
    (tmp_path / "app" / "main.py").write_text(SHOWS)
    return tmp_path


class TestTheProgram:
    @pytest.mark.parametrize("options", [["-py", "job.py"], ["--python", "job.py"], ["job.py"]])
    def test_a_file_is_accepted_in_flinks_spelling(self, folder: Path, options: list[str]) -> None:
        name, file, package, argv, _ = shown(*options, "one", "-x", "job.py", cwd=folder)
        assert (name, file, package, argv) == ("__main__", "job.py", None, ["job.py", "one", "-x", "job.py"])

    @pytest.mark.parametrize("option", ["-pym", "--pyModule"])
    @pytest.mark.parametrize(("module", "file"), [("app.main", "app/main.py"), ("app", "app/__main__.py")])
    def test_a_module_of_the_current_folder_runs(self, folder: Path, option: str, module: str, file: str) -> None:
        name, path, package, argv, _ = shown(option, module, "one", "two", cwd=folder)
        assert (name, path, package) == ("__main__", str(folder / file), "app")
        assert argv == [str(folder / file), "one", "two"]

    def test_a_module_of_the_python_files_runs(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
            archive.writestr("packed/__init__.py", "")
            archive.writestr("packed/start.py", SHOWS)
        shipped = tmp_path / "lib.zip"
        _, file, package, _, _ = shown("-pym", "packed.start", "-pyfs", shipped, cwd=tmp_path / "empty")
        assert (file, package) == (f"{shipped}/packed/start.py", "packed")

    def test_a_folder_and_a_zip_file_with_a_main_module_run(self, folder: Path) -> None:
        (folder / "zipped").mkdir()
        (folder / "zipped" / "__main__.py").write_text(f"import neighbour\n{SHOWS}")
        (folder / "zipped" / "neighbour.py").touch()
        with zipfile.ZipFile(folder / "app.zip", "w") as archive:
            for name in ("__main__.py", "neighbour.py"):
                archive.write(folder / "zipped" / name, name)
        assert shown("zipped", "one", cwd=folder)[:4] == ["__main__", "zipped/__main__.py", None, ["zipped", "one"]]
        assert shown("app.zip", cwd=folder)[:2] == ["__main__", f"{folder}/app.zip/__main__.py"]

    def test_a_module_of_a_wheel_runs(self, folder: Path) -> None:
        wheel = make_wheel(folder, "wheeled", "")
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.writestr("wheeled/main.py", SHOWS)
        _, file, package, argv, _ = shown("-pym", "wheeled.main", wheel, "one", cwd=folder)
        assert (file, package, argv[1:]) == (f"{wheel}/wheeled/main.py", "wheeled", ["one"])

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (["-pym", "app.none"], "has no module app.none that can run"),
            (["-pym", "none.at.all"], "has no module none.at.all that can run"),
            (["none.zip"], "none.zip cannot run: can't find module '__main__'"),
            (["-pym", "app.sibling.deeper"], "has no module app.sibling.deeper that can run"),
        ],
    )
    def test_a_missing_module_is_reported(self, folder: Path, arguments: list[str], problem: str) -> None:
        with zipfile.ZipFile(folder / "none.zip", "w") as archive:
            archive.writestr("a.py", "")
        done = run(*arguments, cwd=folder)
        assert done.returncode == 1
        assert problem in done.stderr
        assert "Traceback" not in done.stderr

    def test_an_import_error_inside_a_module_is_printed_with_its_line(self, folder: Path) -> None:
        (folder / "app" / "broken.py").write_text("import no_such_thing\n")
        done = run("-pym", "app.broken", cwd=folder)
        assert done.returncode == 1
        assert f'File "{folder}/app/broken.py", line 1' in done.stderr
        assert "No module named 'no_such_thing'" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ([], "Name a Python file"),
            (["-py", "none.py"], "'none.py' does not exist"),
            (["app/../empty"], "does not exist"),
            (["-py", "job.py", "-pym", "app"], "not both"),
        ],
    )
    def test_a_wrong_program_is_refused_with_exit_code_2(
        self, folder: Path, arguments: list[str], problem: str
    ) -> None:
        done = run(*arguments, cwd=folder)
        assert done.returncode == 2
        assert problem in " ".join(done.stderr.replace("│", " ").split())


class TestDependencies:
    @pytest.mark.parametrize(
        "options",
        [
            ["--py-files", "a.py,lib", "--archives", "x.zip#data", "--requirements", "r.txt#wheels"],
            ["--pyFiles", "a.py,lib", "--pyArchives", "x.zip#data", "--pyRequirements", "r.txt#wheels"],
            ["-pyfs", "a.py", "-pyfs", "lib", "-pyarch", "x.zip#data", "-pyreq", "r.txt#wheels"],
        ],
    )
    def test_the_program_imports_dependencies_and_settings_name_them(self, folder: Path, options: list[str]) -> None:
        (folder / "other").mkdir()
        (folder / "lib").mkdir()
        (folder / "a.py").touch()
        (folder / "lib" / "in_lib.py").touch()
        (folder / "x.zip").touch()
        make_wheel(folder / "wheels", "made_for_cli", "")
        (folder / "r.txt").write_text("made_for_cli\n")
        (folder / "other" / "job.py").write_text(f"import a, in_lib, made_for_cli\n{SHOWS}")
        *_, settings = shown(*options, "other/job.py", cwd=folder)
        assert settings == {
            "python.files": f"{folder}/a.py,{folder}/lib",
            "python.archives": f"{folder}/x.zip#data",
            "python.requirements": f"{folder}/r.txt#{folder}/wheels",
        }

    def test_a_missing_dependency_is_refused_before_the_program_runs(self, folder: Path) -> None:
        done = run("--py-files", "none.py", "job.py", cwd=folder)
        assert done.returncode == 1
        assert done.stdout == ""
        assert f"python.files: file '{folder}/none.py' does not exist." in done.stderr

    def test_requirements_that_cannot_be_installed_end_the_command(self, folder: Path) -> None:
        (folder / "wheels").mkdir()
        (folder / "r.txt").write_text("no_such_package_anywhere\n")
        done = run("--requirements", "r.txt#wheels", "job.py", cwd=folder)
        assert done.returncode == 1
        assert done.stdout == ""
        assert "no_such_package_anywhere" in done.stderr
        assert "Traceback" not in done.stderr

    def test_dependencies_of_the_configuration_file_are_importable(self, folder: Path) -> None:
        (folder / "lib").mkdir()
        (folder / "lib" / "in_lib.py").touch()
        (folder / "job.py").write_text("import in_lib; print('imported')")
        (folder / "penstock.conf").write_text(f"python.files: {folder}/lib\n")
        done = subprocess.run(
            [*PENSTOCK, "job.py"],
            cwd=folder,
            env={**os.environ, "PENSTOCK_CONF": str(folder / "penstock.conf")},
            capture_output=True,
            text=True,
        )
        assert done.stdout == "imported\n", done.stderr
