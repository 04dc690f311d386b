"""What the rig asks of a job, and what it makes of the savepoints that the job has made."""

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
    """Of a job that was saved after two epochs."""
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


def test_a_savepoint_that_holds_what_it_has_read_is_right(rig: Rig) -> None:
    assert check_savepoints(rig.work, rig.ends) == []


def test_one_that_has_read_more_than_it_holds_is_found(rig: Rig) -> None:
    storage = the_savepoint(rig)
    metadata = load_savepoint(storage)
    source = msgspec.structs.replace(metadata.sources["numbers"], records=metadata.sources["numbers"].records + 40)
    storage.delete(METADATA)
    publish_metadata(storage, msgspec.structs.replace(metadata, sources={"numbers": source}))
    [violation] = check_savepoints(rig.work, rig.ends)
    assert "it has read 120 records, and holds state of 80" in violation


def test_one_that_is_not_complete_is_none_and_a_damaged_one_is_found(rig: Rig) -> None:
    storage = the_savepoint(rig)
    data = bytearray(storage.read(METADATA))
    storage.delete(METADATA)
    assert check_savepoints(rig.work, rig.ends) == []
    data[-1] ^= 1
    storage.write(METADATA, bytes(data))
    [violation] = check_savepoints(rig.work, rig.ends)
    assert "is damaged" in violation


def test_what_two_runs_of_a_stopped_job_gave_is_looked_at_together(tmp_path: Path) -> None:
    run_victim(tmp_path, 200)
    [whole] = oracle.read_output(tmp_path / "out").values()
    first, second = oracle.Output(), oracle.Output()
    for number, text in enumerate(sorted(whole.lines.elements())):
        (first if number % 2 else second).lines[text] += 1
    wanted = oracle.expected(range(200))
    assert oracle.check_output({"all": oracle.together({"1": first, "2": second})}, wanted) == []
    twice = oracle.check_output({"all": oracle.together({"1": whole, "2": second})}, wanted)
    assert twice[0].startswith("twice: ")


def test_a_request_is_read_once_and_not_by_a_later_driver(tmp_path: Path) -> None:
    ask(tmp_path, Request(RESCALE, 3))
    assert asked(tmp_path) == Request(RESCALE, 3)
    assert asked(tmp_path) is None
    ask(tmp_path, Request(RESCALE, 5))
    take_back(tmp_path)
    assert asked(tmp_path) is None


def test_a_savepoint_that_could_not_be_made_is_an_answer_too() -> None:
    def full() -> str:
        raise PenstockError("the disk\nis full")

    told: list[tuple[str, str]] = []
    assert answered(full, lambda *words: told.append(words), "saved") is None
    assert answered(lambda: "/a/path", lambda *words: told.append(words), "saved") == "/a/path"
    assert told == [("refused", "the disk is full"), ("saved", "/a/path")]
