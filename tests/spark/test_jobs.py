"""Whole programs on Spark."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.datastream import StreamExecutionEnvironment
from penstock.testing.snapshots import last_manifest, newest_lineage, read_values
from programs import Count, expected_counts, expected_sums, two_stages, words

pytestmark = pytest.mark.spark


def running_counts(records: list[Any]) -> Counter[Any]:
    seen: Counter[Any] = Counter()
    result: Counter[Any] = Counter()
    for record in records:
        seen[record] += 1
        result[record, seen[record]] += 1
    return result


def test_one_output_per_record_in_one_epoch_and_many(make_env: Any) -> None:
    records = words(60, 5)
    for per_epoch in (0, 13):
        env = make_env(records=per_epoch)
        stream = env.from_collection(records).key_by(lambda word: word).process(Count())
        with stream.execute_and_collect() as results:
            assert Counter(results) == running_counts(records)


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_two_keyed_stages_and_a_union_give_the_same_at_any_parallelism(
    make_env: Any, parallelism: int, tmp_path: Path
) -> None:
    left, right = words(200, 3), words(150, 11)
    env = make_env(parallelism=parallelism, records=50, checkpoints=True)
    stream = two_stages(env.from_collection(left).uid("left"), env.from_collection(right).uid("right"))
    with stream.execute_and_collect("two") as results:
        given = list(results)
    assert len(given) == 350
    storage = newest_lineage(tmp_path / "checkpoints" / "two")
    assert read_values(storage, "count", "n", int) == expected_counts(left + right)
    assert read_values(storage, "sum", "total", int) == expected_sums(left + right)
    assert last_manifest(storage).records == {"left": 200, "right": 150}
    finals: dict[str, int] = {}
    for letter, total in given:
        finals[letter] = max(finals.get(letter, 0), total)
    assert finals == expected_sums(left + right)


def test_fifty_epochs_give_what_one_gives(make_env: Any, tmp_path: Path) -> None:
    left, right = words(100, 3), words(100, 11)
    env = make_env(records=2, checkpoints=True)
    stream = two_stages(env.from_collection(left), env.from_collection(right))
    with stream.execute_and_collect("fifty") as results:
        assert len(list(results)) == 200
    storage = newest_lineage(tmp_path / "checkpoints" / "fifty")
    assert last_manifest(storage).id == 51
    assert read_values(storage, _uid(storage, "total"), "total", int) == expected_sums(left + right)


def _uid(storage: Any, state: str) -> str:
    """The derived uid of the operator that holds a state."""
    return next(uid for uid, snapshot in last_manifest(storage).operators.items() if state in snapshot.states)


def test_an_operator_that_feeds_two_others_runs_once_per_record(make_env: Any, tmp_path: Path) -> None:
    calls = str(tmp_path / "calls")

    def note(word: str) -> str:
        with open(calls, "a") as file:
            file.write(f"{word}\n")
        return word

    env = make_env(checkpoints=True)
    once = env.from_collection(words(40, 3)).map(note).set_parallelism(2)
    left = once.key_by(lambda word: word).process(Count()).uid("by-word")
    right = once.key_by(lambda word: word[0]).process(Count()).uid("by-letter")
    with left.union(right).execute_and_collect("once") as results:
        assert len(list(results)) == 80
    assert Counter(Path(calls).read_text().split()) == Counter(words(40, 3))
    storage = newest_lineage(tmp_path / "checkpoints" / "once")
    assert read_values(storage, "by-word", "n", int) == Counter(words(40, 3))
    assert read_values(storage, "by-letter", "n", int) == Counter(word[0] for word in words(40, 3))


def test_a_stateless_job_needs_no_shuffle(make_env: Any) -> None:
    env = make_env()
    doubled = env.from_collection([1, 2, 3]).map(lambda n: n * 2).filter(lambda n: n > 2)
    assert '"level": 1' not in env.get_execution_plan()
    with doubled.execute_and_collect() as results:
        assert sorted(results) == [4, 6]


def test_a_batch_dataframe_is_a_bounded_source(session: Any, make_env: Any) -> None:
    frame = session.createDataFrame([(f"k{i % 3}", i) for i in range(20)], "key string, n int")
    env = make_env(records=7)
    stream = env.from_spark(frame).key_by(lambda row: row.key).map(lambda row: (row["key"], row[1]))
    with stream.execute_and_collect() as results:
        assert Counter(results) == Counter((f"k{i % 3}", i) for i in range(20))


def test_a_streaming_dataframe_goes_on_until_it_is_cancelled(session: Any, make_env: Any) -> None:
    frame = session.readStream.format("rate").option("rowsPerSecond", 50).load()
    env = make_env()
    results = env.from_spark(frame).key_by(lambda row: row.value % 2).process(Count()).execute_and_collect()
    last = {0: 0, 1: 0}
    with results:
        while min(last.values()) < 3:
            key, n = next(results)
            assert n == last[key] + 1
            last[key] = n


def test_a_client_in_a_with_block_cancels_its_job(session: Any, make_env: Any) -> None:
    from penstock.common import JobStatus

    env: StreamExecutionEnvironment = make_env()
    env.from_spark(session.readStream.format("rate").load()).print()
    with env.execute_async("endless") as client:
        assert client.get_job_status().result() is JobStatus.RUNNING
    assert client.get_job_status().result() is JobStatus.CANCELED


def test_an_empty_collection_ends(make_env: Any) -> None:
    env = make_env()
    with env.from_collection([]).key_by(lambda v: v).process(Count()).execute_and_collect() as results:
        assert list(results) == []


def test_a_finished_job_leaves_nothing_behind_unless_asked(make_env: Any, tmp_path: Path) -> None:
    env = make_env(
        checkpoints=True, **{"execution__checkpointing__externalized-checkpoint-retention": "NO_EXTERNALIZED"}
    )
    with env.from_collection(["a"]).key_by(lambda v: v).process(Count()).execute_and_collect("gone") as results:
        assert list(results) == [("a", 1)]
    assert list((tmp_path / "checkpoints" / "gone").iterdir()) == []
    assert not any((tmp_path / "replicas").glob("*/*"))
