"""Programs shared by Spark tests, and their expected results. Also run as a script in a process to be killed."""

from __future__ import annotations

import json
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from penstock.common import Configuration
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors import Commit, CommitContext, DiscardingSink, Sink, SinkWriter
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing.snapshots import newest_lineage, read_values


class Count(KeyedProcessFunction):
    """Emits (key, running count) for every record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.inc()
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield ctx.get_current_key(), n


class Sum(KeyedProcessFunction):
    """Sums the second field in state and emits (key, number of records so far), which does not depend on order."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", int))
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value[1])
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield ctx.get_current_key(), n


def two_stages(left: Any, right: Any) -> Any:
    """Count the words of two sources by word, then sum the counts by first letter."""
    counted = left.union(right).key_by(lambda word: word).process(Count()).uid("count")
    return counted.key_by(lambda pair: pair[0][0]).process(Sum()).uid("sum")


def words(number: int, seed: int) -> list[str]:
    """Return deterministic words, some of them frequent."""
    return [f"{'abcdefg'[(i * seed) % 7]}{(i * i * seed) % 31}" for i in range(number)]


def expected_counts(records: list[str]) -> dict[str, int]:
    return dict(Counter(records))


def expected_sums(records: list[str]) -> dict[str, int]:
    """Return 1 + 2 + … + n for each word's n, by first letter."""
    sums: Counter[str] = Counter()
    for word, n in Counter(records).items():
        sums[word[0]] += n * (n + 1) // 2
    return dict(sums)


def expected_output(records: list[str]) -> Counter[tuple[str, int]]:
    letters = Counter(word[0] for word in records)
    return Counter((letter, n + 1) for letter, count in letters.items() for n in range(count))


def run_everywhere(directory: str, master: str, cases: list[list[int]], left: list[str], right: list[str]) -> None:
    """Run the two stages at several parallelisms, in one epoch and in several, in one session. Outputs go to files."""
    for parallelism, epochs in cases:
        configuration = Configuration.from_dict(
            {
                "spark.master": master,
                "state.checkpoints.dir": f"{directory}/checkpoints-{parallelism}-{epochs}",
                "state.backend.local-dir": "replicas",
                "execution.checkpointing.interval": "100 ms",
                "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
                "penstock.epoch.max-records": 0 if epochs == 1 else -(-len(left) // epochs),
            }
        )
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(parallelism)
        stream = two_stages(env.from_collection(left).uid("left"), env.from_collection(right).uid("right"))
        with stream.execute_and_collect("two") as results:
            Path(directory, f"output-{parallelism}-{epochs}.json").write_text(json.dumps(list(results)))


def run_two_stages(
    directory: str,
    master: str,
    left: list[str],
    right: list[str],
    per_epoch: int,
    settings: dict[str, str],
    session: Any = None,
) -> None:
    """Run the job of the crash tests: every record must be counted once, whatever dies."""
    configuration = Configuration.from_dict(
        {
            "spark.master": master,
            "state.checkpoints.dir": f"{directory}/checkpoints",
            # On a cluster, relative to each executor's working directory: executors must not share replicas.
            "state.backend.local-dir": "replicas" if "cluster" in master else f"{directory}/replicas",
            "execution.checkpointing.interval": "100 ms",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "penstock.epoch.max-records": per_epoch,
            **settings,
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env._spark = session
    env.set_parallelism(2)
    env.add_epoch_listener(lambda epoch: print(f"epoch {epoch.number} {epoch.records}", flush=True))
    stream = two_stages(env.from_collection(left).uid("left"), env.from_collection(right).uid("right"))
    stream.sink_to(DiscardingSink()).uid("sink")
    result = env.execute("crash")
    Path(directory, "counters.json").write_text(json.dumps(result.get_all_accumulator_results()))


class NotedSink(Sink):
    """Records in a driver-specific file which epochs it commits."""

    def __init__(self, path: str) -> None:
        self._path = path

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return Values()

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        with open(self._path, "a") as file:
            file.writelines(f"{commit.epoch}\n" for commit in commits)


class FolderSink(NotedSink):
    """Writes one JSON file for each epoch and subtask."""

    def commit(self, commits: list[Commit], context: CommitContext) -> None:
        Path(self._path).mkdir(exist_ok=True)
        for commit in commits:
            Path(self._path, f"{commit.epoch}-{commit.subtask}").write_bytes(commit.payload)


class Values(SinkWriter):
    def begin_epoch(self, epoch: Any) -> None:
        self.values: list[Any] = []

    def write(self, value: Any) -> None:
        self.values.append(value)

    def prepare_commit(self) -> bytes | None:
        return json.dumps(self.values).encode()


def run_with_rival(directory: str, left: list[str], right: list[str], retain: bool, commits: str) -> None:
    """Run the two stages in one of several drivers of the same job."""
    settings = {
        "spark.master": "local[2]",
        "state.checkpoints.dir": f"{directory}/checkpoints",
        "state.backend.local-dir": f"{directory}/replicas",
        "execution.checkpointing.interval": "100 ms",
        "penstock.epoch.max-records": 10,
    }
    if retain:
        settings["execution.checkpointing.externalized-checkpoint-retention"] = "RETAIN_ON_CANCELLATION"
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2)
    stream = two_stages(env.from_collection(left).uid("left"), env.from_collection(right).uid("right"))
    stream.sink_to(NotedSink(commits)).uid("sink")
    env.execute("crash")


class Tag(KeyedProcessFunction):
    """Gives every record a tag that differs in each attempt, and stores it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.tags = runtime_context.get_state(ValueStateDescriptor("tags", str))
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.inc()
        tag = uuid.uuid4().hex
        self.tags.update(f"{self.tags.value() or ''} {tag}")
        yield value, tag


class Gather(Tag):
    """Stores the tags it receives and forwards them."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.tags.update(f"{self.tags.value() or ''} {value[1]}")
        yield value[1]


def run_tagged(directory: str, master: str, tagged: list[str], per_epoch: int) -> None:
    """Tag in stage 1 and gather in stage 2; after every checkpoint, both must hold the same tags."""
    configuration = Configuration.from_dict(
        {
            "spark.master": master,
            "state.checkpoints.dir": f"{directory}/checkpoints",
            "state.backend.local-dir": "replicas",
            "execution.checkpointing.interval": "100 ms",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "penstock.epoch.max-records": per_epoch,
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)

    def compare(epoch: Any) -> None:
        storage = newest_lineage(f"{directory}/checkpoints/tags")
        first, second = (
            {tag for text in read_values(storage, uid, "tags", str).values() for tag in text.split()}
            for uid in ("tag", "gather")
        )
        print("the same tags" if first == second else f"{len(first ^ second)} tags in one stage only", flush=True)

    env.add_epoch_listener(compare)
    tagging = env.from_collection(tagged).uid("words").key_by(lambda word: word).process(Tag()).uid("tag")
    gathered = tagging.key_by(lambda pair: pair[0][0]).process(Gather()).uid("gather")
    gathered.sink_to(FolderSink(f"{directory}/output")).uid("sink")
    result = env.execute("tags")
    Path(directory, "counters.json").write_text(json.dumps(result.get_all_accumulator_results()))


if __name__ == "__main__":
    arguments = json.loads(Path(sys.argv[1]).read_text())
    if "tagged" in arguments:
        run_tagged(**arguments)
    elif "retain" in arguments:
        run_with_rival(**arguments)
    elif "per_epoch" in arguments:
        run_two_stages(**arguments)
    else:
        run_everywhere(**arguments)
