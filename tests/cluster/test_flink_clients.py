"""Flink's own clients work unchanged: their requests, replayed against a real service without a token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flink_requests import CANCEL, COMMAND_LINE, DASHBOARD, JSON, OPERATOR, STOP, Step
from rest_contract import CONTRACT, check_answer
from rest_requests import RestRequests
from service import Service

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
from penstock.datastream import StreamExecutionEnvironment
print("arguments", sys.argv[1:], flush=True)
env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_sequence(1, 10**9).uid("numbers")
numbers.key_by(lambda n: n % 7).reduce(lambda a, b: a + b).uid("sums").print().uid("out")
env.execute("sums")
"""


class Client:
    """Sends the requests of a client, and checks the answers as strictly as it decodes them."""

    def __init__(self, rest: RestRequests, prefix: str, **values: Any) -> None:
        self.rest, self.prefix, self.values = rest, prefix, values

    def look_up(self) -> None:
        """Find the ids of the job by following the answers."""
        job = {"jobid": self.values["jobid"]}
        self.values["vertexid"] = self.decoded("/jobs/:jobid", job)["vertices"][-1]["id"]
        self.look_up_checkpoint()
        vertex = self.decoded("/jobs/:jobid/vertices/:vertexid", self.values)
        self.values |= {"subtaskindex": 0, "taskmanagerid": vertex["subtasks"][0]["taskmanager-id"]}
        self.values["requirements"] = self.decoded("/jobs/:jobid/resource-requirements", job) | {"later": 1}

    def look_up_checkpoint(self) -> None:
        """Find the newest checkpoint. A job shows its last ten, and completes several each second."""
        found = self.rest.until(
            lambda: self.decoded("/jobs/:jobid/checkpoints", {"jobid": self.values["jobid"]})["history"],
            lambda history: any(each["status"] == "COMPLETED" for each in history),
        )
        self.values["checkpointid"] = max(each["id"] for each in found if each["status"] == "COMPLETED")

    def decoded(self, path: str, values: dict[str, Any]) -> Any:
        return json.loads(self.send(Step("GET", path), values))

    def send(self, step: Step, values: dict[str, Any] | None = None) -> bytes:
        given = self.values if values is None else values
        path = "/".join(str(given[part[1:]]) if part.startswith(":") else part for part in step.path.split("/"))
        body = step.body
        if isinstance(body, str):
            body = given[body[1:]]
        elif isinstance(body, dict):
            body = {key: given[each[1:]] if str(each).startswith(":") else each for key, each in body.items()}
        encoded = None if body is None else json.dumps(body).encode()
        headers = (JSON if encoded is not None else {}) | step.headers
        status, data = self.rest.answer(step.method, self.prefix + path + step.query, encoded, headers)
        assert status == (step.status or CONTRACT[step.method, step.path].status), (step, data)
        if step.status:
            assert list(json.loads(data)) == ["errors"]
        else:
            query = dict(part.split("=") for part in step.query[1:].split("&") if part)
            check_answer(step.method, step.path, data, query)
            assert json.loads(data) or "get" not in query
        return data

    def replay(self, steps: list[Step]) -> None:
        for step in steps:
            if ":checkpointid" in step.path:
                self.look_up_checkpoint()
            data = self.send(step)
            if step.polled:
                self._poll(step, json.loads(data)["request-id"])

    def _poll(self, step: Step, trigger: str) -> None:
        values = self.values | {"triggerid": trigger}
        answer = self.rest.until(
            lambda: self.decoded(step.polled, values), lambda found: found["status"]["id"] == "COMPLETED"
        )
        assert tuple(answer["operation"]) == step.result, answer
        self.values |= answer["operation"]


def uploaded(rest: RestRequests, path: str, *parts: tuple[str, str, bytes]) -> str:
    """Upload parts, each with the rest of its disposition, its type and its content, and return the program's id."""
    body = b"".join(
        b"--b0undary\r\n"
        + f"content-disposition: form-data; {place}\r\ncontent-type: {kind}\r\n\r\n".encode()
        + content
        + b"\r\n"
        for place, kind, content in parts
    )
    headers = {"Content-Type": "multipart/form-data; boundary=b0undary"}
    status, data = rest.answer("POST", path, body + b"--b0undary--\r\n", headers)
    assert status == 200, data
    check_answer("POST", "/jars/upload", data)
    name = str(json.loads(data)["filename"]).rpartition("/")[2]
    assert name in {each["id"] for each in rest.ask("GET", "/jars")["files"]}
    return name


