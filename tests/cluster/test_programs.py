"""The programs of a cluster, and their inspection in a separate process."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.cluster import inspection
from penstock.cluster.gateway import RunRequest, Timeout, UnknownProgram
from penstock.cluster.inspection import inspect, remove_left_inspections
from penstock.cluster.programs import Programs
from penstock.cluster.records import Records
from penstock.common.program_files import BadProgram
from penstock.state.local_storage import LocalStorage

JOB = """
from penstock.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(3)
env.from_collection([1, 2]).key_by(lambda n: n).reduce(lambda a, b: a + b).uid("sums").print()
env.execute("sums")
print("the job must not run")
"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(LocalStorage(tmp_path / "records"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "upload"
    path.write_text("print('hello')")
    return path


class TestPrograms:
    def test_an_upload_is_listed_and_can_be_read(self, records: Records, source: Path) -> None:
        programs = Programs(records)
        stored = programs.store("../my job.py", source)
        assert stored.name == "my_job.py"
        assert programs.all() == [stored]
        assert programs.read(stored.id) == (b"print('hello')", "my_job.py")

    def test_a_file_that_is_not_a_program_is_refused_and_not_stored(self, records: Records, source: Path) -> None:
        source.write_text("print(")
        with pytest.raises(BadProgram):
            Programs(records).store("job.py", source)
        assert Programs(records).all() == []
        assert records.programs() == set()

    @pytest.mark.parametrize("program_id", ["", "x", "../jobs", "0" * 64 + "_job.py"])
    def test_an_unknown_id_is_refused(self, records: Records, program_id: str) -> None:
        with pytest.raises(UnknownProgram):
            Programs(records).remove(program_id)

    def test_a_removed_program_stays_as_long_as_a_job_uses_it(self, records: Records, source: Path) -> None:
        clock = Clock()
        programs = Programs(records, clock)
        program, _ = programs.find(programs.store("job.py", source).id)
        programs.remove(f"{program}_job.py")
        for clock.now in (0, 4000):
            programs.sweep({program})
        assert records.programs() == {program}
        for clock.now in (4000, 7000):
            programs.sweep(set())
        assert records.programs() == {program}
        for clock.now in (7000, 8000):
            programs.sweep(set())
        assert records.programs() == set()

    def test_a_program_that_is_uploaded_again_before_the_sweep_stays(self, records: Records, source: Path) -> None:
        clock = Clock()
        programs = Programs(records, clock)
        stored = programs.store("job.py", source)
        programs.remove(stored.id)
        programs.sweep(set())
        programs.store("job.py", source)
        clock.now = 4000
        programs.sweep(set())
        assert programs.read(stored.id)[0] == b"print('hello')"


class TestInspection:
    def test_the_plan_of_a_program_is_built_without_running_it(self, tmp_path: Path) -> None:
        text = asyncio.run(inspect(JOB.encode(), "job.py", RunRequest(program="p"), {}, tmp_path, savepoint=False))
        nodes = json.loads(text)["nodes"]
        assert [node["parallelism"] for node in nodes if node.get("uid") == "sums"] == [3]
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])
    def test_the_plan_has_the_mode_and_the_parallelism_of_the_job(self, mode: str, tmp_path: Path) -> None:
        settings = {"execution.runtime-mode": mode}
        request = RunRequest(program="p", configuration=settings)
        text = asyncio.run(inspect(JOB.encode(), "job.py", request, {}, tmp_path, savepoint=False))
        found = json.loads(text)
        assert (found["batch"], found["parallelism"]) == (mode == "BATCH", 3)

    @pytest.mark.parametrize(
        ("program", "message"),
        [
            ("raise ValueError('no such table')", "ValueError: no such table"),
            (r"raise ValueError('no file a\udcff.csv')", r"ValueError: no file a\\udcff\.csv"),
            ("print('nothing to do')", "ended before it executed a job. Its last output: nothing to do"),
            ("import sys; input()", "EOFError"),
            ("import os; os._exit(3)", "ended before it executed a job"),
        ],
    )
    def test_a_program_without_a_job_is_refused_with_its_reason(
        self, program: str, message: str, tmp_path: Path
    ) -> None:
        with pytest.raises(BadProgram, match=message):
            asyncio.run(inspect(program.encode(), "job.py", RunRequest(program="p"), {}, tmp_path, savepoint=False))
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("end", ["raise ValueError(text)", "print(text)"])
    def test_the_secrets_of_a_refused_program_are_masked(self, end: str, tmp_path: Path) -> None:
        program = f"import sys\ntext = ', '.join(['log in with ' + sys.argv[2], 'pa-setting', 'de-fault'])\n{end}"
        request = RunRequest(
            program="p", arguments=["--password", "argument"], configuration={"db.password": "pa-setting"}
        )
        defaults = {"other.password": "de-fault"}
        with pytest.raises(BadProgram, match=r"log in with \*\*\*, \*\*\*, \*\*\*"):
            asyncio.run(inspect(program.encode(), "job.py", request, defaults, tmp_path, savepoint=False))

    def test_a_program_that_hangs_is_killed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(inspection, "_TIMEOUT_S", 2)
        program = b"while True: pass"
        with pytest.raises(Timeout, match="within 2 s"):
            asyncio.run(inspect(program, "job.py", RunRequest(program="p"), {}, tmp_path, savepoint=False))

    def test_a_program_ends_with_the_dispatcher_that_inspects_it(self, tmp_path: Path) -> None:
        """No other process knows it, and it would run forever."""
        os.mkfifo(tmp_path / "started")
        program = f"import os\nopen({str(tmp_path / 'started')!r}, 'w').write(str(os.getpid()))\nwhile True: pass"
        with subprocess.Popen([sys.executable, "-c", DISPATCHER, str(tmp_path), program]) as dispatcher:
            with open(tmp_path / "started") as started:
                pid = int(started.read())
            inspected = os.pidfd_open(pid)
            try:
                dispatcher.kill()
                assert select.select([inspected], [], [], 60)[0]
            finally:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.close(inspected)
        # Its settings are in the folder that it leaves.
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("inspection-")]
        remove_left_inspections(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["started"]

    def test_the_last_lines_of_an_endless_output_are_reported(self, tmp_path: Path) -> None:
        program = "for n in range(200_000): print('line', n)"
        with pytest.raises(BadProgram) as refused:
            asyncio.run(inspect(program.encode(), "job.py", RunRequest(program="p"), {}, tmp_path, savepoint=False))
        lines = " / ".join(f"line {n}" for n in range(199_995, 200_000))
        assert f"Its last output: {lines}" in str(refused.value)


DISPATCHER = """
import asyncio, sys
from pathlib import Path
from penstock.cluster.gateway import RunRequest
from penstock.cluster.inspection import inspect

asyncio.run(inspect(sys.argv[2].encode(), "job.py", RunRequest(program="p"), {}, Path(sys.argv[1]), savepoint=False))
"""
