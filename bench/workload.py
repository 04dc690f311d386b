"""The input of the benchmark: Parquet files, one per epoch, identical on every machine."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 20240501
LARGE_EPOCH = 500_000


@dataclass(frozen=True)
class Workload:
    """A stream of `warmup + measured` epochs of `records` records with uniformly drawn keys."""

    keys: int
    records: int
    warmup: int
    measured: int
    timed: bool = False
    """Whether records have a timestamp; each epoch then covers one second."""
    large: int = 0
    """Number of warm-up epochs with half a million records instead of `records`."""

    def records_in(self, epoch: int) -> int:
        return LARGE_EPOCH if epoch < self.large else self.records

    @property
    def epochs(self) -> int:
        return self.warmup + self.measured


def write_input(workload: Workload, directory: Path) -> None:
    """Write the epochs of `workload` as `epoch-0000.parquet` and so on, in stream order."""
    directory.mkdir(parents=True)
    random = np.random.default_rng([SEED, workload.keys, workload.records])
    names = pa.array([f"key-{i:06d}" for i in range(workload.keys)])
    for epoch in range(workload.epochs):
        records = workload.records_in(epoch)
        columns = {
            "key": names.take(pa.array(random.integers(0, workload.keys, records))),
            "value": pa.array(random.integers(0, 1_000, records)),
        }
        if workload.timed:
            columns["time"] = pa.array(epoch * 1000 + np.arange(records) * 1000 // records)
        table = pa.table(columns)
        path = directory / f"epoch-{epoch:04d}.parquet"
        # Spark splits files at row groups only: with a single one, one core would read it all.
        pq.write_table(table, path, row_group_size=max(1, records // 10))
        # Spark orders files by modification time, whose resolution is coarser than the time between two writes.
        modified = 1_700_000_000 + epoch
        os.utime(path, (modified, modified))


def input_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("epoch-*.parquet"))


def epoch_records(directory: Path) -> int:
    """Return the number of records in each measured epoch."""
    return int(pq.read_metadata(input_files(directory)[-1]).num_rows)