FILE = 'name="jarfile"; filename="sums.py"'
JAVA = "application/x-java-archive"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    # Ten checkpoints must last longer than the second between two snapshots of a job.
    settings = {"spark__driver__memory": "512m", "execution__checkpointing__interval": "500 ms"}
    with Service(tmp_path_factory.mktemp("cluster"), **settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def rest(cluster: Service) -> RestRequests:
    return cluster.rest


@pytest.fixture(scope="module")
def job(rest: RestRequests) -> str:
    """A job that the web page of Flink has uploaded and started: with parameters in the query and nulls in the body."""
    program = uploaded(rest, "/jars/upload", (FILE, JAVA, PROGRAM.encode()))
    query = "entry-class=org.apache.flink.client.python.PythonDriver&parallelism=2&program-args=-py%20sums.py%20--a%205"
    nothing = dict.fromkeys(("entryClass", "parallelism", "programArgs", "savepointPath", "allowNonRestoredState"))
    status, data = rest.answer("POST", f"/jars/{program}/run?{query}", json.dumps(nothing).encode(), JSON)
    assert status == 200, data
    check_answer("POST", "/jars/:jarid/run", data)
    job = str(json.loads(data)["jobid"])
    rest.await_state(job, "RUNNING", within_s=200)
    return job


@pytest.mark.parametrize(
    ("prefix", "steps"),
    [("", DASHBOARD), ("/v1", COMMAND_LINE), ("/v1", OPERATOR)],
    ids=["dashboard", "command line", "operator"],
)
def test_the_requests_of_a_client_of_flink_are_answered(
    rest: RestRequests, job: str, tmp_path: Path, prefix: str, steps: list[Step]
) -> None:
    client = Client(rest, prefix, jobid=job, directory=str(tmp_path))
    client.look_up()
    client.replay(steps)


def test_the_web_page_starts_a_program_with_its_parameters(cluster: Service, rest: RestRequests, job: str) -> None:
    assert "arguments ['--a', '5']" in cluster.log(job)
    details = rest.ask("GET", f"/jobs/{job}")
    assert [each["parallelism"] for each in details["vertices"][1:]] == [2]


def test_the_operator_runs_a_session_job_through_a_savepoint(
    cluster: Service, rest: RestRequests, tmp_path: Path
) -> None:
    """Upload, run, stop with a savepoint, resume, cancel and clean up, as for a FlinkSessionJob that is upgraded."""
    # Flink's REST client sends the body as one part, and each file as another, with the name file_0 and so on.
    parts = [
        ('name="request"', "application/json", b"{}"),
        ('name="file_0"; filename="sums.py"', JAVA, PROGRAM.encode()),
    ]
    program = uploaded(rest, "/v1/jars/upload", *parts)
    body: dict[str, Any] = {
        "entryClass": None,
        "programArgs": None,
        "programArgsList": ["--rate", "5"],
        "parallelism": 1,
        "jobId": "5" * 32,
        "allowNonRestoredState": None,
        "savepointPath": None,
        "restoreMode": None,
        "claimMode": None,
        # The operator sends the settings of the whole cluster.
        "flinkConfiguration": {
            "$internal.flink.version": "v1_20",
            "execution.target": "kubernetes-session",
            "high-availability.type": "kubernetes",
            "jobmanager.memory.process.size": "2048m",
            "kubernetes.cluster-id": "session",
            "pipeline.max-parallelism": "24",
            "rest.port": "8081",
            "state.savepoints.dir": str(tmp_path),
            "taskmanager.numberOfTaskSlots": "2",
        },
        "fieldOfALaterVersion": {"x": [1]},
    }
    first = Client(rest, "/v1", jobid="5" * 32, jarid=program, directory=str(tmp_path))
    run = Step("POST", "/jars/:jarid/run", body=body)
    assert json.loads(first.send(run))["jobid"] == "5" * 32
    # The operator repeats a request whose answer it missed.
    assert json.loads(first.send(run))["jobid"] == "5" * 32
    rest.await_state("5" * 32, "RUNNING", within_s=200)
    first.replay([STOP])
    rest.await_state("5" * 32, "FINISHED")
    saved = first.values["location"]
    resumed = body | {"jobId": "6" * 32, "savepointPath": saved, "claimMode": "NO_CLAIM", "allowNonRestoredState": True}
    second = Client(rest, "/v1", jobid="6" * 32, jarid=program)
    second.send(Step("POST", "/jars/:jarid/run", body=resumed))
    rest.await_state("6" * 32, "RUNNING", within_s=200)
    restored = rest.until(
        lambda: second.decoded("/jobs/:jobid/checkpoints", second.values)["latest"]["restored"],
        lambda found: found is not None,
    )
    assert restored["external_path"].endswith(saved)
    second.replay([CANCEL])
    rest.await_state("6" * 32, "CANCELED")
    second.send(Step("DELETE", "/jars/:jarid"))
    assert program not in {each["id"] for each in rest.ask("GET", "/jars")["files"]}


def test_a_cancelled_job_is_cancelled_once(rest: RestRequests, job: str) -> None:
    """The last test of this job. The web page uses a GET, which a foreign page could send as well."""
    path = f"/jobs/{job}/yarn-cancel"
    assert rest.answer("GET", path)[0] == 403
    assert rest.answer("GET", path, headers={"X-Penstock-Request": "1"}) == (202, b"{}")
    rest.await_state(job, "CANCELED")
    assert rest.answer("PATCH", f"/v1/jobs/{job}?mode=cancel", b"{}", JSON)[0] == 409
