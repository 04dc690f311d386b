"""Flow control in complete jobs: slow stages throttle the sources. The test controls the clock."""

from typing import Any

import pytest

from penstock.common import Configuration
from penstock.connectors.generated import DataGeneratorSource, NumberSequenceSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import Sink, SinkWriter
from penstock.testing import JobHarness


def environment(**settings: str) -> StreamExecutionEnvironment:
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(given))


def one_source(**settings: str) -> JobHarness:
    env = environment(penstock__flow__target_epoch_time="1 s", **settings)
    stream = env.from_source(DataGeneratorSource(lambda n: n, 10**9)).uid("numbers")
    return JobHarness(stream.key_by(lambda n: n % 7).map(lambda n: 1).uid("work"), parallelism=2)


def run(job: JobHarness, epochs: int) -> tuple[list[int], list[float]]:
    """Run some epochs and return the records and seconds of each."""
    ran = [job.epoch() for _ in range(epochs)]
    assert None not in ran
    return [each.records for each in ran if each], [each.duration_ms / 1000 for each in ran if each]


def test_a_slow_stage_gets_fewer_records_until_epochs_meet_their_target() -> None:
    with one_source() as job:
        job.set_pace(0.001, "work")
        _, before = run(job, 8)
        credits = job.metrics()["numbers.credits"]
        assert 0.8 <= before[-1] <= 1.2
        job.set_pace(0.01, "work")
        _, took = run(job, 3)
        assert took[0] > 5
        assert job.metrics()["numbers.credits"] < credits / 5
        assert took[-1] <= 1.5
        # Once the stage recovers, it gets more records again.
        job.set_pace(0.001, "work")
        run(job, 10)
        assert job.metrics()["numbers.credits"] > 0.9 * credits


def test_an_epoch_never_exceeds_its_credits() -> None:
    with one_source() as job:
        job.set_pace(0.0005, "work")
        for _ in range(10):
            allowed = job.metrics().get("numbers.credits", 10_000)
            records, _ = run(job, 1)
            assert records[0] <= allowed


class SlowTable(Sink):
    """A sink that takes a fixed time per record and commits concurrently with the next epoch."""

    concurrent_commit = True

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.wait: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def create_writer(self, context: Any) -> SinkWriter:
        return CountedRecords()

    def commit(self, commits: list[Any], context: Any) -> None:
        self.wait(self.seconds * sum(int(commit.payload) for commit in commits))


class CountedRecords(SinkWriter):
    def begin_epoch(self, epoch: Any) -> None:
        self.records = 0

    def write(self, value: Any) -> None:
        self.records += 1

    def prepare_commit(self) -> bytes | None:
        return b"%d" % self.records if self.records else None


def test_a_slow_concurrent_sink_throttles_the_sources() -> None:
    table = SlowTable(0.001)
    env = environment(penstock__flow__target_epoch_time="1 s")
    numbers = env.from_source(DataGeneratorSource(lambda n: n, 10**9)).uid("numbers")
    numbers.map(lambda n: n).uid("work").sink_to(table).uid("table")
    with JobHarness(env, commits_late=True) as job:
        table.wait = job.clock.wait
        job.set_pace(0.00001, "work")
        records, took = run(job, 12)
        # The initial credits apply until the sink's speed is known, then the credits follow it.
        assert max(records) == records[0] == 10_000
        assert max(records[2:]) <= 1100
        assert min(records[4:]) >= 700
        assert max(took[4:]) <= 1.2
        # The sink becomes even slower.
        table.seconds = 0.005
        records, took = run(job, 12)
        assert max(records[2:]) <= 220
        assert min(records[4:]) >= 140
        assert max(took[4:]) <= 1.2


def test_an_epoch_counts_the_time_in_which_it_waits_for_the_previous_commit() -> None:
    table, env = SlowTable(0.02), environment()
    env.from_collection([]).uid("in").map(lambda n: n).uid("work").sink_to(table).uid("table")
    with JobHarness(env, commits_late=True) as job:
        table.wait = job.clock.wait
        job.set_pace(0.001, "work")
        for _ in range(2):
            job.push(*range(100)).epoch()
        first, second = job.snapshot().recent_epochs
        assert first.stages_ms == pytest.approx([100, 0], abs=1)
        assert second.stages_ms == pytest.approx([100, 2000], abs=1)
        assert second.duration_ms == pytest.approx(2100, abs=1)


