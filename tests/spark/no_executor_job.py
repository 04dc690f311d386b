"""Jobs on a master that has no worker yet, run as a script. The last one goes on when a worker joins."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from penstock.common import Configuration
from penstock.common.job import JobCancelled
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.data_stream import DataStream
from penstock.driver.slots import TooFewSlots


def numbers(master: str, **settings: str) -> DataStream[int]:
    own = {key.replace("_", "."): value for key, value in settings.items()}
    conf = {"spark.master": master, "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", **own}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(conf))
    return env.set_parallelism(1).from_collection([1, 2, 3]).uid("numbers").map(lambda n: n).uid("same")


def run(master: str, directory: str) -> None:
    said = {}
    cancelled = numbers(master).execute_and_collect("cancelled")
    job = cancelled._client._job
    while not job.snapshot().slots.waits:
        threading.Event().wait(0.05)
    said["state"], said["reason"] = job.snapshot().state, job.snapshot().reason
    said["tasks"] = sorted({state for vertex in job.snapshot().vertices for state in vertex.tasks})
    cancelled._client.cancel().result()
    try:
        cancelled._client.result()
    except JobCancelled:
        said["cancelled"] = job.snapshot().state

    try:
        with numbers(master, slot_request_timeout="1 s").execute_and_collect("late") as results:
            list(results)
    except TooFewSlots as error:
        said["late"] = str(error)

    waiting = numbers(master).execute_and_collect("waiting")
    while not waiting._client._job.snapshot().slots.waits:
        threading.Event().wait(0.05)
    Path(directory, "waits").touch()
    with waiting as results:
        said["results"] = sorted(results)
    said["reason at the end"] = waiting._client._job.snapshot().reason
    Path(directory, "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    run(*sys.argv[1:])
