"""A running count per key that writes every record to a sink.

A job without state would be faster, and the sink a larger part of it; but jobs that write exactly once to files or a
database usually keep state.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.masters import PARALLELISM
from bench.penstock_count import configuration, run_timed
from bench.result import Result
from bench.settings import read_epochs
from penstock.common import Types
from penstock.common.serialization import Encoder
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink, Sink
from penstock.datastream.connectors.file_system import BucketAssigner, FileSink
from penstock.datastream.connectors.postgres import PostgresSink
from penstock.datastream.state import ValueStateDescriptor

COLUMNS = "key text, value bigint, n bigint"


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[str, int, int]]:
        n = (self.n.value() or 0) + 1
        self.n.update(n)
        yield value[0], value[1], n


def sink_for(name: str, work: Path, conninfo: str) -> Sink:
    if name == "files":
        builder = FileSink.for_row_format(str(work / "output"), Encoder.simple_string_encoder())
        return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    return PostgresSink(conninfo, "counts") if name == "postgres" else DiscardingSink()


def run(spark: SparkSession, sink: str, input_dir: Path, work: Path, warmup: int, conninfo: str) -> list[float]:
    """Return the seconds of each measured epoch."""
    env = StreamExecutionEnvironment.get_execution_environment(configuration(work))
    env.set_parallelism(PARALLELISM)
    records = env.from_spark(read_epochs(spark, input_dir), bounded=True)
    counts = records.key_by(lambda row: row[0]).process(Count()).uid("count")
    counts.sink_to(sink_for(sink, work, conninfo)).uid("sink")
    return Result.of_epochs(input_dir, run_timed(env), warmup).seconds
