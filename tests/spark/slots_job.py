"""A job that waits for slots, run as a script with separate executors. It loses an executor between two epochs."""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
import threading
from os import getpid
from pathlib import Path
from typing import Any

from programs import Count, words

from chaos.processes import below
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.spark.executors import slot_counter

RECORDS = words(80, 3)
EXECUTOR = "CoarseGrainedExecutorBackend"


class SlotMessages(logging.Handler):
    """Collects the job's log messages about slots."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if re.search(r"\d slots", message):
            self.messages.append(message)


def run(directory: str) -> None:
    configuration = Configuration.from_dict(
        {
            "spark.master": "local-cluster[2,1,1024]",
            "state.checkpoints.dir": f"{directory}/checkpoints",
            # Relative to each executor's working directory: executors must not share replicas.
            "state.backend.local-dir": "replicas",
            "execution.checkpointing.interval": "100 ms",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "penstock.epoch.max-records": 10,
            "penstock.slots.wait": "true",
        }
    )
    logged = SlotMessages()
    logging.getLogger("penstock").addHandler(logged)
    logging.getLogger("penstock").setLevel(logging.INFO)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    slots = slot_counter(env.spark)
    seen: list[tuple[int, int]] = []

    def lose_an_executor(epoch: Any) -> None:
        """Kill one after each epoch until the job had to wait: Spark might replace it before the next epoch begins."""
        if epoch.number == 1:
            logged.messages.clear()
        elif not logged.messages:
            for executor in [each for each in below(getpid()) if EXECUTOR in each.arguments()][:1]:
                executor.send(signal.SIGKILL)
                while slots() == 2:
                    threading.Event().wait(0.01)
        metrics = client.get_metrics()
        seen.append((metrics.slots_needed, metrics.slots_available))

    env.add_epoch_listener(lose_an_executor)
    counted = env.from_collection(RECORDS).uid("words").key_by(lambda word: word).process(Count()).uid("count")
    counted.sink_to(DiscardingSink()).uid("sink")
    client = env.execute_async("slots")
    client.result()
    said = {"logged": logged.messages, "seen": seen, "restarts": client.restarts()}
    Path(directory, "said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    run(sys.argv[1])
