"""`penstock run -d` and `-m`: what reaches the service, and what the command prints. The cluster is a fake."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from called_commands import call
from fake_gateway import snapshot
from http_service import Service

from penstock.cluster.gateway import Conflict, NotLeading, RunRequest


@pytest.fixture
def program(tmp_path: Path) -> str:
    (tmp_path / "program").mkdir()
    path = tmp_path / "program" / "job.py"
    path.write_text("print()\n")
    return str(path)


@pytest.fixture(autouse=True)
def _known_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.submit.new_job_id", lambda: "c" * 32)


def request_to(cluster: Service) -> RunRequest:
    ((kind, request),) = cluster.gateway.asked
    assert kind == "run"
    assert isinstance(request, RunRequest)
    return request


def test_the_job_id_is_alone_on_standard_output(cluster: Service, program: str) -> None:
    done = call("run", "-d", program)
    assert (done.exit_code, done.stdout) == (0, f"{'c' * 32}\n")
    assert "penstock logs -f cccccccc" in done.stderr


def test_a_quiet_command_prints_the_job_id_only(cluster: Service, program: str) -> None:
    cluster.gateway.by_id["c" * 32] = snapshot("c" * 32, "FINISHED")
    assert call("run", "-d", "-q", program).output == f"{'c' * 32}\n"
    assert request_to(cluster).configuration == {"penstock.console.quiet": "true"}
    assert call("run", "-d", "-q", "--wait", program).output == f"{'c' * 32}\n"


def test_a_submission_whose_answer_is_lost_is_repeated_and_is_one_job(cluster: Service, program: str) -> None:
    run, answers = cluster.gateway.run, [False, True]

    async def lose(request: RunRequest) -> str:
        job = await run(request)
        if answers.pop(0):
            return job
        raise NotLeading("This Dispatcher does not lead.")

    cluster.gateway.run = lose
    done = call("run", "-d", program)
    assert done.exit_code == 0, done.stderr
    (_, first), (_, second) = cluster.gateway.asked
    assert first == second
    assert first.job_id == "c" * 32
    assert done.stdout == f"{first.job_id}\n"


def test_the_id_of_a_job_that_might_have_been_accepted_is_printed(
    cluster: Service, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(request: RunRequest) -> str:
        raise NotLeading("This Dispatcher does not lead.")

    cluster.gateway.run = lose
    monkeypatch.setattr("penstock.cli.cluster_jobs._AWAY_S", 0.0)
    done = call("run", "-d", program)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "This Dispatcher does not lead." in done.stderr
    assert f"It might have accepted job {'c' * 32}: `penstock list`" in done.stderr


def test_a_submission_that_is_refused_is_not_repeated(cluster: Service, program: str) -> None:
    cluster.gateway.failure = Conflict("3 jobs run already, the limit of cluster.max-jobs.")
    done = call("run", "-d", program)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "might" not in done.stderr


def test_options_of_the_command_line_reach_the_job(
    cluster: Service, program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    given = "-d -p 3 -D state.backend=rocksdb -D rest.port=1 -s saved --allowNonRestoredState --claim-mode CLAIM"
    done = call("run", *given.split(), program, "--day", "today")
    assert done.exit_code == 0
    request = request_to(cluster)
    assert request.program.endswith("_job.zip")
    assert request.arguments == ["--day", "today"]
    assert request.configuration == {"state.backend": "rocksdb", "parallelism.default": "3"}
    assert request.savepoint == str(tmp_path / "saved")
    assert request.allow_non_restored_state
    assert request.claim_mode == "CLAIM"


def test_relative_paths_of_settings_are_those_of_the_command(
    cluster: Service, program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    given = "-d -D state.checkpoint.dir=here/cp -D state.savepoints.dir=s3://bucket/sp -D state.backend.local-dir=r"
    assert call("run", *given.split(), program).exit_code == 0
    assert request_to(cluster).configuration == {
        "state.checkpoints.dir": f"{tmp_path}/here/cp",
        "state.savepoints.dir": "s3://bucket/sp",
        # Each worker has its own.
        "state.backend.local-dir": "r",
    }


def test_dependencies_can_be_uris(cluster: Service, program: str, tmp_path: Path) -> None:
    (tmp_path / "my helpers.py").touch()
    done = call("run", "-d", "--py-files", (tmp_path / "my helpers.py").as_uri(), program)
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--requirements", "/missing.txt"], "requirements file '/missing.txt' does not exist"),
        (["--requirements", f"{__file__}#/missing"], "'/missing' is not a folder of wheels"),
        (["--py-files", "/missing.py"], "file '/missing.py' does not exist"),
        (["--archives", "/missing.zip#x"], "archive '/missing.zip' does not exist"),
    ],
)
def test_a_dependency_that_does_not_exist_is_named(
    cluster: Service, program: str, options: list[str], message: str
) -> None:
    done = call("run", "-d", *options, program)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("BadSetting: python.")
    assert message in done.stderr
    assert cluster.gateway.asked == []


def test_the_heap_of_the_jobmanager_is_a_setting_of_the_job(cluster: Service, program: str) -> None:
    assert call("run", "-d", "-D", "jobmanager.memory.heap.size=2g", program).exit_code == 0
    assert request_to(cluster).configuration == {"spark.driver.memory": "2048m"}


def test_settings_for_the_command_itself_are_not_sent(cluster: Service, program: str, folder: Path) -> None:
    assert call("run", "-d", "-D", f"cluster.dir={folder}", "-D", "web.timeout=20 s", program).exit_code == 0
    assert request_to(cluster).configuration == {}


@pytest.mark.parametrize(
    "setting",
    ["web.history=3", "cluster.max-jobs=3", "high-availability=none", "heartbeat.timeout=1 min"],
)
def test_settings_of_the_service_are_refused(cluster: Service, program: str, setting: str) -> None:
    done = call("run", "-d", "-D", setting, program)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "is a setting of the service, so a job cannot set it. Put it into" in done.stderr
    assert cluster.gateway.asked == []


def test_settings_of_flinks_processes_are_sent_although_they_have_no_effect(cluster: Service, program: str) -> None:
    assert call("run", "-d", "-D", "jobmanager.memory.process.size=2g", program).exit_code == 0
    assert request_to(cluster).configuration == {"jobmanager.memory.process.size": "2g"}


def test_json_has_the_id_and_the_cluster(cluster: Service, program: str) -> None:
    done = call("run", "-d", "--json", program)
    assert json.loads(done.stdout) == {"id": "c" * 32, "cluster": f"127.0.0.1:{cluster.server.port}"}


@pytest.mark.parametrize(("state", "code"), [("FINISHED", 0), ("CANCELED", 0), ("FAILED", 1)])
def test_an_attached_command_waits_and_exits_by_the_state(
    cluster: Service, program: str, state: str, code: int
) -> None:
    cluster.gateway.by_id["c" * 32] = snapshot("c" * 32, state, reason="Its reason." if code else "")
    done = call("run", "-m", f"127.0.0.1:{cluster.server.port}", program)
    assert done.exit_code == code
    assert f"is {state}." in done.stderr
    assert ("Its reason." in done.stderr) == bool(code)


@pytest.mark.parametrize(("state", "code"), [("RUNNING", 0), ("FINISHED", 0), ("FAILED", 1)])
def test_a_detached_command_can_wait_until_the_job_runs(
    cluster: Service, program: str, state: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, by_id = "c" * 32, cluster.gateway.by_id
    by_id[job] = snapshot(job, "INITIALIZING", name="job")

    def sleep(seconds: float) -> None:
        by_id[job] = snapshot(job, state, name="north", reason="Its reason." if code else "")

    monkeypatch.setattr("penstock.cli.cluster_jobs.time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    done = call("run", "-d", "--wait", program)
    assert (done.exit_code, done.stdout) == (code, f"{job}\n")
    assert f"Job 'job' is INITIALIZING.\nJob 'north' is {state}.\n" in done.stderr
    assert ("Its reason." in done.stderr) == bool(code)


def test_waiting_until_the_job_runs_needs_a_detached_command(cluster: Service, program: str) -> None:
    assert call("run", "--wait", program).exit_code == 2
    assert call("run", "--wait", "-m", f"127.0.0.1:{cluster.server.port}", program).exit_code == 2


def test_an_argument_that_is_not_text_is_refused(cluster: Service, program: str) -> None:
    done = call("run", "-d", program, "a\udcff.csv")
    assert (done.exit_code, done.stdout) == (1, "")
    assert r"CannotShip: The argument 'a\udcff.csv' of the program is not UTF-8 text" in done.stderr
    assert cluster.gateway.asked == []


def test_the_error_for_a_missing_cluster_says_how_to_start_one(folder: Path, program: str) -> None:
    done = call("run", "-d", program)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("NoCluster: No service runs in ")
    assert "`penstock cluster start`" in done.stderr


@pytest.mark.parametrize("option", ["--web", "--dry-run"])
def test_options_that_run_the_program_here_cannot_be_combined(cluster: Service, program: str, option: str) -> None:
    assert call("run", "-d", option, "-s", "/saved", program).exit_code == 2
    assert cluster.gateway.asked == []


def test_a_program_that_is_too_large_is_refused_before_it_is_sent(cluster: Service, program: str) -> None:
    Path(program).with_name("data.bin").write_bytes(os.urandom(2 << 20))
    done = call("run", "-d", "-D", "rest.server.max-content-length=1 mb", program)
    assert done.exit_code == 1
    assert done.stderr.startswith("BadProgram: ")
    assert cluster.gateway.asked == []
