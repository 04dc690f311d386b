"""`penstock run -s PATH` with a path that will not do: each says why, changes nothing, and comes before Spark."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.checkpoint.manifest import digest_of
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.savepoint.format import FORMAT
from penstock.testing import JobHarness

PROGRAM = """\
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["a"]).uid("{source}").key_by(lambda word: word)
words.reduce(lambda one, other: one).uid("{operator}").print().uid("print")
env.execute("counts")
"""


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value: str, ctx: Any) -> Any:
        self.n.update((self.n.value() or 0) + 1)
        yield value


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([]).uid("words").key_by(lambda word: word).process(Count()).name("Count").uid("count")
    with JobHarness(stream) as job:
        job.push("a", "b").epoch()
        made = Path(job.savepoint(tmp_path))
    return made.rename(tmp_path / "savepoint")


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def refused(path: Path, source: str = "words", operator: str = "count") -> str:
    """What is printed instead of running. There is no Java to start Spark with."""
    folder = path.parent
    (folder / "job.py").write_text(PROGRAM.format(source=source, operator=operator))
    before = contents(folder)
    options = ["-D", f"state.checkpoints.dir={folder}/checkpoints", "-D", "execution.checkpointing.interval=1 s"]
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "run", "-s", str(path), *options, "job.py"],
        cwd=folder,
        env=os.environ | {"JAVA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert contents(folder) == before
    return done.stderr.replace(str(folder), "FOLDER")


def test_where_there_is_no_savepoint(tmp_path: Path) -> None:
    assert refused(tmp_path / "nothing") == (
        "job.py:6: NotASavepoint: No savepoint found in FOLDER/nothing: it has no _metadata.\n"
        '    env.execute("counts")\n'
        "Fix: Pass the directory that was printed when the savepoint was made, or its new location.\n"
    )


def test_half_of_one_that_was_never_finished(savepoint: Path) -> None:
    (savepoint / "_metadata").unlink()
    assert refused(savepoint) == (
        "job.py:6: IncompleteSavepoint: The savepoint in FOLDER/savepoint is not complete: it has state, but no "
        "_metadata. It is still being made or removed, or that was interrupted.\n"
        '    env.execute("counts")\n'
        "Fix: Use another savepoint. If no process is using this one, remove it: penstock savepoint -d "
        "FOLDER/savepoint\n"
    )


def test_half_of_one_that_was_copied_in_part(savepoint: Path) -> None:
    gone = min((savepoint / "state").iterdir())
    gone.unlink()
    assert refused(savepoint) == (
        f"job.py:6: IncompleteSavepoint: The savepoint in FOLDER/savepoint is not complete: 'state/{gone.name}' is "
        "missing.\n"
        '    env.execute("counts")\n'
        "Fix: Copy the complete directory, or use another savepoint. Nothing was changed.\n"
    )


def test_one_of_another_program(savepoint: Path) -> None:
    assert refused(savepoint, source="lines", operator="most") == (
        "job.py:6: OtherJob: Nothing in the savepoint in FOLDER/savepoint matches this program. It was made from "
        "job 'harness' and has the uids 'count', 'words'; this program has 'lines', 'most', 'print'.\n"
        '    env.execute("counts")\n'
        "Fix: Check that the path and the program belong together, and give operators their previous uids. To start "
        "without the state: --allow-non-restored-state, or execution.state-recovery.ignore-unclaimed-state: true.\n"
    )


def test_one_of_a_newer_version(savepoint: Path) -> None:
    data = (savepoint / "_metadata").read_bytes()
    start = data.index(b"\n") + 1
    body = msgspec.msgpack.encode(
        msgspec.msgpack.decode(data[start + 16 :]) | {"format": FORMAT + 1, "penstock": "9.1"}
    )
    (savepoint / "_metadata").write_bytes(data[:start] + digest_of(body) + body)
    assert refused(savepoint) == (
        "job.py:6: NewerSavepoint: The savepoint in FOLDER/savepoint was made by Penstock 9.1 and has format "
        f"{FORMAT + 1}; this version reads up to format {FORMAT}.\n"
        '    env.execute("counts")\n'
        "Fix: Run Penstock 9.1 or later.\n"
    )
