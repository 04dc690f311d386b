"""The peer: Spark's `transformWithState` on rows, with the RocksDB state store.

Run by the parent as `python -m bench.transform_with_state INPUT WORK WARMUP`.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from bench.result import Result
from bench.settings import MASTER, SCHEMA, both_ways_conf
from bench.workload import input_files


class Count(StatefulProcessor):
    """Reads the state once and writes it once per key and epoch: every call is a round trip."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.n = handle.getValueState("n", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        state = self.n.get()
        n = state[0] if state else 0
        name = key[0]
        for _row in rows:
            n += 1
            yield Row(key=name, n=n)
        self.n.update((n,))


def session(work: Path, overrides: dict[str, str]) -> SparkSession:
    conf = both_ways_conf() | overrides
    conf["spark.local.dir"] = str(work / "spark")
    conf["spark.sql.streaming.stateStore.providerClass"] = (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
    # Spark's RocksDB provider casts the local file system to LocalFileSystem and fails on the
    # raw one.
    conf.pop("spark.hadoop.fs.file.impl", None)
    # The conf `spark.pyspark.python` does not reach the workers of an unsubmitted program.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(MASTER)
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # Spark warns at every read of a key without state, at a cost.
    spark.sparkContext.setLogLevel("ERROR")
    if "CRC" not in os.environ:
        write_no_crc_files(spark)
    return spark


def write_no_crc_files(spark: SparkSession) -> None:
    """Give the peer what the raw file system saves Penstock: no checksum file beside each file.

    Hadoop keeps one instance per scheme, so this holds for every user of `file:`.
    """
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    local = spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop)
    local.setWriteChecksum(False)
    local.setVerifyChecksum(False)


def main(input_dir: Path, work: Path, warmup: int, overrides: dict[str, str]) -> None:
    spark = session(work, overrides)
    ended = [time.perf_counter()]

    def discard(batch: DataFrame, _batch_id: int) -> None:
        batch.write.format("noop").mode("overwrite").save()
        ended.append(time.perf_counter())

    query = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(input_dir))
        .groupBy("key")
        .transformWithState(Count(), "key string, n long", outputMode="Update", timeMode="None")
        .writeStream.outputMode("update")
        .foreachBatch(discard)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = {p.numInputRows for p in query.recentProgress}
    spark.stop()

    seconds = [after - before for before, after in zip(ended, ended[1:])]
    if len(seconds) != len(input_files(input_dir)):
        raise SystemExit(f"expected one epoch per file, got {len(seconds)} of {rows} records")
    Result(rows.pop(), seconds[warmup:]).print()


if __name__ == "__main__":
    overrides = dict(pair.split("=", 1) for pair in sys.argv[4:])
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), overrides)
