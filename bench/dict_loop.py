"""The floor: the same count in one Python process, with a dict and no recovery.

Run by the parent as `python -m bench.dict_loop INPUT WORK WARMUP`.
"""

import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from bench.result import Result
from bench.workload import input_files


def count(records: zip, counts: dict[str, int]) -> list[tuple[str, int]]:
    out = []
    emit = out.append
    get = counts.get
    for key, _value in records:
        counts[key] = n = get(key, 0) + 1
        emit((key, n))
    return out


def main(input_dir: Path, warmup: int) -> None:
    counts: dict[str, int] = {}
    seconds = []
    emitted = 0
    for path in input_files(input_dir):
        started = time.perf_counter()
        table = pq.read_table(path)
        emitted = len(count(zip(table["key"].to_pylist(), table["value"].to_pylist()), counts))
        seconds.append(time.perf_counter() - started)
    Result(emitted, seconds[warmup:]).print()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[3]))
