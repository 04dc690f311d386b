"""Modules that a program ships to its workers."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from made_wheels import make_wheel

pytestmark = pytest.mark.spark


def test_workers_import_a_file_added_by_the_program(make_env: Any, tmp_path: Path) -> None:
    (tmp_path / "shipped_to_workers.py").write_text("def double(n):\n    return 2 * n\n")
    env = make_env()
    env.add_python_file(str(tmp_path / "shipped_to_workers.py"))

    def use(number: int) -> int:
        import shipped_to_workers  # type: ignore[import-not-found]

        return int(shipped_to_workers.double(number))

    with env.from_collection([1, 2, 3]).map(use).execute_and_collect() as results:
        assert results.next() in (2, 4, 6)
        assert len([*results]) == 2


def test_workers_import_folders_wheels_and_requirements_and_read_archives(make_env: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "in_shipped_folder.py").write_text("NAME = 'folder'")
    wheel = make_wheel(tmp_path, "shipped_as_wheel", "NAME = 'wheel'")
    make_wheel(tmp_path / "wheels", "shipped_as_requirement", "NAME = 'requirement'")
    (tmp_path / "requirements.txt").write_text("shipped_as_requirement\n")
    with zipfile.ZipFile(tmp_path / "a name.zip", "w") as archive:
        archive.writestr("word.txt", "archive")
    env = make_env()
    env.add_python_file(str(tmp_path / "folder"))
    env.add_python_file(str(wheel))
    env.add_python_archive(str(tmp_path / "a name.zip"), "words")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "wheels"))

    def use(number: int) -> list[str]:
        import in_shipped_folder  # type: ignore[import-not-found]
        import shipped_as_requirement  # type: ignore[import-not-found]
        import shipped_as_wheel  # type: ignore[import-not-found]
        from pyspark import SparkFiles

        words = (Path(SparkFiles.get("words")) / "word.txt").read_text()
        return [in_shipped_folder.NAME, shipped_as_wheel.NAME, shipped_as_requirement.NAME, words]

    with env.from_collection([1]).map(use).execute_and_collect() as results:
        assert [*results] == [["folder", "wheel", "requirement", "archive"]]


@pytest.mark.slow
def test_a_zip_file_runs_with_workers_that_import_from_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("neighbour_in_zip.py", "def double(n):\n    return 2 * n\n")
        archive.writestr(
            "__main__.py",
            "import neighbour_in_zip\n"
            "from penstock.datastream import StreamExecutionEnvironment\n"
            "env = StreamExecutionEnvironment.get_execution_environment()\n"
            "env.from_collection([21]).map(neighbour_in_zip.double).print()\n"
            "env.execute('zipped')\n",
        )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "run", "-p", "1", "app.zip"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stdout == "42\n", done.stderr
