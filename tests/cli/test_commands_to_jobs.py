"""Commands for jobs on this host: the requests they send and their output. The job is a fake that only answers."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.control.server import ControlPoint
from penstock.driver.control_messages import (
    Answer,
    Cancel,
    Describe,
    Description,
    Done,
    MakeSavepoint,
    Request,
    Rescale,
    Stop,
    TakeCheckpoint,
)
from penstock.errors import PenstockError

ID = "5f3a" * 8
SAVEPOINT = "/savepoints/savepoint-counts-1"


class FakeJob:
    def __init__(self, directory: str, job_id: str = ID, name: str = "counts") -> None:
        self.description = Description(
            id=job_id,
            name=name,
            status="RUNNING",
            pid=4711,
            started=0,
            epochs=12,
            restarts=1,
            parallelism={"count": 2, "sink": 4},
        )
        self.asked: list[Request] = []
        self.answers: Callable[[], Answer] = lambda: Done()
        self.point = ControlPoint(directory, job_id, self)

    def __call__(self, request: Request) -> Answer:
        if isinstance(request, Describe):
            return self.description
        self.asked.append(request)
        return self.answers()


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    settings = f"penstock.control.dir: {tmp_path}/control\ncluster.dir: {tmp_path}/cluster"
    monkeypatch.setenv("PENSTOCK_PROPERTIES", settings)
    return f"{tmp_path}/control"


@pytest.fixture
def job(directory: str) -> Iterator[FakeJob]:
    job = FakeJob(directory)
    yield job
    job.point.close()


@pytest.fixture
def another(directory: str) -> Iterator[FakeJob]:
    job = FakeJob(directory, "77" * 16, "list")
    yield job
    job.point.close()


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def in_words(printed: str) -> str:
    """Remove the frame and line breaks of usage errors."""
    return " ".join(printed.replace("│", "").split())


class TestList:
    def test_list_prints_a_line_for_each_job(self, job: FakeJob, another: FakeJob) -> None:
        done = call("list")
        assert done.exit_code == 0
        head, *lines = [line.split() for line in done.stdout.splitlines()]
        assert head == ["ID", "NAME", "STATUS", "SINCE", "EPOCHS", "PARALLELISM", "RESTARTS"]
        by_name = {line[1]: line for line in lines}
        assert by_name.keys() == {"counts", "list"}
        assert by_name["counts"][::2][:2] == [ID, "RUNNING"]
        assert by_name["counts"][-5:] == ["12", "2", "to", "4", "1"]

    def test_list_prints_all_details_as_json(self, job: FakeJob) -> None:
        assert json.loads(call("list", "--json").stdout) == [
            {
                "id": ID,
                "name": "counts",
                "status": "RUNNING",
                "pid": 4711,
                "started": 0,
                "epochs": 12,
                "restarts": 1,
                "parallelism": {"count": 2, "sink": 4},
                "checkpoints": "",
            }
        ]

    def test_list_prints_nothing_without_jobs(self, directory: str) -> None:
        done = call("list")
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", "This user has no running jobs on this host.\n")
        assert call("list", "--json").stdout == "[]\n"

    def test_list_searches_the_configured_control_directory(self, job: FakeJob, tmp_path: Path) -> None:
        assert ID not in call("list", "-D", f"penstock.control.dir={tmp_path}/elsewhere").stdout
        wrong = call("list", "-D", "penstock.contol.dir=x")
        assert wrong.exit_code == 1
        assert "Did you mean 'penstock.control.dir'?" in wrong.stderr

    def test_list_refuses_a_directory_that_others_can_write(self, directory: str) -> None:
        os.mkdir(directory)
        os.chmod(directory, 0o777)
        done = call("list")
        assert done.exit_code == 1
        assert done.stderr.startswith("UnusableDirectory: ")


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ("savepoint counts", MakeSavepoint()),
        ("savepoint counts /there", MakeSavepoint(directory="/there")),
        ("savepoint counts s3://bucket/there", MakeSavepoint(directory="s3://bucket/there")),
        ("savepoint counts file:///there", MakeSavepoint(directory="file:///there")),
        ("savepoint counts here", MakeSavepoint(directory=os.path.abspath("here"))),
        ("stop counts", Stop()),
        ("stop --drain -p /there counts", Stop(directory="/there", drain=True)),
        ("stop counts -d", Stop(drain=True)),
        ("cancel counts", Cancel()),
        ("cancel counts -s", Cancel(savepoint=True)),
        ("cancel -s counts", Cancel(savepoint=True)),
        ("cancel -s /there counts", Cancel(savepoint=True, directory="/there")),
        ("cancel counts -s here", Cancel(savepoint=True, directory=os.path.abspath("here"))),
        ("cancel counts --with-savepoint=/there", Cancel(savepoint=True, directory="/there")),
        ("cancel -s -D pipeline.name=x counts", Cancel(savepoint=True)),
        ("cancel -s counts -D pipeline.name=x", Cancel(savepoint=True)),
        ("stop counts --savepointPath /there", Stop(directory="/there")),
        ("cancel --withSavepoint counts", Cancel(savepoint=True)),
        ("checkpoint counts", TakeCheckpoint()),
        ("rescale counts 4", Rescale(parallelism=4)),
        ("rescale 5f3a count=4 a=b=3", Rescale(parallelism={"count": 4, "a=b": 3})),
    ],
)
def test_a_command_sends_its_request_to_the_job(job: FakeJob, arguments: str, asked: Request) -> None:
    done = call(*arguments.split())
    assert (done.exit_code, done.output) == (0, "")
    assert job.asked == [asked]


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ("savepoint counts -yid application_1_2", MakeSavepoint()),
        ("savepoint counts /there -yid application_1_2", MakeSavepoint(directory="/there")),
        ("savepoint -yid application_1_2 counts /there", MakeSavepoint(directory="/there")),
        ("savepoint counts /there --yarnapplicationId application_1_2", MakeSavepoint(directory="/there")),
        ("stop counts -yid application_1_2", Stop()),
        ("cancel counts -yid application_1_2", Cancel()),
        ("cancel -s counts -yid application_1_2", Cancel(savepoint=True)),
        ("cancel -yid application_1_2 -s counts", Cancel(savepoint=True)),
        ("cancel -s /there counts -yid=application_1_2", Cancel(savepoint=True, directory="/there")),
        ("cancel counts -s -yid application_1_2", Cancel(savepoint=True)),
    ],
)
def test_flinks_yarn_application_id_is_accepted_with_a_note(job: FakeJob, arguments: str, asked: Request) -> None:
    done = call(*arguments.split())
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "Note: -yid has no effect. Penstock finds its jobs without a YARN application id.\n"
    assert job.asked == [asked]


@pytest.mark.parametrize("command", [["savepoint", "counts"], ["stop", "counts"], ["cancel", "-s", "counts"]])
def test_the_only_output_is_the_path_of_the_savepoint(job: FakeJob, command: list[str]) -> None:
    job.answers = lambda: Done(savepoint=SAVEPOINT)
    assert call(*command).output == f"{SAVEPOINT}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        "rescale counts",
        "rescale counts many",
        "rescale counts 0",
        "rescale counts 4 5",
        "rescale counts 4 count=5",
        "rescale counts =5",
        "rescale counts count=5 count=6",
        "stop",
        "cancel -s",
        "stop counts -D nothing",
    ],
)
def test_an_invalid_command_line_sends_no_request(job: FakeJob, arguments: str) -> None:
    assert call(*arguments.split()).exit_code == 2
    assert job.asked == []


def test_a_refusal_is_printed_as_the_job_words_it(job: FakeJob) -> None:
    def refuse() -> Answer:
        raise PenstockError("It has no operator 'x'.", fix="Its operators are 'y'.")

    job.answers = refuse
    done = call("rescale", "counts", "x=3")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "PenstockError: It has no operator 'x'.\nFix: Its operators are 'y'.\n"


def test_the_error_for_an_unknown_job_lists_the_running_ones(job: FakeJob) -> None:
    done = call("stop", "cuonts")
    assert done.exit_code == 1
    assert f"JobNotFound: No job with the id or name 'cuonts' runs on this host. Running jobs: {ID}" in done.stderr
    assert job.asked == []


class TestSavepoint:
    def test_a_job_named_like_a_command_is_addressed_by_its_id(self, another: FakeJob, tmp_path: Path) -> None:
        assert call("savepoint", "list", str(tmp_path)).stdout == ""
        assert another.asked == []
        assert call("savepoint", "7777", "/there").exit_code == 0
        assert another.asked == [MakeSavepoint(directory="/there")]

    def test_a_job_named_like_the_placeholder_is_accepted(self, directory: str) -> None:
        job = FakeJob(directory, name="JOB")
        assert call("savepoint", "JOB").exit_code == 0
        assert job.asked == [MakeSavepoint()]
        job.point.close()

    def test_the_help_of_savepoint_shows_its_usage(self) -> None:
        said = in_words(call("savepoint", "--help").output)
        for part in ("savepoint [OPTIONS] JOB [DIR] | COMMAND [ARGS]", "inspect", "Take a savepoint"):
            assert part in said

    def test_taking_and_deleting_a_savepoint_cannot_be_combined(self, job: FakeJob, tmp_path: Path) -> None:
        assert call("savepoint", "-d", str(tmp_path), "counts").exit_code == 2
        assert job.asked == []


def test_the_help_lists_all_commands() -> None:
    said = in_words(call("--help").output)
    for command in ("list", "run", "savepoint", "stop", "cancel", "rescale", "plan", "version"):
        assert f" {command} " in said


def test_ctrl_c_ends_the_command_but_not_its_request(job: FakeJob) -> None:
    asked, left, made = threading.Event(), threading.Event(), threading.Event()

    def make() -> Answer:
        asked.set()
        left.wait()
        made.set()
        return Done(savepoint=SAVEPOINT)

    job.answers = make
    command = [sys.executable, "-m", "penstock.cli.main", "savepoint", "counts"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert asked.wait(60)
        process.send_signal(signal.SIGINT)
        said = process.communicate()
    assert process.returncode == 130
    assert said == ("", "Stopped waiting. The job will still complete the request.\n")
    left.set()
    assert made.wait(60)
    assert job.asked == [MakeSavepoint()]
