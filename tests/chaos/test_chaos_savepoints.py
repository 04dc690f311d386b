"""The rig's requests to a job, and its checks of the savepoints that the job made."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from victim import run_victim

from chaos import oracle
from chaos.program import build
from chaos.requests import RESCALE, Request, answered, ask, asked, take_back
from chaos.rig import Rig
from chaos.verdict import check_savepoints
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import PenstockError
from penstock.savepoint.format import METADATA, load_savepoint, publish_metadata, savepoint_storage
from penstock.testing import JobHarness


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Return a rig for a job with a savepoint after two epochs."""
    rig = Rig(tmp_path / "work", "filesystem", [], print)
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env, str(tmp_path / "total"), str(tmp_path / "out"), 40, 0)
    with JobHarness(env, parallelism=2) as job:
        job.epoch(40)
        job.epoch(40)
        job.savepoint(rig.work / "savepoints")
    return rig


def the_savepoint(rig: Rig) -> Any:
    [path] = (rig.work / "savepoints").iterdir()
    return savepoint_storage(str(path))


def test_a_savepoint_with_the_state_of_its_records_passes(rig: Rig) -> None:
    assert check_savepoints(rig.work, rig.ends) == []


def test_a_savepoint_that_lacks_state_is_reported(rig: Rig) -> None:
    storage = the_savepoint(rig)
    metadata = load_savepoint(storage)
    source = msgspec.structs.replace(metadata.sources["numbers"], records=metadata.sources["numbers"].records + 40)
    storage.delete(METADATA)
    publish_metadata(storage, msgspec.structs.replace(metadata, sources={"numbers": source}))
    [violation] = check_savepoints(rig.work, rig.ends)
    assert "it has read 120 records, but holds state of 80" in violation


def test_an_incomplete_savepoint_is_ignored_and_a_damaged_one_is_reported(rig: Rig) -> None:
    storage = the_savepoint(rig)
    data = bytearray(storage.read(METADATA))
    storage.delete(METADATA)
    assert check_savepoints(rig.work, rig.ends) == []
    data[-1] ^= 1
    storage.write(METADATA, bytes(data))
    [violation] = check_savepoints(rig.work, rig.ends)
    assert "is damaged" in violation


def test_the_output_of_all_runs_of_a_stopped_job_is_combined(tmp_path: Path) -> None:
    run_victim(tmp_path, 200)
    [whole] = oracle.read_output(tmp_path / "out").values()
    first, second = oracle.Output(), oracle.Output()
    for number, text in enumerate(sorted(whole.lines.elements())):
        (first if number % 2 else second).lines[text] += 1
    wanted = oracle.expected(range(200))
    assert oracle.check_output({"all": oracle.together({"1": first, "2": second})}, wanted) == []
    twice = oracle.check_output({"all": oracle.together({"1": whole, "2": second})}, wanted)
    assert twice[0].startswith("duplicate: ")


def test_a_request_is_read_once_and_never_by_a_later_driver(tmp_path: Path) -> None:
    ask(tmp_path, Request(RESCALE, 3))
    assert asked(tmp_path) == Request(RESCALE, 3)
    assert asked(tmp_path) is None
    ask(tmp_path, Request(RESCALE, 5))
    take_back(tmp_path)
    assert asked(tmp_path) is None


def test_a_failed_savepoint_is_reported() -> None:
    def full() -> str:
        raise PenstockError("the disk\nis full")

    said: list[tuple[str, str]] = []
    assert answered(full, lambda *words: said.append(words), "saved") is None
    assert answered(lambda: "/a/path", lambda *words: said.append(words), "saved") == "/a/path"
    assert said == [("refused", "the disk is full"), ("saved", "/a/path")]
