"""Metrics on Spark: measurements of every task of every stage reach the driver with their epoch."""

from queue import Queue
from typing import Any

import pytest
from programs import Count, words

from penstock.datastream import MapFunction, RuntimeContext
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.metrics import DistributionValue

pytestmark = pytest.mark.spark

WORDS = words(60, 5)


class Length(MapFunction):
    """Measures words, or the words of pairs, with every kind of metric."""

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group().add_group("length")
        self.seen, self.rate, self.lengths = group.counter("n"), group.meter("rate"), group.distribution("size")
        self.longest = 0
        group.gauge("longest", lambda: self.longest)

    def map(self, value: Any) -> Any:
        self.seen.inc()
        self.rate.mark_event()
        size = len(value if isinstance(value, str) else value[0])
        self.lengths.update(size)
        self.longest = max(self.longest, size)
        return value


def test_metrics_of_all_stages_arrive_with_each_epoch(make_env: Any) -> None:
    for per_epoch, epochs in ((0, 1), (7, 9)):
        env = make_env(records=per_epoch)
        stream = env.from_collection(WORDS).uid("words").map(Length()).uid("first")
        stream = stream.key_by(lambda word: word).process(Count()).uid("count").map(Length()).uid("second")
        stream.key_by(lambda pair: pair[0]).map(Length()).uid("third").print().uid("out")
        result = env.execute()
        metrics = result.metrics
        assert metrics.epoch == epochs + 1
        for uid in ("first", "second", "third"):
            assert metrics[f"{uid}.length.n"] == metrics[f"{uid}.length.rate"].count == len(WORDS)
            assert metrics[f"{uid}.length.size"] == DistributionValue(60, sum(map(len, WORDS)), 2, 3)
            # In the last epoch the sources' chains run once; the memory of the others depends on the worker.
            longest = metrics[f"{uid}.length.longest"]
            assert set(longest) == ({0} if uid == "first" else {0, 1})
            assert set(longest.values()) <= {0, 2, 3}
        assert result.get_accumulator_result("count.seen") == len(WORDS)
        for name in (
            "words.numRecordsIn",
            "first.numRecordsOut",
            "count.numRecordsIn",
            "second.to.third.numRecordsOut",
        ):
            assert metrics[name] == len(WORDS)
        assert set(metrics.subtasks("third.length.n")) == {0, 1}
        assert metrics["second.numBytesOut"] > 0


def test_metrics_can_be_read_while_the_job_runs(make_env: Any, session: Any) -> None:
    env = make_env()
    completed: Queue[Any] = Queue()
    env.add_epoch_listener(completed.put)
    rows = session.readStream.format("rate").option("rowsPerSecond", 50).load()
    env.from_spark(rows).uid("rows").key_by(lambda row: row.value % 10).process(Count()).uid("count").print()
    records = 0
    with env.execute_async("running") as client:
        for _ in range(3):
            while not (epoch := completed.get(timeout=120)).records:
                pass
            records += epoch.records
            metrics = client.get_metrics()
            assert metrics.epoch >= epoch.number
            assert metrics["count.seen"] >= records
    # Metrics survive the end of the job.
    assert client.get_accumulators().result()["count.seen"] >= records


def test_metrics_of_a_failed_job_can_be_read(make_env: Any) -> None:
    env = make_env(records=10, parallelism=1)
    stream = env.from_collection([*WORDS[:20], None]).key_by(lambda word: 0 if word else 1 / 0)
    stream.process(Count()).uid("count").print()
    client = env.execute_async()
    with pytest.raises(UserFunctionFailed):
        client.result()
    assert client.get_metrics()["count.seen"] == 20
