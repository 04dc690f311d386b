"""What one run measures: the lines of the table, the ways of counting, the bars."""

from dataclasses import dataclass, replace
from typing import Literal

from bench.workload import Workload

Way = Literal["penstock", "transform-with-state", "dict-loop"]

MODULES: dict[Way, str] = {
    "penstock": "bench.penstock_count",
    "transform-with-state": "bench.transform_with_state",
    "dict-loop": "bench.dict_loop",
}

EPOCH_RECORDS = 500_000
# The peer is slow: 500,000 records of 100,000 keys take it 21 s. But its cost goes by keys in the
# epoch, so small epochs cost it records per second; README.md has the figures. --same-epochs.
PEER_EPOCH_RECORDS = 50_000


@dataclass(frozen=True)
class Bar:
    """A limit on Penstock relative to `peer`: on throughput a least, on epoch time a most."""

    peer: Way
    limit: float


@dataclass(frozen=True)
class Line:
    """A line of the table: the workload of each way, and how its ways are compared."""

    name: str
    title: str
    unit: Literal["records/s", "ms"]
    workloads: dict[Way, Workload]
    bars: tuple[Bar, ...]


def running_count(keys: int, warmup: int, bars: tuple[Bar, ...], peer_records: int) -> Line:
    ours = Workload(keys, EPOCH_RECORDS, warmup, measured=5)
    peer = replace(ours, records=peer_records)
    workloads: dict[Way, Workload] = {"penstock": ours, "transform-with-state": peer, "dict-loop": ours}
    return Line(f"keys-{keys}", f"{keys:,} keys", "records/s", workloads, bars)


def almost_empty() -> Line:
    # Ten warm-up epochs: the JVM is still compiling after the first few.
    epochs = Workload(keys=1_000, records=10, warmup=10, measured=30)
    workloads: dict[Way, Workload] = {"penstock": epochs, "transform-with-state": epochs}
    return Line("empty", "10 records an epoch", "ms", workloads, (Bar("transform-with-state", 1.3),))


def lines(quick: bool, same_epochs: bool) -> list[Line]:
    peer_records = EPOCH_RECORDS if same_epochs else PEER_EPOCH_RECORDS
    spark: Way = "transform-with-state"
    loop: Way = "dict-loop"
    full = [
        running_count(1_000, 3, (Bar(spark, 4),), peer_records),
        running_count(100_000, 3, (Bar(spark, 20), Bar(loop, 0.12)), peer_records),
        # After four epochs of ours most of the million keys exist.
        running_count(1_000_000, 4, (Bar(spark, 15),), peer_records),
        almost_empty(),
    ]
    return [shorter(line) for line in full] if quick else full


def shorter(line: Line) -> Line:
    """For a look, not for a figure: a third of the measured epochs, after the whole warm-up."""
    return replace(
        line,
        workloads={way: replace(work, measured=-(-work.measured // 3)) for way, work in line.workloads.items()},
    )
