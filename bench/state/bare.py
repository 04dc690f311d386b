"""A bare Spark query with Penstock's settings: no state, no Python stage. The baseline for our restarts."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame

from bench.settings import both_ways_conf, session


def main(input_dir: str, work: Path, die_after: int) -> None:
    spark = session(both_ways_conf(work))
    first: list[float] = []

    def on_batch(frame: DataFrame, batch: int) -> None:
        frame.write.format("noop").mode("append").save()
        if not first:
            first.append(time.time())
            sys.stdout.write("\n" + json.dumps({"first": first[0]}) + "\n")
            sys.stdout.flush()
        if batch == die_after:
            os.kill(os.getpid(), signal.SIGKILL)

    stream = spark.readStream.schema("key long, value long").option("maxFilesPerTrigger", 1).parquet(input_dir)
    query = stream.writeStream.foreachBatch(on_batch).option("checkpointLocation", str(work / "bare"))
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
