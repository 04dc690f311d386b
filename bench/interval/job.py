"""A stream of constant rate, counted by key and checkpointed at an interval, that runs until the parent kills it.

Prints a line of JSON for every epoch.
"""

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.masters import MASTER, PARALLELISM
from bench.settings import both_ways_conf, session
from penstock.common import Configuration, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink, Source
from penstock.datastream.state import ValueStateDescriptor

KEYS = 100_000


class Paced(Source):
    """Emits `rate` numbers per second since `began`: like a log that keeps growing while the job is down."""

    bounded = False

    def __init__(self, began: float, rate: int) -> None:
        self._began = began
        self._rate = rate

    def start(self, parallelism: int) -> dict[str, Any]:
        return {"only": 0}

    def advance(self, positions: dict[str, Any], limit: int | None) -> dict[str, Any]:
        return {"only": max(positions["only"], int((time.time() - self._began) * self._rate))}

    def read(self, split: str, start: Any, end: Any) -> Iterable[Any]:
        return range(start, end)


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", int))

    def process_element(self, value: Any, ctx: Any) -> Iterable[int]:
        self.n.update((self.n.value() or 0) + 1)
        return ()


def main(options: argparse.Namespace) -> None:
    work = Path(options.work)
    session(both_ways_conf(work))
    config = Configuration()
    config.set_string("spark.master", MASTER)
    config.set_string("state.checkpoints.dir", (work / "checkpoints").as_uri())
    config.set_string("state.backend.local-dir", str(work / "replicas"))
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(PARALLELISM)
    env.enable_checkpointing(options.interval)
    numbers = env.from_source(Paced(options.began, options.rate), WatermarkStrategy.no_watermarks(), "numbers").uid(
        "numbers"
    )
    counted = numbers.key_by(lambda n: n * 7919 % KEYS).process(Count()).uid("count")
    counted.sink_to(DiscardingSink())
    env.add_epoch_listener(_tell)
    env.execute("interval")


def _tell(epoch: Any) -> None:
    report = {"at": time.time(), "records": epoch.records, "ms": epoch.duration_ms, "bytes": epoch.delta_bytes}
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, kind in (("work", str), ("interval", int), ("began", float), ("rate", int)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    main(parser.parse_args())
