"""A job's control point and its clients, without a job: a fake answers the requests."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.control import server
from penstock.control.client import NoAnswer, RefusedByJob, Running, ask, running_jobs
from penstock.control.place import UnusableDirectory, address, control_directory, opened
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
)
from penstock.errors import PenstockError

A, B = "a1" * 16, "b2" * 16


class FakeJob:
    """Records requests and answers as configured."""

    def __init__(self, job_id: str, name: str = "counts", started: int = 0) -> None:
        self.description = Description(
            id=job_id,
            name=name,
            status="RUNNING",
            pid=os.getpid(),
            started=started,
            epochs=7,
            restarts=0,
            parallelism={"count": 2},
        )
        self.asked: list[Request] = []
        self.does: Callable[[Request], Answer] = lambda request: Done()

    def __call__(self, request: Request) -> Answer:
        if isinstance(request, Describe):
            return self.description
        self.asked.append(request)
        return self.does(request)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "control")


def find_job(directory: str, given: str) -> Running:
    """Return the only job whose id starts with a text."""
    (job,) = [job for job in running_jobs(directory) if job.id.startswith(given)]
    return job


@pytest.fixture
def start(directory: str) -> Iterator[Callable[..., FakeJob]]:
    points = []

    def start(job_id: str, name: str = "counts", started: int = 0) -> FakeJob:
        job = FakeJob(job_id, name, started)
        points.append(ControlPoint(directory, job_id, job))
        return job

    yield start
    for point in points:
        point.close()


class TestAJob:
    def test_running_jobs_are_listed_oldest_first(self, directory: str) -> None:
        assert running_jobs(directory) == []
        late, early = FakeJob(A, started=2), FakeJob(B, started=1)
        points = [ControlPoint(directory, job.description.id, job) for job in (late, early)]
        assert [job.description for job in running_jobs(directory)] == [early.description, late.description]
        points[0].close()
        assert [job.id for job in running_jobs(directory)] == [B]
        points[1].close()
        points[1].close()
        assert os.listdir(directory) == []

    def test_a_job_answers_requests(self, directory: str, start: Callable[..., FakeJob]) -> None:
        job = start(A)
        job.does = lambda request: Done(savepoint="/savepoints/one")
        requests = [
            MakeSavepoint(directory="/savepoints"),
            Stop(drain=True),
            Cancel(savepoint=True),
            Rescale(parallelism=4),
            Rescale(parallelism={"count": 2, "näme=1": 3}),
        ]
        for request in requests:
            assert ask(directory, find_job(directory, A), request) == Done(savepoint="/savepoints/one")
        assert job.asked == requests

    def test_a_job_reports_why_it_refuses_a_request(self, directory: str, start: Callable[..., FakeJob]) -> None:
        def refuse(request: Request) -> Answer:
            if isinstance(request, Stop):
                raise PenstockError("It cannot stop.", fix="Let it run.")
            raise ZeroDivisionError("by zero")

        start(A).does = refuse
        with pytest.raises(RefusedByJob) as refused:
            ask(directory, find_job(directory, A), Stop())
        assert (refused.value.headline(), refused.value.fix) == ("PenstockError: It cannot stop.", "Let it run.")
        with pytest.raises(RefusedByJob) as failed:
            ask(directory, find_job(directory, A), Cancel())
        assert failed.value.headline() == "ZeroDivisionError: by zero"

    def test_an_answer_with_text_that_utf_8_does_not_have_is_delivered(
        self, directory: str, start: Callable[..., FakeJob]
    ) -> None:
        """File names can contain bytes of other encodings, and errors quote them."""

        def refuse(request: Request) -> Answer:
            raise PenstockError("It cannot open 'a\udcff.csv'.")

        start(A, name="b\udcff").does = refuse
        job = find_job(directory, A)
        assert job.description is not None
        assert job.description.name == "b\\udcff"
        with pytest.raises(RefusedByJob, match=r"cannot open 'a\\udcff\.csv'"):
            ask(directory, job, Cancel())

    def test_a_request_to_a_job_that_just_ended_raises(self, directory: str) -> None:
        point = ControlPoint(directory, A, FakeJob(A))
        job = find_job(directory, A)
        point.close()
        with pytest.raises(NoAnswer, match="ended before it answered"):
            ask(directory, job, Stop())

    def test_an_ending_job_still_answers_pending_requests(self, directory: str) -> None:
        job = FakeJob(A)
        asked, ended = threading.Event(), threading.Event()

        def stop(request: Request) -> Answer:
            asked.set()
            ended.wait()
            return Done(savepoint="/savepoints/last")

        job.does = stop
        point = ControlPoint(directory, A, job)
        answers: list[Answer] = []
        client = threading.Thread(target=lambda: answers.append(ask(directory, find_job(directory, A), Stop())))
        client.start()
        asked.wait()
        point.close()
        assert running_jobs(directory) == []
        ended.set()
        client.join()
        assert answers == [Done(savepoint="/savepoints/last")]


class TestADriver:
    PROGRAM = (
        "import sys, signal\n"
        "from penstock.driver.control_messages import Description, Describe, Done\n"
        "from penstock.control.server import ControlPoint\n"
        "def answer(request):\n"
        "    if isinstance(request, Describe):\n"
        "        return Description(id='{id}', name='other', status='RUNNING', pid=0, started=0, epochs=0,\n"
        "                           restarts=0, parallelism={{}})\n"
        "    over.set()\n"
        "    return Done(savepoint='/last')\n"
        "import threading; over = threading.Event()\n"
        "point = ControlPoint(sys.argv[1], '{id}', answer)\n"
        "print('up', flush=True)\n"
        "over.wait()\n"
    )

    @pytest.fixture
    def driver(self, directory: str) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-c", self.PROGRAM.format(id=B), directory]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
            process.kill()

    def test_the_next_list_removes_the_socket_of_a_killed_driver(
        self, directory: str, driver: subprocess.Popen[str], start: Callable[..., FakeJob]
    ) -> None:
        start(A)
        assert {job.id for job in running_jobs(directory)} == {A, B}
        driver.kill()
        driver.wait()
        assert len(os.listdir(directory)) == 2
        assert [job.id for job in running_jobs(directory)] == [A]
        assert os.listdir(directory) == [f"{A}.sock"]

    def test_a_suspended_driver_is_listed_and_commands_do_not_wait_for_it(
        self, directory: str, driver: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.control.client._DESCRIBE_S", 0.05)
        driver.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, driver.pid, os.WSTOPPED)
        assert running_jobs(directory) == [Running(B, driver.pid, None)]
        with pytest.raises(NoAnswer, match=f"its process {driver.pid} is alive"):
            ask(directory, find_job(directory, "b2"), Cancel())
        driver.send_signal(signal.SIGCONT)

    def test_a_driver_answers_before_its_program_exits(self, directory: str, driver: subprocess.Popen[str]) -> None:
        """The main thread can exit before the command's thread has sent the answer."""
        assert ask(directory, find_job(directory, ""), Stop()) == Done(savepoint="/last")
        assert driver.wait() == 0
        assert os.listdir(directory) == []


