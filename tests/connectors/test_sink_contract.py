"""A user-defined sink: two-phase commit decided by the manifest, and state that survives and is redistributed."""

import json
import pickle

import pytest

from penstock.checkpoint.redistribution import redistribute
from penstock.datastream import SinkFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import Sink, SinkWriter
from penstock.testing import JobHarness


class Pages(Sink):
    """Commits records in pages of `size`; an incomplete page waits in the writers' state."""

    stateful = True

    def __init__(self, size):
        self.size = size
        self.shown = {}
        self.aborted = []
        self.cleaned_up = []

    def __getstate__(self):
        return {"size": self.size}

    def create_writer(self, context):
        return PageWriter(self.size)

    def commit(self, commits, context):
        for commit in commits:
            pages = json.loads(commit.payload)
            name = commit.epoch, commit.subtask
            assert self.shown.setdefault(name, pages) == pages
            assert commit.again or len([each for each in self.shown if each == name]) == 1

    def abort(self, commits, context):
        self.aborted += [(commit.epoch, commit.subtask) for commit in commits]

    def clean_up(self, lineage, epoch, states, context):
        self.cleaned_up.append((epoch, sorted(record for state in states for record in json.loads(state))))

    def finish(self, lineage, states, context):
        self.shown["finished"] = [json.loads(state) for state in states]

    @property
    def records(self):
        return sorted(record for pages in self.shown.values() for page in pages for record in page)


class PageWriter(SinkWriter):
    def __init__(self, size):
        self.size = size

    def restore(self, states):
        self.open = [record for state in states for record in json.loads(state)]
        self.full = []

    def write(self, value):
        self.open.append(value)
        if len(self.open) == self.size:
            self.full.append(self.open)
            self.open = []

    def end_input(self):
        if self.open:
            self.full.append(self.open)
            self.open = []

    def prepare_commit(self):
        return json.dumps(self.full).encode() if self.full else None

    def snapshot_state(self):
        return [json.dumps([record]).encode() for record in self.open]


POINTS = [
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


def job(sink, **options):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(range(40)).uid("numbers").rebalance().sink_to(sink).uid("pages")
    return JobHarness(env, **options)


class TestAStatefulSink:
    @pytest.mark.parametrize("point", POINTS)
    @pytest.mark.parametrize("parallelism", [1, 3])
    def test_every_record_is_committed_once_after_a_crash_at_any_point(self, point, parallelism):
        sink = Pages(7)
        with job(sink, parallelism=parallelism) as harness:
            harness.epoch(10)
            harness.crash_at(point)
            harness.epoch(10)
            harness.run(10)
        assert sink.records == list(range(40))

    def test_writer_state_is_redistributed_at_another_parallelism(self):
        sink = Pages(7)
        first = job(sink, parallelism=2)
        first.epoch(24)
        with job(sink, parallelism=3, storage=first.storage) as harness:
            harness.run(8)
        assert sink.records == list(range(40))

    def test_the_harness_shows_writer_state(self):
        with job(Pages(100), parallelism=2) as harness:
            harness.epoch(3)
            assert harness.operator_state("writers") == [[b"[0]", b"[2]"], [b"[1]"]]

    def test_a_stateful_sink_is_a_separate_task_even_after_a_source(self):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([1]).sink_to(Pages(1))
        plan = json.loads(env.get_execution_plan())
        assert [node["level"] for node in plan["nodes"]] == [0, 1]

    def test_clean_up_runs_once_after_the_first_checkpoint_of_each_driver(self):
        sink = Pages(100)
        with job(sink) as harness:
            harness.epoch(2)
            harness.epoch(2)
            harness.crash()
            harness.epoch(1)
            harness.epoch(1)
        assert sink.cleaned_up == [(1, [0, 1]), (3, [0, 1, 2, 3, 4])]

    def test_a_failed_attempt_is_aborted(self):
        sink = Pages(1)

        def poisonous(value):
            if value == 5:
                raise ValueError("poison")
            return value

        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection(range(10)).rebalance().map(poisonous).set_parallelism(2).sink_to(sink).uid("pages")
        with JobHarness(env, parallelism=2) as harness, pytest.raises(Exception, match="poison"):
            harness.epoch()
        # 5 went to the other subtask; this one had prepared its committable.
        assert sink.aborted == [(1, 0)]
        assert sink.shown == {}

    def test_a_cancelled_job_commits_its_last_checkpoint(self):
        sink = Pages(100)
        with job(sink, parallelism=2) as harness:
            harness.epoch(4)
            harness._driver.finish_sinks()
        assert sink.records == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("shares", "parallelism", "expected"),
    [
        ([[1, 2, 3], [4, 5]], 3, [[1, 2], [3, 4], [5]]),
        ([[1, 2, 3], [4, 5]], 2, [[1, 2, 3], [4, 5]]),
        ([[1, 2, 3], [4, 5]], 1, [[1, 2, 3, 4, 5]]),
        ([[1]], 3, [[1], [], []]),
        ([], 2, [[], []]),
    ],
)
def test_operator_state_is_redistributed_in_even_runs(shares, parallelism, expected):
    assert redistribute(shares, parallelism) == expected


class Recorder(SinkFunction):
    def open(self, runtime_context):
        self.seen = []

    def invoke(self, value, context):
        self.seen.append((value, context.timestamp()))

    def close(self):
        LEFT.append(self.seen)


LEFT = []


class TestASinkFunction:
    def test_a_sink_function_is_called_for_every_record(self):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([1, 2, 3]).add_sink(Recorder())
        with JobHarness(env) as harness:
            harness.end()
        assert pickle.loads(pickle.dumps(LEFT.pop())) == [(1, None), (2, None), (3, None)]

    def test_a_sink_function_can_be_a_plain_function(self, tmp_path):
        path = tmp_path / "seen"
        path.touch()

        def write(value):
            with path.open("a") as file:
                file.write(f"{value}\n")

        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([1, 2, 3]).key_by(lambda n: n).add_sink(write)
        with JobHarness(env) as harness:
            harness.end()
        assert path.read_text() == "1\n2\n3\n"
