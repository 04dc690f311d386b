"""The peer: Spark's `transformWithState` on rows, with the RocksDB state store.

Run by the parent as `python -m bench.transform_with_state INPUT WORK WARMUP`.
"""

import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from bench.result import Result
from bench.settings import both_ways_conf, read_epochs, session
from bench.workload import epoch_records


class Count(StatefulProcessor):
    """Reads and writes the state once per key and epoch, because every call is a round trip."""

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


def peer_session(work: Path, records: int) -> SparkSession:
    conf = both_ways_conf(work)
    # The better choice for the peer: in one pair of runs each, on a busy machine, whole-stage codegen was 3 to 5 %
    # faster in epochs of 50,000 records and 9 % slower in almost empty ones.
    conf["spark.sql.codegen.wholeStage"] = "true" if records > 1_000 else "false"
    conf["spark.sql.streaming.stateStore.providerClass"] = (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
    # The RocksDB provider casts the local file system to LocalFileSystem and fails on the raw one.
    conf.pop("spark.hadoop.fs.file.impl", None)
    spark = session(conf)
    write_no_crc_files(spark)
    return spark


def write_no_crc_files(spark: SparkSession) -> None:
    """Give the peer the same saving that the raw file system gives Penstock: no checksum file next to each file.

    Hadoop keeps one instance per scheme, so this affects every user of `file:` in this JVM.
    """
    local = spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())  # type: ignore[union-attr]
    local.setWriteChecksum(False)
    local.setVerifyChecksum(False)


def main(input_dir: Path, work: Path, warmup: int) -> None:
    spark = peer_session(work, epoch_records(input_dir))
    ended = [time.perf_counter()]

    def discard(batch: DataFrame, _batch_id: int) -> None:
        batch.write.format("noop").mode("overwrite").save()
        ended.append(time.perf_counter())

    counts = (
        read_epochs(spark, input_dir)
        .groupBy("key")
        .transformWithState(Count(), "key string, n long", outputMode="Update", timeMode="None")
    )
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(discard)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()
    cycles = [after - before for before, after in pairwise(ended)]
    Result.of_epochs(input_dir, cycles, warmup).print()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