def test_the_slowest_stage_has_the_least_capacity() -> None:
    with one_source() as job:
        job.set_pace(0.001, "work").set_pace(0.0001, "numbers")
        run(job, 5)
        assert job.metrics()["numbers.capacity"] == pytest.approx(10_000)
        # Two subtasks share seven keys, so the stage is faster than one subtask and slower than two.
        assert 1000 < job.metrics()["work.capacity"] < 2000


def test_a_hundredfold_burst_is_processed_in_epochs_of_constant_length() -> None:
    env = environment(penstock__flow__enabled="true")
    with JobHarness(env.from_collection([]).uid("in").map(lambda v: v).uid("work")) as job:
        job.set_pace(0.001, "work")
        for _ in range(5):
            job.push(*range(500))
            run(job, 1)
        assert job.metrics()["in.backPressure"] == 0
        job.push(*range(50_000))
        took = []
        while job.backlog():
            took += run(job, 1)[1]
            job.push(*range(500))
            assert job.metrics()["in.credits"] <= 1000
            assert job.metrics()["in.backlog"] <= 50_000 - 400 * len(took)
            if job.metrics()["in.backlog"] < 1000:
                break
        assert job.metrics()["in.backPressure"] > 0
        assert len(took) > 50
        assert max(took) <= 1.5
        run(job, 5)
        assert sorted(set(job.output)) == list(range(50_000))
        assert job.metrics()["in.numRecordsIn"] == 50_000 + 500 * (5 + len(took))


def two_sources() -> JobHarness:
    env = environment(penstock__flow__target_epoch_time="1 s")
    both = env.from_collection([]).uid("full").union(env.from_collection([]).uid("quiet"))
    return JobHarness(both.map(lambda v: v).rebalance().map(lambda v: v).uid("work"))


def test_a_larger_backlog_gets_more_credits_without_starving_others() -> None:
    with two_sources() as job:
        job.set_pace(0.001, "work")
        job.push(*range(40_000), source="full")
        for _ in range(6):
            job.push(*range(10), source="quiet")
            job.epoch()
        metrics = job.metrics()
        assert metrics["full.credits"] > 5 * metrics["quiet.credits"]
        assert metrics["quiet.credits"] >= 10
        assert (metrics["quiet.backlog"], metrics["quiet.backPressure"]) == (0, 0)
        assert metrics["full.backlog"] > 0
        assert metrics["full.backPressure"] > 0.5


def test_max_records_limits_an_epoch_even_with_time_left() -> None:
    with one_source(penstock__epoch__max_records="300") as job:
        job.set_pace(0.001, "work")
        assert run(job, 4)[0] == [300] * 4
        job.set_pace(0.1, "work")
        run(job, 1)
        assert run(job, 1)[0][0] < 50


def test_a_new_driver_resets_credits_without_affecting_results() -> None:
    env = environment(penstock__flow__target_epoch_time="1 s")
    with JobHarness(env.from_source(NumberSequenceSource(1, 30_000)).uid("numbers")) as job:
        job.set_pace(0.001, "numbers")
        job.epoch()
        job.epoch()
        job.crash_at("driver.collected")
        assert job.epoch() is None
        job.crash()
        job.end()
        assert sorted(job.output) == list(range(1, 30_001))


def test_an_epoch_without_flow_control_takes_all_waiting_records() -> None:
    env = environment(execution__checkpointing__interval="1 s")
    with JobHarness(env.from_collection([]).uid("in")) as job:
        job.push(*range(20_000))
        assert job.epoch().records == 20_000
        assert "in.credits" not in job.metrics()


def test_credits_are_not_accumulators() -> None:
    with one_source() as job:
        run(job, 1)
        assert type(job.metrics()["numbers.credits"]) is int
        assert "numbers.credits" not in job.metrics().counters()
        assert "numbers.numRecordsIn" in job.metrics().counters()


def test_a_function_cannot_register_flow_control_metric_names() -> None:
    from penstock.datastream import MapFunction

    class Greedy(MapFunction):
        def open(self, runtime_context: Any) -> None:
            runtime_context.get_metrics_group().gauge("credits", lambda: 1)

        def map(self, value: Any) -> Any:
            return value

    with JobHarness(environment().from_collection([1]).map(Greedy())) as job, pytest.raises(Exception, match="credits"):
        job.epoch()
