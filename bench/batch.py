"""`python -m bench.batch`: one bounded job as a batch and as a stream, each in its own process.

The job is a keyed sum over Parquet files. The stream reads one file per epoch, and in another run all files in one
epoch, with its checkpoints in a directory; the batch is one Spark job. The measurement covers `env.execute`, with the
session already started.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.masters import MASTER, PARALLELISM
from bench.settings import both_ways_conf, session
from penstock.common import Configuration
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink

WAYS = ("batch", "stream, one epoch", "stream, ten epochs")
ROUNDS = 2
"""Number of runs of each mode, in turn; the faster one counts, because a single run can be a tenth slower."""
FILES = 10
KEYS = 100_000
BAR = 1.0
"""Maximum time of the batch relative to the faster stream."""


def write_input(records: int, folder: Path) -> None:
    for number in range(FILES):
        rows = range(number * records // FILES, (number + 1) * records // FILES)
        keys = [f"key-{row * 7919 % KEYS}" for row in rows]
        pq.write_table(pa.table({"key": keys, "value": list(rows)}), folder / f"{number:02d}.parquet")


def run(way: str, folder: Path, work: Path) -> float:
    """Run the job and return the seconds it took."""
    spark = session(both_ways_conf(work))
    schema = "key string, value long"
    config = Configuration()
    config.set_string("spark.master", MASTER)
    config.set_string("state.checkpoints.dir", (work / "checkpoints").as_uri())
    config.set_string("state.backend.local-dir", str(work / "replicas"))
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(PARALLELISM)
    if way == "batch":
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        frame = spark.read.schema(schema).parquet(str(folder))
    else:
        files = 1 if way == WAYS[2] else FILES
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(folder))
    pairs = env.from_spark(frame, bounded=True).map(lambda row: (row[0], row[1]))
    pairs.key_by(lambda pair: pair[0]).reduce(lambda one, two: (one[0], one[1] + two[1])).uid("sum").sink_to(
        DiscardingSink()
    )
    started = time.perf_counter()
    env.execute("bench")
    took = time.perf_counter() - started
    spark.stop()
    return took


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.batch", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the limit is missed")
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--input", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.way is not None:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as work:
            print(run(chosen.way, chosen.input, Path(work)))
        return 0
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        write_input(chosen.records, Path(folder))
        for way in WAYS * ROUNDS:
            command = [sys.executable, "-m", "bench.batch", "--way", way, "--input", folder]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            took = float(done.stdout.split()[-1])
            seconds[way] = min(took, seconds.get(way, took))
            print(f"{way:20} {took:7.1f} s {chosen.records / took:12,.0f} records/s", flush=True)
    share = seconds["batch"] / min(seconds[way] for way in WAYS[1:])
    print(f"The batch takes {share:.2f} of the time of the faster stream; the limit is {BAR}.")
    return 1 if chosen.check and share > BAR else 0


if __name__ == "__main__":
    sys.exit(main())
