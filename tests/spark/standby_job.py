"""A job on three executors with a standby for each subtask, run as a script. One executor is killed.

It records which executors follow which blocks before the death, and where the tasks run.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
from os import getpid
from pathlib import Path
from typing import Any

from placement_job import EXECUTOR, PER_EPOCH
from programs import Count, Sum, words
from pyspark.sql import SparkSession

from chaos.processes import Process, below
from penstock.checkpoint.manifest import decode_version
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.driver.epoch_steps import MeasuredEpoch
from penstock.driver.epochs import EpochDriver
from penstock.driver.job_observer import JobObserver
from penstock.state.blocks import blocks_for
from penstock.state.engines.lmdb import LmdbEngine
from penstock.state.key_groups import range_of_subtask

PARALLELISM, MAX_PARALLELISM = 8, 128
LAG = 2
"""How many checkpoints a standby can be behind right after an epoch."""
PATIENCE_S = 60.0


def run(directory: str, rescale_after: int, kill_after: int, epochs: int) -> None:
    """Run the job at parallelism 2, and after epoch `rescale_after` at `PARALLELISM`. Writes `said.json`."""
    configuration = Configuration.from_dict(
        {
            "spark.master": "local-cluster[3,1,1024]",
            "state.checkpoints.dir": f"{directory}/checkpoints",
            # Relative to each executor's working directory: executors must not share replicas.
            "state.backend.local-dir": "replicas",
            "penstock.state.standby-replicas": "1",
            "execution.checkpointing.interval": "10 ms",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "penstock.epoch.max-records": PER_EPOCH,
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    env.set_max_parallelism(MAX_PARALLELISM)
    said: dict[str, Any] = {"places": {}}
    completed = JobObserver.completed

    def observe(self: JobObserver, driver: EpochDriver, epoch: MeasuredEpoch) -> None:
        """Note the executor of each subtask."""
        places: dict[str, str] = {}
        for chain in driver.graph.chains:
            if chain.level > 0:
                for subtask, task in epoch.collected.metrics.counted.get(chain.id, {}).items():
                    places[f"{chain.operators[0].uid}/{subtask}"] = task.place.executor
        said["places"][epoch.manifest.id] = places
        completed(self, driver, epoch)

    def change(epoch: Any) -> None:
        if epoch.number == rescale_after:
            client.rescale(PARALLELISM)
        if epoch.number == kill_after:
            executors = {executor_id(each): each for each in below(getpid()) if EXECUTOR in each.arguments()}
            places = block_places(said["places"][epoch.number], PARALLELISM)
            said["standbys"] = await_standbys(executors, epoch.number, places)
            said["held"] = await_executors(client, 3)
            said["killed"], victim = sorted(executors.items())[0]
            victim.send(signal.SIGKILL)
            await_notice(said["killed"])

    JobObserver.completed = observe  # type: ignore[method-assign]
    env.add_epoch_listener(change)
    counted = env.from_collection(words(PER_EPOCH * epochs, 3)).uid("words").key_by(lambda word: word).process(Count())
    summed = counted.uid("count").key_by(lambda pair: pair[0][0]).process(Sum()).uid("sum")
    summed.sink_to(DiscardingSink()).uid("sink")
    client = env.execute_async("followed")
    client.result()
    Path(directory, "said.json").write_text(json.dumps(said | {"restarts": client.restarts()}))


def await_executors(client: Any, count: int) -> list[tuple[int, int]]:
    """Wait until Spark has listed `count` executors. Return how many blocks each one has and follows."""
    until = time.monotonic() + PATIENCE_S
    while len(found := client._job.snapshot().executors) < count:
        if time.monotonic() > until:
            raise AssertionError(f"Spark lists {len(found)} executors")
        time.sleep(0.05)
    return [(each.blocks, each.standby_blocks) for each in found]


def await_notice(executor: str) -> None:
    """Wait until Spark knows that an executor is dead."""
    context: Any = SparkSession.active().sparkContext._jsc.sc()
    until = time.monotonic() + PATIENCE_S
    while executor in context.getExecutorIds().mkString(",").split(","):
        if time.monotonic() > until:
            raise AssertionError(f"Spark has not noticed the death of executor {executor}")
        time.sleep(0.01)


def executor_id(executor: Process) -> str:
    words = executor.arguments().split()
    return words[words.index("--executor-id") + 1]


def await_standbys(executors: dict[str, Process], checkpoint: int, places: dict[str, str]) -> dict[str, list[str]]:
    """Wait until an executor other than that of its subtask has each block. Return those executors, by block."""
    until = time.monotonic() + PATIENCE_S
    while True:
        found = standbys_now(executors, checkpoint, places)
        if all(found.values()):
            return found
        if time.monotonic() > until:
            raise AssertionError(f"Blocks without a standby: {[each for each in found if not found[each]]}")
        time.sleep(0.01)


def standbys_now(executors: dict[str, Process], checkpoint: int, places: dict[str, str]) -> dict[str, list[str]]:
    """Return which executors other than that of its subtask have each block at a recent checkpoint, by block."""
    found: dict[str, list[str]] = {block: [] for block in places}
    for name, executor in executors.items():
        for replica in Path(str(executor.directory()), "replicas").glob("*/*/*-*"):
            position = LmdbEngine(replica).position()
            block = f"{replica.parent.name}/{replica.name}"
            recent = position is not None and decode_version(position).id >= checkpoint - LAG
            if recent and places[block] != name:
                found[block].append(name)
    return found


def block_places(places: dict[str, str], parallelism: int) -> dict[str, str]:
    """Return the executor of each block, given that of each `uid/subtask`."""
    return {block: place for subtask, place in places.items() for block in blocks_of(subtask, parallelism)}


def blocks_of(subtask: str, parallelism: int) -> set[str]:
    """Return the directories of the blocks of `uid/subtask`. They stay the same from parallelism 1 to 8."""
    uid, _, number = subtask.partition("/")
    operator = hashlib.blake2b(uid.encode(), digest_size=8).hexdigest()
    blocks = blocks_for(1, MAX_PARALLELISM)
    groups = range_of_subtask(int(number), parallelism, MAX_PARALLELISM)
    return {f"{operator}/{each.start:05d}-{each.stop:05d}" for each in map(blocks.groups, blocks.touching(groups))}


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
