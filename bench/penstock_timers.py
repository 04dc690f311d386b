"""Event time: small epochs while more than a million timers are pending that never fire, or without timers.

Run by the parent as `python -m bench.penstock_timers INPUT WORK WARMUP pending|none`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.masters import PARALLELISM
from bench.penstock_count import Count, configuration, run_timed
from bench.result import Result
from bench.settings import both_ways_conf, read_epochs, session
from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink

FAR = 10**15
LARGE_EPOCHS = 4


class CountAndWait(Count):
    """Sets a timer for every record in the large epochs: with 8 times per key, more than a million in total."""

    def __init__(self, until: int, sets_timers: bool) -> None:
        self.until = until
        self.sets_timers = sets_timers

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        if self.sets_timers and value[2] < self.until:
            ctx.timer_service().register_event_time_timer(FAR + value[1] % 8)
        yield from super().process_element(value, ctx)


def main(input_dir: Path, work: Path, warmup: int, timers: str) -> None:
    spark = session(both_ways_conf(work))
    env = StreamExecutionEnvironment.get_execution_environment(configuration(work))
    env.set_parallelism(PARALLELISM)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, timestamp: row[2])
    records = env.from_spark(read_epochs(spark, input_dir), bounded=True).assign_timestamps_and_watermarks(strategy)
    count = CountAndWait(LARGE_EPOCHS * 1000, timers == "pending")
    records.key_by(lambda row: row[0]).process(count).uid("count").sink_to(DiscardingSink())
    seconds = run_timed(env)
    spark.stop()
    Result.of_epochs(input_dir, seconds, warmup).print()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
