"""States as Spark DataFrames that tasks read, and savepoints bootstrapped from Spark that jobs start from."""

import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from programs import Count
from pyspark.sql import SparkSession

from penstock.datastream.connectors import Source
from penstock.datastream.state import ValueStateDescriptor
from penstock.tables import Checkpoint, OperatorTransformation, Savepoint, SavepointWriter, history
from penstock.testing import JobHarness

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "query" / "state-tables.md"
sys.path.insert(0, str(Path(__file__).parents[1] / "tables"))

from table_jobs import DESCRIPTORS, everything, saved  # noqa: E402


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> Savepoint:
    records = [[(f"key {number % 40}", number) for number in range(100)]]
    return saved(everything(), tmp_path_factory.mktemp("savepoints"), *records, parallelism=2)


def test_every_state_has_the_same_rows_in_spark_and_arrow(session: SparkSession, savepoint: Savepoint) -> None:
    for info in savepoint.states():
        table = savepoint.state(info.uid, info.name)
        frame = table.to_spark(session)
        found = sorted(repr(row.asDict(recursive=True)) for row in frame.collect())
        assert len(found) == table.to_arrow().read_all().num_rows, info.name
        assert frame.columns == table.schema.names
    counts = savepoint.state("all", "count").to_spark(session)
    assert {row["key"]: row["value"] for row in counts.collect()} == {f"key {n}": 2 + (n < 20) for n in range(40)}
    items = savepoint.state("all", "item").to_spark(session)
    assert items.where("value.colour = 'RED'").count() == 20


def test_tasks_read_the_blocks(session: SparkSession, savepoint: Savepoint) -> None:
    frame = savepoint.state("all", "count").to_spark(session)
    assert frame.rdd.getNumPartitions() == len(savepoint.operators["all"].blocks) > 4


def test_a_spark_dataframe_becomes_state(session: SparkSession, tmp_path: Path) -> None:
    frame = session.range(500).selectExpr("concat('k', id) as name", "id * 2 as n")
    bootstrap = OperatorTransformation.bootstrap_with(frame).key_by("name").state(DESCRIPTORS["count"](), "n")
    path = SavepointWriter.new_savepoint().with_operator("all", bootstrap).write(tmp_path / "made")
    with JobHarness(everything(), from_savepoint=path) as job:
        assert job.states("count") == {f"k{number}": number * 2 for number in range(500)}


def test_the_example_on_the_docs_page_runs(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "state_tables_page", "spark": session}
    for block in [*blocks[:2], *(block for block in blocks if "to_spark(spark)" in block)]:
        exec(block, names)
    assert names["frame"].count() == 2


def test_a_job_on_spark_starts_from_a_bootstrapped_savepoint(make_env: Any, tmp_path: Path) -> None:
    rows = [{"word": word, "n": n} for n, word in enumerate(["a", "b", "c"], 5)]
    descriptor = ValueStateDescriptor("n", int)
    bootstrap = OperatorTransformation.bootstrap_with(rows).key_by("word").state(descriptor, "n")
    path = SavepointWriter.new_savepoint().with_operator("counts", bootstrap).write(tmp_path / "made")
    env = make_env(**{"execution.state-recovery.path": path})
    counted = env.from_collection(["a", "c", "c", "z"]).key_by(lambda word: word).process(Count()).uid("counts")
    assert sorted(counted.execute_and_collect()) == [("a", 6), ("c", 8), ("c", 9), ("z", 1)]


class Rising(Source):
    """Emits 0, 1, 2, … without end, seven per epoch."""

    bounded = False

    def start(self, parallelism: int) -> dict[str, Any]:
        return {"only": 0}

    def advance(self, positions: dict[str, Any], limit: int | None) -> dict[str, Any]:
        return {"only": positions["only"] + 7}

    def read(self, split: str, start: Any, end: Any) -> Any:
        return (str(number % 7) for number in range(start, end))


def test_the_checkpoints_of_a_job_are_tables_with_a_history_per_key(make_env: Any, tmp_path: Path) -> None:
    env = make_env(checkpoints=True, **{"execution.checkpointing.num-retained": "3"})
    enough = threading.Event()
    env.add_epoch_listener(lambda epoch: enough.set() if epoch.number >= 5 else None)
    stream = env.from_source(Rising(), source_name="rising").uid("rising").key_by(lambda text: text)
    client = stream.process(Count()).uid("counts").execute_and_collect("rising-counts")._client
    assert enough.wait(120)
    client.cancel().result()
    job = tmp_path / "checkpoints" / "rising-counts"
    last = Checkpoint.load(job)
    rounds = last.manifest.records["rising"] // 7
    assert rounds >= 5
    assert {row["key"]: row["value"] for row in last.state("counts", "n").rows()} == dict.fromkeys("0123456", rounds)
    kept = Checkpoint.list(job)
    assert len(kept) >= 3
    moments = history(job, "counts", "n", "3")
    assert [(moment.checkpoint, moment.value) for moment in moments] == [
        (each.manifest.id, each.manifest.records["rising"] // 7) for each in kept
    ]
    assert moments[0].value < moments[-1].value
