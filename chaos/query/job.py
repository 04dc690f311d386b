"""`python -m chaos.query.job arguments.json`: run the job in its own process, on Spark or without a JVM."""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
import tempfile
import time
import uuid
from pathlib import Path

from chaos.job import run_attended, say
from chaos.plan import HARNESS
from chaos.query.program import NAME, build
from chaos.requests import RESCALE, answered, asked
from penstock.checkpoint.lineages import Lineages
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.state_serving import serve_state
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness


def run(directory: str, master: str, settings: dict[str, str], per_epoch: int, pace_ms: int, parallelism: int) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(parallelism)
    build(env, per_epoch, pace_ms)
    run_attended(env, NAME, directory)


def run_in_harness(
    directory: str, master: str, settings: dict[str, str], per_epoch: int, pace_ms: int, parallelism: int
) -> None:
    """Run the same program, tasks, state and driver without Spark, and start a state server as any job does."""
    tempfile.tempdir = f"{directory}/replicas"
    Path(tempfile.tempdir).mkdir(parents=True, exist_ok=True)
    savepoint = settings.get("execution.state-recovery.path")
    configuration = Configuration.from_dict(settings)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    build(env, per_epoch, pace_ms)
    root = LocalStorage(f"{directory}/checkpoints/{NAME}")
    lineages = Lineages(root)
    lineage = lineages.current()
    end_server = serve_state(uuid.uuid4().hex, NAME, root, configuration)
    with JobHarness(
        env,
        parallelism=parallelism,
        backend="filesystem",
        storage=lineages.storage_of(lineage),
        from_savepoint=savepoint,
    ) as job:
        while True:
            job.epoch(per_epoch)
            time.sleep(pace_ms / 1000)
            request = asked(Path(directory))
            if request is None:
                continue
            if request.what == RESCALE:
                job.rescale(request.parallelism)
                say("rescaled", request.parallelism)
            elif answered(lambda: job.savepoint(f"{directory}/savepoints"), say, "stopped"):
                lineages.end(lineage, last=job.checkpoint, retain=True)
                break
    end_server()


if __name__ == "__main__":
    # The rig requests the stacks of a driver that hangs.
    faulthandler.register(signal.SIGUSR1)
    arguments = json.loads(Path(sys.argv[1]).read_text())
    (run_in_harness if arguments["master"] == HARNESS else run)(**arguments)
