"""The job of the savepoint death tests, run as a script: its process is killed at one step of a savepoint."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from programs import two_stages, words

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.savepoint import saving
from penstock.savepoint.format import dispose_savepoint, savepoint_storage
from penstock.spark.bases import SparkMerge
from penstock.spark.log import SparkLog
from penstock.state.local_storage import LocalStorage

LEFT, RIGHT = words(800, 3), words(800, 11)
PER_EPOCH = 10
"""Few enough that the job does not end while it works on a savepoint."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


def _half_of_the_files() -> None:
    merge = SparkMerge.__call__

    def merge_half(self: SparkMerge, storage: Any, version: Any, blocks: Any, into: Any = None) -> Any:
        if into is None:
            # Bases of checkpoints are merged the same way.
            return merge(self, storage, version, blocks)
        merge(self, storage, version, blocks[: len(blocks) // 2], into)
        die()

    SparkMerge.__call__ = merge_half  # type: ignore[method-assign]


def _before_the_answer() -> None:
    publish = saving.publish_metadata

    def publish_and_die(storage: Any, metadata: Any) -> None:
        publish(storage, metadata)
        die()

    saving.publish_metadata = publish_and_die


def _before_spark_s_log() -> None:
    SparkLog.rewrite = lambda self, last, load: die()  # type: ignore[method-assign]


def _half_removed() -> None:
    below = LocalStorage.delete_below

    def remove_half(self: LocalStorage, directory: str) -> None:
        if directory != "state":
            return below(self, directory)
        files = self.list(f"{directory}/")
        for name in files[: len(files) // 2]:
            self.delete(name)
        die()

    LocalStorage.delete_below = remove_half  # type: ignore[method-assign]


STEPS: dict[str, Callable[[], None]] = {
    "half of the files": _half_of_the_files,
    "before the answer": _before_the_answer,
    "before Spark's log": _before_spark_s_log,
    "half removed": _half_removed,
}


def settings(directory: str) -> dict[str, Any]:
    return {
        "state.checkpoints.dir": f"{directory}/checkpoints",
        "state.backend.local-dir": f"{directory}/replicas",
        "execution.checkpointing.interval": "20 ms",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "penstock.epoch.max-records": PER_EPOCH,
        # Few key groups make few files in a savepoint.
        "pipeline.max-parallelism": 4,
    }


def program(env: StreamExecutionEnvironment) -> None:
    stream = two_stages(env.from_collection(LEFT).uid("left"), env.from_collection(RIGHT).uid("right"))
    stream.sink_to(DiscardingSink()).uid("sink")


def run(directory: str, job: str, dies: str, parallelism: int, savepoint: bool, configured: dict[str, str]) -> None:
    """Run the job to its end or its death. `savepoint`: make one in the second epoch."""
    STEPS[dies]()
    configuration = Configuration.from_dict(settings(directory) | {"spark.master": "local[2]"} | configured)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism)
    epochs: list[int] = []

    def save(epoch: Any) -> None:
        epochs.append(epoch.number)
        if savepoint and len(epochs) == 2:
            client.trigger_savepoint(f"{directory}/savepoints")

    env.add_epoch_listener(save)
    program(env)
    client = env.execute_async(job)
    client.result()


def dispose(path: str, dies: str) -> None:
    STEPS[dies]()
    dispose_savepoint(savepoint_storage(path))


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    (dispose if "path" in arguments else run)(**arguments)
