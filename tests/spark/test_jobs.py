"""Complete programs on Spark."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from programs import Count, expected_counts, expected_output, expected_sums, words

from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.state.local_storage import LocalStorage
from penstock.testing.snapshots import last_manifest, newest_lineage, read_values

pytestmark = pytest.mark.spark


def running_counts(records: list[Any]) -> Counter[Any]:
    seen: Counter[Any] = Counter()
    result: Counter[Any] = Counter()
    for record in records:
        seen[record] += 1
        result[record, seen[record]] += 1
    return result


def test_every_record_has_one_output_in_one_epoch_and_in_many(make_env: Any) -> None:
    records = words(60, 5)
    for per_epoch in (0, 13):
        env = make_env(records=per_epoch)
        stream = env.from_collection(records).key_by(lambda word: word).process(Count())
        with stream.execute_and_collect() as results:
            assert Counter(results) == running_counts(records)


def test_a_batch_emits_only_the_last_value_of_each_key(make_env: Any) -> None:
    env = make_env(records=2).set_runtime_mode(RuntimeExecutionMode.BATCH)
    letters = env.from_collection([("a", 0), ("c", 1), ("d", 1), ("b", 0), ("e", 1)])
    joined = letters.key_by(lambda pair: pair[1]).reduce(lambda one, two: (one[0] + two[0], one[1]))
    with joined.execute_and_collect() as results:
        assert sorted(results) == [("ab", 0), ("cde", 1)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("master", "cases"),
    [
        # The harness runs every pair, with fifty epochs. Here each pair runs on one of the masters. Spark compacts its
        # logs every ten batches.
        ("local[2]", [(1, 1), (2, 12), (5, 1)]),
        ("local-cluster[2,1,1024]", [(1, 12), (2, 1), (5, 12)]),
    ],
)
def test_two_keyed_stages_and_a_union_have_the_same_output_everywhere(
    tmp_path: Path, master: str, cases: list[tuple[int, int]]
) -> None:
    left, right = words(100, 3), words(100, 11)
    arguments = tmp_path / "arguments.json"
    parameters = {"directory": str(tmp_path), "master": master, "cases": cases, "left": left, "right": right}
    arguments.write_text(json.dumps(parameters))
    program = Path(__file__).with_name("programs.py")
    done = subprocess.run([sys.executable, str(program), str(arguments)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for parallelism, epochs in cases:
        output = json.loads((tmp_path / f"output-{parallelism}-{epochs}.json").read_text())
        assert Counter(map(tuple, output)) == expected_output(left + right)
        storage = newest_lineage(tmp_path / f"checkpoints-{parallelism}-{epochs}" / "two")
        assert last_manifest(storage).id == epochs + 1
        assert last_manifest(storage).records == {"left": 100, "right": 100}
        assert read_values(storage, "count", "n", int) == expected_counts(left + right)
        assert read_values(storage, "sum", "total", int) == expected_sums(left + right)


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


def test_a_streaming_dataframe_is_read_until_the_job_is_cancelled(session: Any, make_env: Any) -> None:
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


def test_a_job_with_an_empty_collection_ends(make_env: Any) -> None:
    env = make_env()
    with env.from_collection([]).key_by(lambda v: v).process(Count()).execute_and_collect() as results:
        assert list(results) == []


def test_a_finished_job_leaves_nothing_behind_by_default(make_env: Any, tmp_path: Path) -> None:
    env = make_env(
        checkpoints=True, **{"execution__checkpointing__externalized-checkpoint-retention": "NO_EXTERNALIZED"}
    )
    with env.from_collection(["a"]).key_by(lambda v: v).process(Count()).execute_and_collect("gone") as results:
        assert list(results) == [("a", 1)]
    assert LocalStorage(tmp_path / "checkpoints" / "gone").list("") == ["job", "lineages/000000000001.removed"]
    assert len(list((tmp_path / "checkpoints" / "gone").iterdir())) == 2
    assert not any((tmp_path / "replicas").glob("*/*"))
