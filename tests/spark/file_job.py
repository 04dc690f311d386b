"""The job of the file crash tests, run as a script in a process that is killed: files in, word counts, files out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from programs import Count

from penstock.common import Configuration, Encoder, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.file_system import FileSink, FileSource, RollingPolicy, StreamFormat

POLICIES = {
    # Parts span epochs. In most epochs some are closed by size, and the end of the input closes the rest.
    "by size": RollingPolicy.default_rolling_policy(part_size=40),
    "each checkpoint": RollingPolicy.on_checkpoint_rolling_policy(),
}


def run(directory: str, master: str, policy: str, session: Any = None) -> None:
    configuration = Configuration.from_dict(
        {
            "spark.master": master,
            "state.checkpoints.dir": f"{directory}/checkpoints",
            # On a cluster, relative to each executor's working directory: executors must not share replicas.
            "state.backend.local-dir": "replicas" if "cluster" in master else f"{directory}/replicas",
            "execution.checkpointing.interval": "100 ms",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env._spark = session
    env.set_parallelism(2)
    env.add_epoch_listener(lambda epoch: print(f"epoch {epoch.number} {epoch.records}", flush=True))
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), f"{directory}/in")
        .set_max_files_per_epoch(1)
        .build()
    )
    sink = (
        FileSink.for_row_format(f"{directory}/out", Encoder.simple_string_encoder())
        .with_rolling_policy(POLICIES[policy])
        .build()
    )
    words = env.from_source(source, WatermarkStrategy.no_watermarks(), "words").uid("words")
    counted = words.key_by(lambda word: word).process(Count()).uid("count")
    counted.map(lambda pair: f"{pair[0]} {pair[1]}").uid("text").sink_to(sink).uid("out")
    env.execute("files")


if __name__ == "__main__":
    run(**json.loads(Path(sys.argv[1]).read_text()))
