"""A job in which every record replaces the 96 bytes of its key. Started by the parent.

The last line of its output is JSON: time and bytes written per epoch, and the memory of the workers.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from bench.masters import MASTER, PARALLELISM
from bench.settings import both_ways_conf, session
from bench.state.memory import WorkerMemory
from penstock.common import Configuration
from penstock.common.options.checkpoints import RECOVERY_PATH
from penstock.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.connectors import DiscardingSink
from penstock.datastream.state import ValueStateDescriptor
from penstock.state.entries import entry_prefix
from penstock.state.keys import encode_key

# Incompressible bytes; every key uses a different slice of them.
_NOISE = os.urandom(1 << 16)
_ENTRY = len(entry_prefix(0, 0, encode_key(5_000_000))) + 96
"""Stored size of an entry, key and value, in bytes."""


class Replace(KeyedProcessFunction):
    """Stores the number of occurrences of a key in 8 bytes, and 88 bytes that differ between keys."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.held = runtime_context.get_state(ValueStateDescriptor("held", bytes))

    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        held = self.held.value()
        count = 1 if held is None else int.from_bytes(held[:8], "big") + 1
        place = value[0] * 37 & 0xFF7F
        self.held.update(count.to_bytes(8, "big") + _NOISE[place : place + 88])
        yield count


def replacing(
    work: Path,
    backend: str,
    input_dir: str,
    files_per_epoch: int = 1,
    parallelism: int = PARALLELISM,
    savepoint: str | None = None,
    master: str = MASTER,
    settings: Mapping[str, str] | None = None,
) -> StreamExecutionEnvironment:
    """Return the environment with the program, which starts from the savepoint if one is given.

    `settings` are added to those of the benchmark, or replace them.
    """
    spark = session(both_ways_conf(work, master))
    config = Configuration()
    config.set_string("spark.master", master)
    config.set_string("state.backend", backend)
    config.set_string("state.checkpoints.dir", (work / "checkpoints").as_uri())
    config.set_string("state.backend.local-dir", str(work / "replicas"))
    config.set_string("execution.checkpointing.interval", "10 ms")
    if savepoint is not None:
        config.set_string(RECOVERY_PATH.key, savepoint)
    for key, value in (settings or {}).items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    stream = spark.readStream.schema("key long, value long").option("maxFilesPerTrigger", files_per_epoch)
    records = env.from_spark(stream.parquet(input_dir), bounded=True)
    records.key_by(lambda row: row[0]).process(Replace()).uid("replace").sink_to(DiscardingSink())
    return env


def main(options: argparse.Namespace) -> None:
    env = replacing(Path(options.work), options.backend, options.input, options.files_per_epoch)
    first: list[float] = []

    def on_epoch(epoch: Any) -> None:
        if epoch.records and not first:
            first.append(time.time())
            sys.stdout.write("\n" + json.dumps({"first": first[0]}) + "\n")
            sys.stdout.flush()
        if epoch.number == options.settle_after:
            # Flush the loaded data now, otherwise the disk would be busy with it during the measurement.
            os.sync()
        if epoch.number == options.die_after:
            os.kill(os.getpid(), signal.SIGKILL)

    env.add_epoch_listener(on_epoch)
    with WorkerMemory() as memory:
        result = env.execute("bench-state")
    epochs = [
        msgspec.to_builtins(epoch) | {"entry_bytes": epoch.delta_entries * _ENTRY}
        for epoch in result.epochs
        if epoch.records
    ]
    report = {"epochs": epochs, "anonymous": memory.anonymous, "peak": memory.peak}
    sys.stdout.write("\n" + json.dumps(report) + "\n")
    sys.stdout.flush()
    # The shutdown of the JVM takes a second and is not measured.
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--files-per-epoch", type=int, default=1)
    parser.add_argument("--settle-after", type=int, default=-1, help="flush the disk after this epoch")
    parser.add_argument("--die-after", type=int, default=-1, help="kill this process after this epoch")
    main(parser.parse_args())
