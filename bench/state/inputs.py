"""Input files of `(key, value)`, one per epoch: first every key once, then random keys."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 20240601


def write_load(directory: Path, keys: int, per_epoch: int) -> int:
    """Write every key from 0 to `keys` once, in an order that touches all blocks. Return the number of files."""
    random = np.random.default_rng([SEED, keys])
    order = random.permutation(keys)
    files = 0
    for start in range(0, keys, per_epoch):
        _write(directory, files, order[start : start + per_epoch])
        files += 1
    return files


def write_changes(directory: Path, first: int, files: int, keys: int, changed: int) -> None:
    """Write `files` epochs of `changed` distinct keys each."""
    random = np.random.default_rng([SEED, keys, first])
    for number in range(first, first + files):
        _write(directory, number, random.choice(keys, changed, replace=False))


def write_backlog(directory: Path, keys: int, records: int, per_file: int) -> int:
    """Write `records` records of random keys, for one epoch over all files. Return the number of files."""
    random = np.random.default_rng([SEED, records])
    files = records // per_file
    for number in range(files):
        _write(directory, number, random.integers(0, keys, per_file))
    return files


def _write(directory: Path, number: int, keys: np.ndarray) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"epoch-{number:05d}.parquet"
    table = pa.table({"key": pa.array(keys, pa.int64()), "value": pa.array(keys % 1000, pa.int64())})
    # Spark splits files at row groups only: with a single one, one core would read it all.
    pq.write_table(table, path.with_suffix(".tmp"), row_group_size=max(1, len(keys) // 10))
    modified = 1_700_000_000 + number
    os.utime(path.with_suffix(".tmp"), (modified, modified))
    path.with_suffix(".tmp").rename(path)
