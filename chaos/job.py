"""`python -m chaos.job arguments.json`: the victim as a process of its own, which says how it goes."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from chaos.plan import HARNESS
from chaos.program import build
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.state.storage import LocalStorage
from penstock.testing import JobHarness

SAYS = "@@"
"""In front of the lines that are for the rig: `@@ session`, `@@ epoch 7`, `@@ finished`."""
NAME = "chaos"


def run(directory: str, master: str, backend: str, per_epoch: int, pace_ms: int) -> None:
    settings = {
        "spark.master": master,
        # A rig has many drivers' logs to read, and none of Spark's retries is news.
        "spark.driver.memory": "512m",
        "state.backend": backend,
        # Below each executor's own directory where there are several: they must not share replicas.
        "state.backend.local-dir": "replicas" if "cluster" in master else f"{directory}/replicas",
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "penstock.epoch.max-records": str(per_epoch),
    }
    if backend == "memory":
        settings["state.backend.memory.max-state-size"] = str(64 << 20)
    else:
        settings["state.checkpoints.dir"] = f"{directory}/checkpoints"
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2)
    env.add_epoch_listener(lambda epoch: print(SAYS, "epoch", epoch.number, flush=True))
    build(env, f"{directory}/total", f"{directory}/out", per_epoch, pace_ms)
    assert env.spark is not None
    print(SAYS, "session", flush=True)
    env.execute(NAME)
    print(SAYS, "finished", flush=True)


def run_in_harness(directory: str, master: str, backend: str, per_epoch: int, pace_ms: int) -> None:
    """The same program, tasks, state, files and driver in one process, without Spark: it starts in a second."""
    # Where the harness puts its replicas; each driver has its own.
    tempfile.tempdir = f"{directory}/replicas"
    os.makedirs(tempfile.tempdir, exist_ok=True)
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env, f"{directory}/total", f"{directory}/out", per_epoch, 0)
    storage = LocalStorage(f"{directory}/checkpoints/{NAME}/0001")
    with JobHarness(env, parallelism=2, backend=backend, storage=storage) as job:
        print(SAYS, "session", flush=True)
        statistics = None
        while statistics is None or statistics.records or not Path(directory, "total").exists():
            statistics = job.epoch(per_epoch)
            print(SAYS, "epoch", job.checkpoint, flush=True)
        job.end()
    print(SAYS, "finished", flush=True)


if __name__ == "__main__":
    arguments = json.loads(Path(sys.argv[1]).read_text())
    (run_in_harness if arguments["master"] == HARNESS else run)(**arguments)
