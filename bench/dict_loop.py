"""The upper bound: the same count in one Python process, with a dict, without exchange or recovery.

Run by the parent as `python -m bench.dict_loop INPUT WORK WARMUP`.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq

from bench.result import Result
from bench.workload import input_files


def running_counts(records: Iterable[tuple[str, int]], counts: dict[str, int]) -> Iterator[tuple[str, int]]:
    get = counts.get
    for key, _value in records:
        counts[key] = n = get(key, 0) + 1
        yield key, n


def main(input_dir: Path, warmup: int) -> None:
    counts: dict[str, int] = {}
    seconds = []
    for path in input_files(input_dir):
        started = time.perf_counter()
        table = pq.read_table(path)
        records = zip(table["key"].to_pylist(), table["value"].to_pylist())
        for _output in running_counts(records, counts):
            pass  # discarded, as by the sinks of the other implementations
        seconds.append(time.perf_counter() - started)
    Result.of_epochs(input_dir, seconds, warmup).print()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[3]))
