"""The job that `record_stored_state.py` runs on Spark in a process that is killed."""

from __future__ import annotations

import sys
import threading

from stored_state_jobs import totals

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink

JOB = "totals"


def settings(directory: str) -> dict[str, str]:
    return {
        "state.checkpoints.dir": f"{directory}/checkpoints",
        "state.backend.local-dir": f"{directory}/replicas",
        "execution.checkpointing.interval": "20 ms",
        "pipeline.max-parallelism": "4",
        "parallelism.default": "2",
    }


def run(directory: str) -> None:
    """Create a savepoint after the second epoch, and continue until the process is killed."""
    configuration = Configuration.from_dict(settings(directory) | {"spark.master": "local[2]"})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    second = threading.Event()
    env.add_epoch_listener(lambda epoch: second.set() if epoch.number >= 2 else None)
    totals(env, end=1000).sink_to(DiscardingSink()).uid("nowhere")
    client = env.execute_async(JOB)
    second.wait()
    client.trigger_savepoint(f"{directory}/savepoints").result()
    client.result()


if __name__ == "__main__":
    run(sys.argv[1])
