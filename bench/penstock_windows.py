"""Event time: tumbling windows of one second with an aggregate, otherwise like the plain count.

Run by the parent as `python -m bench.penstock_windows INPUT WORK WARMUP`.
"""

import sys
from pathlib import Path

from bench.masters import PARALLELISM
from bench.penstock_count import configuration, run_timed
from bench.result import Result
from bench.settings import both_ways_conf, read_epochs, session
from penstock.common import Time, Types, WatermarkStrategy
from penstock.datastream import AggregateFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.window import TumblingEventTimeWindows


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: object, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


def main(input_dir: Path, work: Path, warmup: int) -> None:
    spark = session(both_ways_conf(work))
    env = StreamExecutionEnvironment.get_execution_environment(configuration(work))
    env.set_parallelism(PARALLELISM)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, timestamp: row[2])
    records = env.from_spark(read_epochs(spark, input_dir), bounded=True).assign_timestamps_and_watermarks(strategy)
    windows = records.key_by(lambda row: row[0]).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    windows.aggregate(Count(), accumulator_type=Types.LONG()).uid("windows").sink_to(DiscardingSink())
    seconds = run_timed(env)
    spark.stop()
    Result.of_epochs(input_dir, seconds, warmup).print()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
