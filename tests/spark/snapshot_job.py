"""A job on separate executors, run as a script: writes its snapshot, and what Spark's own REST interface says."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path

import msgspec
from programs import Count, words

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.web.executor_logs import local_logs

RECORDS = words(80, 3)


def run(directory: str) -> None:
    configuration = Configuration.from_dict(
        {
            "spark.master": "local-cluster[2,1,1024]",
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "state.checkpoints.dir": f"{directory}/checkpoints",
            "state.backend.local-dir": "replicas",
            "execution.checkpointing.interval": "100 ms",
            "penstock.epoch.max-records": 10,
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    counted = env.from_collection(RECORDS).uid("words").key_by(lambda word: word).process(Count()).uid("count")
    counted.sink_to(DiscardingSink()).uid("sink")
    client = env.execute_async("snapshot")
    client.result()
    job = client._job
    context = env.spark.sparkContext
    snapshot = job.snapshot()
    # Spark's listeners run behind the job.
    deadline = time.monotonic() + 30
    while True:
        url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/executors"
        with urllib.request.urlopen(url) as answer:
            executors = [each for each in json.load(answer) if each["id"] != "driver"]
        if all(each["completedTasks"] for each in executors) or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    said = {
        "snapshot": json.loads(msgspec.json.encode(snapshot)),
        "executors": executors,
        "logs": {name: path.read_text() for name, path in local_logs(snapshot).items()},
        "application": context.applicationId,
    }
    Path(directory, "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    run(sys.argv[1])
