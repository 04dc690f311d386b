"""One measurement, in its own process: `python -m bench.tables.work write|pandas|stream PATH [KEYS]`.

The last line of its output is JSON: the seconds, and the peak memory above the initial memory in bytes.
"""

import json
import os
import resource
import sys
import time
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.tables import OperatorTransformation, Savepoint, SavepointWriter

STATES = ("count", "account", "by item")
_PAGE = resource.getpagesize()


@dataclass
class Account:
    orders: int
    spent: float
    name: str


def write(path: str, keys: int) -> None:
    """Write a savepoint with an int, a dataclass and a map of one entry for each key."""
    frame = pd.DataFrame({"key": range(keys)})
    bootstrap = (
        OperatorTransformation.bootstrap_with(frame)
        .key_by("key")
        .state(ValueStateDescriptor("count", int), "key")
        .state(ValueStateDescriptor("account", Account), lambda row: Account(row["key"], row["key"] / 2, "customer"))
        .state(MapStateDescriptor("by item", str, int), "key", map_key=lambda row: "tea")
    )
    SavepointWriter.new_savepoint().with_operator("customers", bootstrap).write(path)


def to_pandas(path: str, state: str) -> int:
    return len(Savepoint.load(path).state("customers", state).to_pandas())


def stream(path: str, state: str) -> int:
    return sum(batch.num_rows for batch in Savepoint.load(path).state("customers", state).to_arrow())


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * _PAGE


def main(what: str, path: str, argument: str) -> None:
    # Load what both readers need, to leave it out of the measurement.
    pa.array([1]).to_pandas()
    before, began = resident(), time.perf_counter()
    rows = None
    if what == "write":
        write(path, int(argument))
    else:
        rows = (to_pandas if what == "pandas" else stream)(path, argument)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write("\n" + json.dumps({"seconds": seconds, "rows": rows, "memory": peak - before}) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
