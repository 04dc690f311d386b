"""A job on three executors, run as a script. It records where each task ran, while executors die and appear."""

from __future__ import annotations

import json
import signal
import sys
from os import getpid
from pathlib import Path
from typing import Any

from counted_replays import size_of
from programs import Count, Sum, words

from chaos.processes import below
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.driver.epoch_steps import MeasuredEpoch
from penstock.driver.epochs import EpochDriver
from penstock.driver.job_observer import JobObserver
from penstock.state.files import read_changes
from penstock.state.storage import Storage

EXECUTOR = "CoarseGrainedExecutorBackend"
PER_EPOCH = 100


def run(directory: str, phases: list[tuple[int, int]], kill_after: int, epochs: int) -> None:
    """Run the job.

    Args:
        directory: Where to write `said.json`.
        phases: Epochs, each with the parallelism that the job has after it.
        kill_after: The epoch after which an executor is killed. Spark starts another one.
        epochs: The number of epochs.
    """
    configuration = Configuration.from_dict(
        {
            "spark.master": "local-cluster[3,1,1024]",
            "state.checkpoints.dir": f"{directory}/checkpoints",
            # Relative to each executor's working directory: executors must not share replicas.
            "state.backend.local-dir": "replicas",
            "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent),
            "state.backend": "counted_replays:CountingFactory",
            "state.backend.custom.notes": f"{directory}/notes",
            "execution.checkpointing.interval": "10 ms",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "penstock.epoch.max-records": PER_EPOCH,
        }
    )
    Path(directory, "notes").mkdir()
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(phases[0][1])
    seen: list[dict[str, Any]] = []
    completed = JobObserver.completed

    def observe(self: JobObserver, driver: EpochDriver, epoch: MeasuredEpoch) -> None:
        """Note the executor of each subtask."""
        places = {
            f"{chain}/{subtask}": task.place.executor
            for chain, tasks in epoch.collected.metrics.counted.items()
            for subtask, task in tasks.items()
            if driver.graph.chains[chain].level > 0
        }
        seen.append({"places": places, "alive": executors(), "changed": changed(driver.storage, epoch)})
        completed(self, driver, epoch)

    def executors() -> list[str]:
        return str(env.spark.sparkContext._jsc.sc().getExecutorIds().mkString(",")).split(",")

    def change(epoch: Any) -> None:
        for after, parallelism in phases[1:]:
            if epoch.number == after:
                client.rescale(parallelism)
        if epoch.number == kill_after:
            next(each for each in below(getpid()) if EXECUTOR in each.arguments()).send(signal.SIGKILL)

    JobObserver.completed = observe  # type: ignore[method-assign]
    env.add_epoch_listener(change)
    counted = env.from_collection(words(PER_EPOCH * epochs, 3)).uid("words").key_by(lambda word: word).process(Count())
    summed = counted.uid("count").key_by(lambda pair: pair[0][0]).process(Sum()).uid("sum")
    summed.sink_to(DiscardingSink()).uid("sink")
    client = env.execute_async("placed")
    client.result()
    Path(directory, "said.json").write_text(json.dumps({"seen": seen, "restarts": client.restarts()}))


def changed(storage: Storage, epoch: MeasuredEpoch) -> int:
    """Return how many bytes of state an epoch changed."""
    deltas = [each for operator in epoch.manifest.operators.values() for each in operator.deltas]
    data = [storage.read(each.name) if each.inline is None else each.inline for each in deltas]
    return sum(size_of(read_changes(each)) for each in data)


if __name__ == "__main__":
    run(**json.loads(sys.argv[1]))
