"""Penstock: the count as a PyFlink program on the FileSystem backend, with a delta and a manifest every epoch.

Run by the parent as `python -m bench.penstock_count INPUT WORK WARMUP [MASTER]`.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.masters import MASTER, PARALLELISM
from bench.result import Result
from bench.settings import both_ways_conf, read_epochs, session
from penstock.common import Configuration, Types
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield value[0], n


def configuration(work: Path, master: str = MASTER) -> Configuration:
    config = Configuration()
    config.set_string("spark.master", master)
    config.set_string("state.checkpoints.dir", (work / "checkpoints").as_uri())
    # On a cluster, relative to the working directory of each executor: executors do not share replicas.
    config.set_string("state.backend.local-dir", str(work / "replicas") if master == MASTER else "replicas")
    # The stream is bounded, so epochs follow each other immediately, whatever the interval.
    config.set_string("execution.checkpointing.interval", "10 ms")
    return config


def run_timed(env: StreamExecutionEnvironment) -> list[float]:
    """Run the job and return the seconds of every epoch with records, in order.

    An epoch lasts from the end of the previous one to its own end, as for the peer: this includes Spark's work between
    two calls of `foreachBatch`.
    """
    ended = [time.perf_counter()]
    seconds = []

    def on_epoch(epoch: Any) -> None:
        ended.append(time.perf_counter())
        # The epoch that ends a bounded stream has no records.
        if epoch.records:
            seconds.append(ended[-1] - ended[-2])

    env.add_epoch_listener(on_epoch)
    env.execute("bench")
    return seconds


def main(input_dir: Path, work: Path, warmup: int, master: str = MASTER) -> None:
    spark = session(both_ways_conf(work, master))
    env = StreamExecutionEnvironment.get_execution_environment(configuration(work, master))
    env.set_parallelism(PARALLELISM)
    records = env.from_spark(read_epochs(spark, input_dir), bounded=True)
    records.key_by(lambda row: row[0]).process(Count()).uid("count").sink_to(DiscardingSink())
    seconds = run_timed(env)
    spark.stop()
    Result.of_epochs(input_dir, seconds, warmup).print()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