class TestAClient:
    @pytest.fixture(autouse=True)
    def point(self, start: Callable[..., FakeJob]) -> FakeJob:
        return start(A)

    def connected(self, directory: str) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        with opened(directory) as folder:
            client.connect(address(folder, f"{A}.sock"))
        return client

    def test_a_silent_client_does_not_block_others(self, directory: str) -> None:
        with self.connected(directory), self.connected(directory) as slow:
            slow.sendall(b'{"type":')
            assert find_job(directory, A).description is not None

    def test_a_slow_client_is_disconnected(self, directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "_REQUEST_S", 0.01)
        with self.connected(directory) as silent:
            assert silent.recv(1) == b""

    def test_a_client_with_an_oversized_request_is_disconnected(self, directory: str, point: FakeJob) -> None:
        with self.connected(directory) as client, pytest.raises(OSError):  # noqa: PT012
            while True:
                client.sendall(b"x" * 1024)
        assert point.asked == []
        assert find_job(directory, A).description is not None

    def test_an_invalid_request_is_refused(self, directory: str, point: FakeJob) -> None:
        for nonsense in (b"\x80\x04K\x01.\n", b'{"type": "explode"}\n', b'{"type": "rescale", "parallelism": "x"}\n'):
            with self.connected(directory) as client:
                client.sendall(nonsense)
                assert b'"refused"' in client.recv(4096)
        assert point.asked == []

    def test_a_request_is_executed_even_if_the_client_disconnects(self, directory: str, point: FakeJob) -> None:
        left, done = threading.Event(), threading.Event()

        def late(request: Request) -> Answer:
            left.wait()
            done.set()
            return Done()

        point.does = late
        with self.connected(directory) as client:
            client.sendall(b'{"type": "rescale", "parallelism": 3}\n')
        left.set()
        assert done.wait(60)
        assert point.asked == [Rescale(parallelism=3)]
        assert find_job(directory, A).description is not None

    def test_clients_beyond_the_limit_are_turned_away(self, directory: str) -> None:
        crowd = [self.connected(directory) for _ in range(server._CLIENTS)]
        with self.connected(directory) as one_more:
            assert one_more.recv(1) == b""
        for client in crowd:
            client.close()


class TestTheDirectory:
    def test_the_directory_is_private_to_this_user(self, directory: str, start: Callable[..., FakeJob]) -> None:
        start(A)
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
        assert stat.S_IMODE(os.stat(os.path.join(directory, f"{A}.sock")).st_mode) == 0o600

    def test_the_directory_path_can_be_longer_than_a_socket_path(self, tmp_path: Path) -> None:
        deep = str(tmp_path / ("deep" * 50) / "control")
        point = ControlPoint(deep, A, FakeJob(A))
        assert [job.id for job in running_jobs(deep)] == [A]
        point.close()

    def test_a_directory_of_another_user_is_refused(self, directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
        os.mkdir(directory, 0o700)
        monkeypatch.setattr(os, "getuid", lambda: os.stat(directory).st_uid + 1)
        for use in (lambda: ControlPoint(directory, A, FakeJob(A)), lambda: running_jobs(directory)):
            with pytest.raises(UnusableDirectory, match=r"belongs to another user"):
                use()
        assert os.listdir(directory) == []

    def test_a_directory_writable_by_others_is_refused(self, directory: str) -> None:
        os.mkdir(directory)
        os.chmod(directory, 0o770)
        with pytest.raises(UnusableDirectory, match=r"mode 770.* penstock\.control\.dir"):
            ControlPoint(directory, A, FakeJob(A))

    def test_a_link_or_a_file_is_refused_as_the_directory(self, directory: str, tmp_path: Path) -> None:
        os.symlink(tmp_path, directory)
        (tmp_path / "file").touch()
        for path in (directory, str(tmp_path / "file")):
            with pytest.raises(UnusableDirectory, match="cannot be opened as a directory"), opened(path, create=True):
                pass

    def test_the_directory_is_configurable_and_per_user_by_default(self) -> None:
        assert control_directory({"penstock.control.dir": "/run/mine"}) == "/run/mine"
        assert control_directory({}).endswith(f"/penstock-control-{os.getuid()}")
