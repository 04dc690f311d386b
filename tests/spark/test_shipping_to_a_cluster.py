"""A program and its dependencies reach executors that share neither a folder nor an environment with the driver."""

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from made_wheels import make_wheel
from standalone import ROOT, Standalone

import penstock

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone master and a worker, which has Penstock and its dependencies, and nothing of the program."""
    cluster = Standalone(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.add_worker(2)
        yield cluster.address
    finally:
        cluster.close()


def run(master: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock.cli.main", "run", "-p", "2", "-D", f"spark.master={master}"]
    command += ["-D", "spark.driver.host=127.0.0.1", "-D", f"state.checkpoints.dir={cwd}/checkpoints"]
    command += ["-D", "spark.executor.memory=512m", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


PROGRAM = """
import helpers
import made_for_cluster
import packaged
import shipped_module
import shipped_wheel
import space.inside
from pyspark import SparkFiles

from penstock.datastream import StreamExecutionEnvironment


def look(name):
    import lazily_imported

    with open(f"{SparkFiles.get('words')}/word.txt") as file:
        word = file.read()
    modules = (helpers, lazily_imported, space.inside, shipped_module, shipped_wheel, made_for_cluster)
    return [name, word, packaged.data(), *(module.NAME for module in modules)]


env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(["one", "two"]).map(look).print()
env.execute("shipped")
"""


def test_everything_that_a_program_ships_reaches_executors(master: str, tmp_path: Path) -> None:
    program, elsewhere = tmp_path / "program", tmp_path / "elsewhere"
    for folder in (program / "packaged", program / "space", elsewhere):
        folder.mkdir(parents=True)
    (program / "job.py").write_text(PROGRAM)
    (program / "helpers.py").write_text("NAME = 'sibling'")
    (program / "lazily_imported.py").write_text("NAME = 'lazy'")
    (program / "space" / "inside.py").write_text("NAME = 'namespace'")
    (program / "packaged" / "data.txt").write_text("data of a package")
    (program / "packaged" / "__init__.py").write_text(
        "from importlib.resources import files\ndef data(): return files('packaged').joinpath('data.txt').read_text()\n"
    )
    (elsewhere / "shipped_module.py").write_text("NAME = 'py-file'")
    wheel = make_wheel(elsewhere, "shipped_wheel", "NAME = 'wheel'")
    with zipfile.ZipFile(elsewhere / "words.zip", "w") as archive:
        archive.writestr("word.txt", "word of an archive")
    make_wheel(elsewhere / "wheels", "made_for_cluster", "NAME = 'requirement'")
    (elsewhere / "requirements.txt").write_text("made_for_cluster\n")
    done = run(
        master,
        "--py-files",
        f"{elsewhere}/shipped_module.py,{wheel}",
        "--archives",
        f"{elsewhere}/words.zip#words",
        "--requirements",
        f"{elsewhere}/requirements.txt#{elsewhere}/wheels",
        str(program / "job.py"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    found = [
        "word of an archive",
        "data of a package",
        "sibling",
        "lazy",
        "namespace",
        "py-file",
        "wheel",
        "requirement",
    ]
    assert sorted(line[line.index("[") :] for line in done.stdout.splitlines()) == [
        str(["one", *found]),
        str(["two", *found]),
    ]


def test_one_message_lists_what_executors_lack(master: str, tmp_path: Path) -> None:
    """The workers use a Python of the same version without packages. Two modules exist on the driver only."""
    venv.create(tmp_path / "bare")
    (tmp_path / "hidden").mkdir()
    for name in ("first_hidden", "second_hidden"):
        (tmp_path / "hidden" / f"{name}.py").write_text("def use(value): return value\n")
    (tmp_path / "job.py").write_text(
        "import sys\n"
        f"sys.path.append({str(tmp_path / 'hidden')!r})\n"
        "import first_hidden, second_hidden\n"
        "from penstock.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).map(first_hidden.use).map(lambda n: second_hidden.use(n)).print()\n"
        "env.execute('lacking')\n"
    )
    (tmp_path / ".penstockignore").write_text("hidden\nbare\n")
    done = run(master, "-D", f"spark.pyspark.python={tmp_path}/bare/bin/python", str(tmp_path / "job.py"), cwd=tmp_path)
    assert done.returncode == 1
    lines = [line.partition(": ")[2] for line in done.stderr.splitlines() if line.startswith("- ")]
    assert len(lines) == 3, done.stderr
    assert lines[0].startswith(f"penstock {penstock.__version__} cannot be imported (")
    assert lines[1].startswith(f"pyarrow {pyarrow.__version__} cannot be imported (")
    assert lines[2].startswith(
        "modules cannot be imported: first_hidden (No module named 'first_hidden'), second_hidden ("
    )
    assert "--py-files" in lines[2]


def test_an_error_in_a_shipped_module_names_the_drivers_file(master: str, tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("def half(number):\n    return number / 0\n")
    (tmp_path / "job.py").write_text(
        "import helpers\n"
        "from penstock.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).map(helpers.half).print()\n"
        "env.execute('fails')\n"
    )
    done = run(master, str(tmp_path / "job.py"), cwd=tmp_path)
    assert done.returncode == 1
    assert "helpers.py:2: ZeroDivisionError: division by zero\n    return number / 0\n" in done.stderr
    assert ".zip" not in done.stderr


def test_an_interpreter_that_executors_do_not_have_is_reported(master: str, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "from penstock.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).print()\n"
        "env.execute('no-python')\n"
    )
    done = run(master, "-D", "spark.pyspark.python=/nowhere/bin/python", str(tmp_path / "job.py"), cwd=tmp_path)
    assert done.returncode == 1
    assert "An executor cannot run '/nowhere/bin/python', the Python interpreter of the workers." in done.stderr
