"""Python sources on Spark: planned in a separate process, read in the tasks, with positions in the manifest."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.generated import DataGeneratorSource, NumberSequenceSource
from penstock.datastream.connectors import DiscardingSink, Source
from penstock.errors import PenstockError
from penstock.testing.snapshots import last_manifest, newest_lineage

pytestmark = pytest.mark.spark


class Shelves(Source):
    """Three splits of unequal length; writes committed positions to a file."""

    LENGTHS = {"a": 7, "b": 23, "c": 1}

    def __init__(self, notes: Path) -> None:
        self._notes = notes

    def advance(self, positions: dict[str, Any], limit: int | None) -> dict[str, Any]:
        step = limit or 100
        return {name: min(length, positions.get(name, 0) + step) for name, length in self.LENGTHS.items()}

    def read(self, split: str, start: Any, end: Any) -> Any:
        for number in range(start or 0, end):
            yield f"{split}{number}"

    def commit(self, positions: dict[str, Any]) -> None:
        with self._notes.open("a") as file:
            file.write(json.dumps(positions) + "\n")


def test_every_record_is_read_once_and_positions_are_committed(make_env: Any, tmp_path: Path) -> None:
    env = make_env(parallelism=2, records=5)
    with env.from_source(Shelves(tmp_path / "notes"), source_name="shelves").execute_and_collect() as results:
        records = list(results)
    assert Counter(records) == Counter(f"{name}{n}" for name, length in Shelves.LENGTHS.items() for n in range(length))
    for name in Shelves.LENGTHS:
        numbers = [int(record[1:]) for record in records if record[0] == name]
        assert numbers == sorted(numbers)
    committed = [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]
    assert committed[:2] == [{"a": 5, "b": 5, "c": 1}, {"a": 7, "b": 10, "c": 1}]


class Died(Exception):
    pass


def test_a_new_driver_continues_from_the_positions_in_the_manifest(make_env: Any, tmp_path: Path) -> None:
    def run(die_after: int | None) -> list[int]:
        seen: list[int] = []
        env = make_env(parallelism=2, records=10, checkpoints=True)
        env.from_source(NumberSequenceSource(1, 50)).uid("numbers").key_by(lambda n: n % 3).sum().uid("sum").sink_to(
            DiscardingSink()
        ).uid("sink")

        def listen(epoch: Any) -> None:
            seen.append(epoch.records)
            if epoch.number == die_after:
                raise Died

        env.add_epoch_listener(listen)
        env.execute("numbers")
        return seen

    for die_after in (1, 2, 4):
        with pytest.raises(Died):
            run(die_after)
    assert run(None) == [10, 0]
    manifest = last_manifest(newest_lineage(tmp_path / "checkpoints" / "numbers"))
    assert manifest.records == {"numbers": 50}


def test_an_endless_source_is_read_until_the_job_is_cancelled(make_env: Any) -> None:
    env = make_env()
    results = env.from_source(DataGeneratorSource(lambda n: n, records_per_epoch=100)).execute_and_collect()
    first = [value for value, _ in zip(results, range(250), strict=False)]
    results.close()
    assert len(set(first)) == 250
    assert sorted(first)[:200] == list(range(200))


class Refusing(Source):
    def __init__(self, where: str) -> None:
        self._where = where

    def advance(self, positions: dict[str, Any], limit: int | None) -> dict[str, Any]:
        if self._where == "advance":
            raise ValueError("no such table")
        return {"table": 1}

    def read(self, split: str, start: Any, end: Any) -> Any:
        raise ValueError("no such row")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("advance", "Source 'orders' failed while planning an epoch:\nTraceback"),
        ("read", "'orders' (uid 'orders-1') failed in subtask 0 of epoch 1:\nTraceback"),
    ],
)
def test_a_failing_source_is_reported_with_the_user_frames_only(make_env: Any, where: str, message: str) -> None:
    env = make_env()
    env.from_source(Refusing(where), source_name="orders").uid("orders-1").print()
    with pytest.raises(PenstockError) as raised:
        env.execute()
    text = str(raised.value)
    assert message in text
    assert text.endswith("ValueError: no such table" if where == "advance" else "ValueError: no such row")
    assert not any(word in text for word in ("org.apache", "py4j", "penstock/spark", "worker.py"))
