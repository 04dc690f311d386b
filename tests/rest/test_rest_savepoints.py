"""Looking into savepoints over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_service import OPEN, Service, served

from penstock.common import Types
from penstock.common.configuration import Configuration
from penstock.datastream import KeyedProcessFunction, Savepoint, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import JobHarness

INSPECT, DIFF = "/penstock/v1/savepoints/inspect", "/penstock/v1/savepoints/diff"


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.seen.update((self.seen.value() or 0) + 1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with served(tmp_path_factory.mktemp("service"), OPEN) as service:
        yield service


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two savepoints of one job, with two and then three keys."""
    folder = tmp_path_factory.mktemp("savepoints")
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    stream = env.from_collection([], type_info=Types.STRING()).uid("words")
    job = JobHarness(stream.key_by(lambda word: word, key_type=Types.STRING()).process(Count()).uid("count"))
    job.push("a", "b").epoch()
    one = job.savepoint(folder)
    job.push("c").epoch()
    return one, job.savepoint(folder)


def test_a_savepoint_is_described_by_operator_and_source(service: Service, paths: tuple[str, str]) -> None:
    found = service.ask("POST", INSPECT, {"path": paths[0]}).json
    metadata = Savepoint.load(paths[0]).metadata
    assert (found["id"], found["path"], found["size"]) == (metadata.id, paths[0], metadata.size)
    operators = {operator["uid"]: operator for operator in found["operators"]}
    assert operators["count"]["states"] == [{"name": "seen", "type": "value long"}]
    assert [(source["uid"], source["records"]) for source in found["sources"]] == [("words", 2)]


def test_two_savepoints_are_compared(service: Service, paths: tuple[str, str]) -> None:
    answer = service.ask("POST", DIFF, {"one": paths[0], "other": paths[1]})
    expected = [each._asdict() for each in Savepoint.load(paths[0]).compared(Savepoint.load(paths[1]))]
    assert answer.json == json.loads(json.dumps(expected))
    assert {"of": "source", "uid": "words", "what": "records", "was": 2, "now": 3} in answer.json
    assert service.ask("POST", DIFF, {"one": paths[0], "other": paths[0]}).json == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"path": "relative"}, "absolute"),
        ({"path": "/etc"}, "savepoint"),
        ({"path": "/no/such/place"}, "savepoint"),
        ({}, "path"),
        ({"path": 1}, "path"),
    ],
)
def test_another_path_is_refused(service: Service, body: Any, text: str) -> None:
    answer = service.ask("POST", INSPECT, body)
    assert answer.status == 400
    assert text in answer.error


def test_a_damaged_savepoint_is_refused(service: Service, paths: tuple[str, str]) -> None:
    metadata = next(path for path in Path(paths[1]).iterdir() if path.is_file() and "metadata" in path.name)
    content = metadata.read_bytes()
    metadata.write_bytes(content[: len(content) // 2])
    try:
        answer = service.ask("POST", INSPECT, {"path": paths[1]})
    finally:
        metadata.write_bytes(content)
    assert answer.status == 400
    assert answer.error
