"""`python -m chaos.job arguments.json`: run the victim in its own process and report its progress."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from chaos.ends.programs import build
from chaos.plan import HARNESS
from chaos.requests import DRAIN, RESCALE, STOP, Request, answered, asked
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

SAYS = "@@"
"""Prefix of lines for the rig: `@@ session`, `@@ epoch 7`, `@@ finished`; and in response to requests `@@ rescaled 3`,
`@@ saved path`, `@@ stopped path`, `@@ refused why`."""
NAME = "chaos"
_POLL_S = 0.05


def say(*words: object) -> None:
    print(SAYS, *words, flush=True)


def run(
    directory: str,
    master: str,
    backend: str,
    standbys: int,
    per_epoch: int,
    pace_ms: int,
    savepoint: str,
    parallelism: int,
    run: int,
    ends: dict[str, str],
) -> None:
    settings = {
        "spark.master": master,
        # The rig runs many drivers, and each needs little memory.
        "spark.driver.memory": "512m",
        "state.backend": backend,
        "penstock.state.standby-replicas": str(standbys),
        # With several executors, relative to each executor's own directory: they must not share replicas.
        "state.backend.local-dir": "replicas" if "cluster" in master else f"{directory}/replicas",
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "penstock.epoch.max-records": str(per_epoch),
    }
    if ends["kind"] != "files":
        # The server is down briefly and often: with exponential backoff, the delays would exceed the rig's timeout.
        settings["restart-strategy.type"] = "fixed-delay"
        settings["restart-strategy.fixed-delay.attempts"] = str(2**31 - 1)
        settings["restart-strategy.fixed-delay.delay"] = "500 ms"
    if savepoint:
        settings["execution.state-recovery.path"] = savepoint
    if backend == "memory":
        settings["state.backend.memory.max-state-size"] = str(64 << 20)
    else:
        settings["state.checkpoints.dir"] = f"{directory}/checkpoints"
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(parallelism)
    env.add_epoch_listener(lambda epoch: say("epoch", epoch.number))
    build(env, ends, per_epoch, pace_ms)
    assert env.spark is not None
    say("session")
    if STOP not in run_attended(env, NAME, directory):
        say("finished")


def run_attended(env: StreamExecutionEnvironment, name: str, directory: str) -> list[str]:
    """Run the job on Spark until it ends, and do what the rig requests. Return the requests that stopped it."""
    over = threading.Event()
    stopped: list[str] = []

    def attend() -> None:
        """Handle the rig's requests in a separate thread: a savepoint is made between two epochs."""
        while not over.wait(_POLL_S):
            request = asked(Path(directory))
            if request is None:
                continue
            if request.what == RESCALE:
                answered(lambda: _rescale(client, request), say, "rescaled")  # noqa: B023
            elif request.what in (STOP, DRAIN):
                drain = request.what == DRAIN
                made = answered(client.stop_with_savepoint(drain, f"{directory}/savepoints").result, say, "stopped")
                if made:
                    stopped.append(request.what)
            else:
                answered(client.trigger_savepoint(f"{directory}/savepoints").result, say, "saved")

    client = env.execute_async(name)
    attending = threading.Thread(target=attend, daemon=True)
    attending.start()
    client.result()
    over.set()
    attending.join()
    return stopped


def _rescale(client: Any, request: Request) -> str:
    client.rescale(request.parallelism)
    return str(request.parallelism)


def run_in_harness(
    directory: str,
    master: str,
    backend: str,
    standbys: int,
    per_epoch: int,
    pace_ms: int,
    savepoint: str,
    parallelism: int,
    run: int,
    ends: dict[str, str],
) -> None:
    """Run the same program, tasks, state, files and driver in one process without Spark. Starts within a second."""
    # Where the harness puts its replicas; each driver has its own.
    tempfile.tempdir = f"{directory}/replicas"
    os.makedirs(tempfile.tempdir, exist_ok=True)
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env, ends, per_epoch, 0)
    storage = LocalStorage(f"{directory}/checkpoints/{NAME}/{run:04}")
    with JobHarness(
        env, parallelism=parallelism, backend=backend, storage=storage, from_savepoint=savepoint or None
    ) as job:
        say("session")
        statistics = None
        while statistics is None or statistics.records or not Path(directory, "total").exists():
            if statistics is not None and not statistics.records:
                # The server has no new records.
                time.sleep(_POLL_S)
            statistics = job.epoch(per_epoch)
            say("epoch", job.checkpoint)
            request = asked(Path(directory))
            if request is not None and request.what == RESCALE:
                job.rescale(request.parallelism)
                say("rescaled", request.parallelism)
            elif request is not None and request.what == DRAIN:
                break
            elif request is not None:
                word = "stopped" if request.what == STOP else "saved"
                made = answered(lambda: job.savepoint(f"{directory}/savepoints"), say, word)
                if made and request.what == STOP:
                    return
        job.end()
    say("finished")


if __name__ == "__main__":
    # The rig requests the stacks of a driver that hangs.
    faulthandler.register(signal.SIGUSR1)
    arguments = json.loads(Path(sys.argv[1]).read_text())
    (run_in_harness if arguments["master"] == HARNESS else run)(**arguments)
