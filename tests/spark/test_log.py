"""Which entries of Spark's log go into manifests: the new ones, however long Spark keeps old entries."""

import json
from pathlib import Path

from penstock.checkpoint.manifest import Manifest
from penstock.connectors.generated import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.spark.log import SparkLog
from penstock.spark.sources import came_to_an_end, may_come_to_an_end

BATCHES = 35
COMPACT_EVERY = 10


def test_a_manifest_holds_the_files_of_its_epoch_and_a_restart_finds_all_it_needs(tmp_path: Path) -> None:
    log = SparkLog(tmp_path / "log")
    log.rewrite(None, {}.__getitem__)
    manifests: dict[int, Manifest] = {}
    for batch in range(BATCHES):
        entry = f"sources/0/{batch}" + (".compact" if batch % COMPACT_EVERY == COMPACT_EVERY - 1 else "")
        for path in (f"offsets/{batch}", entry):
            (log.root / path).parent.mkdir(parents=True, exist_ok=True)
            (log.root / path).write_text(f"{path} of {batch}")
        files = log.appeared(batch)
        assert set(files) == {f"offsets/{batch}", entry}
        number = batch + 1
        index = log.index(number, files)
        manifests[number] = Manifest(
            format=1,
            lineage="",
            id=number,
            batch=0,
            parent=b"",
            token="",
            timestamp=0,
            ended=False,
            operators={},
            committables=[],
            records={},
            spark_log=files,
            log_index=index,
            bases={},
            since_base={},
        )
        log.recorded(index, files)

    again = SparkLog(tmp_path / "again")
    again.rewrite(manifests[BATCHES], manifests.__getitem__)
    entries = {path.name for path in (again.root / "sources" / "0").iterdir()}
    assert entries == {"29.compact", "30", "31", "32", "33", "34"}
    assert {path.name for path in (again.root / "offsets").iterdir()} == {"33", "34"}
    assert (again.root / "sources" / "0" / "29.compact").read_text() == "sources/0/29.compact of 29"


def test_an_unpublished_epoch_has_its_files_again(tmp_path: Path) -> None:
    log = SparkLog(tmp_path / "log")
    log.rewrite(None, {}.__getitem__)
    for path in ("offsets/0", "sources/0/0"):
        (log.root / path).parent.mkdir(parents=True)
        (log.root / path).write_text(path)
    assert log.appeared(0) == log.appeared(0) == {"offsets/0": b"offsets/0", "sources/0/0": b"sources/0/0"}


def test_the_log_shows_whether_sources_have_ended(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.socket_text_stream("localhost", 9999).uid("lines").union(env.from_collection(["x"]).uid("others")).print()
    env._physical()
    assert may_come_to_an_end(env._graph)
    log = SparkLog(tmp_path / "log")
    assert log.offsets() == []
    assert not came_to_an_end(env._graph, ["lines", "others"], log.offsets())
    for batch, ended in ((9, False), (10, True)):
        position = {"localhost:9999": {"line": batch, "lines": [], "ended": ended}}
        (log.root / "offsets").mkdir(parents=True, exist_ok=True)
        (log.root / f"offsets/{batch}").write_text(f'v1\n{{}}\n{json.dumps(position)}\n{{"logOffset":0}}')
        assert came_to_an_end(env._graph, ["lines", "others"], log.offsets()) is ended


def test_a_job_with_an_endless_source_cannot_end(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.socket_text_stream("localhost", 9999).union(env.from_source(DataGeneratorSource(str))).print()
    assert not may_come_to_an_end(env._graph)
