"""What one run measures: the lines of the table, the implementations, and the limits."""

from dataclasses import dataclass, replace
from typing import Literal

from bench.masters import CLUSTER
from bench.workload import LARGE_EPOCH, Workload

Way = Literal[
    "penstock", "transform-with-state", "dict-loop", "windows", "timers-pending", "no-timers", "penstock-cluster"
]

COMMANDS: dict[Way, tuple[str, ...]] = {
    "penstock": ("bench.penstock_count",),
    "transform-with-state": ("bench.transform_with_state",),
    "dict-loop": ("bench.dict_loop",),
    "windows": ("bench.penstock_windows",),
    "timers-pending": ("bench.penstock_timers", "pending"),
    "no-timers": ("bench.penstock_timers", "none"),
    "penstock-cluster": ("bench.penstock_count", CLUSTER),
}
"""The module of each implementation, and its arguments after the input, the work directory and the warm-up epochs."""

EPOCH_RECORDS = LARGE_EPOCH
# The peer is slow: 500,000 records of 100,000 keys take it 21 s. But it pays per key in the epoch, so small epochs
# reduce its throughput; README.md has the figures. See --same-epochs.
PEER_EPOCH_RECORDS = 50_000


@dataclass(frozen=True)
class Bar:
    """A limit on one of our implementations relative to `peer`: a minimum for throughput, a maximum for epoch time."""

    peer: Way
    limit: float
    ours: Way = "penstock"


@dataclass(frozen=True)
class Line:
    """A line of the table: the workload of each implementation, and the limits."""

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
    # Ten warm-up epochs: after the first few, the JVM is still compiling.
    epochs = Workload(keys=1_000, records=10, warmup=10, measured=30)
    workloads: dict[Way, Workload] = {"penstock": epochs, "transform-with-state": epochs}
    return Line("empty", "10 records an epoch", "ms", workloads, (Bar("transform-with-state", 1.3),))


def tumbling_windows() -> Line:
    """Compare an aggregate over windows of one second, one per epoch, with the plain count of the same records."""
    epochs = Workload(keys=100_000, records=EPOCH_RECORDS, warmup=3, measured=5, timed=True)
    workloads: dict[Way, Workload] = {"windows": epochs, "penstock": epochs}
    return Line("windows", "100,000 keys", "records/s", workloads, (Bar("penstock", 1 / 3, "windows"),))


def pending_timers() -> Line:
    """Compare small epochs with and without more than a million pending timers, set during the warm-up."""
    # Ten small epochs after the large ones, to let the JVM and the disks settle.
    epochs = Workload(keys=1_000_000, records=1_000, warmup=14, measured=40, timed=True, large=4)
    workloads: dict[Way, Workload] = {"timers-pending": epochs, "no-timers": epochs}
    return Line("timers", "1,000 records an epoch", "ms", workloads, (Bar("no-timers", 1.2, "timers-pending"),))


def executors_line() -> Line:
    """Compare the count on executors in separate processes with the count in one process. See `bench.cluster`."""
    epochs = Workload(keys=100_000, records=EPOCH_RECORDS, warmup=3, measured=5)
    workloads: dict[Way, Workload] = {"penstock-cluster": epochs, "penstock": epochs}
    return Line("cluster", "100,000 keys", "records/s", workloads, (Bar("penstock", 0.85, "penstock-cluster"),))


def event_time_lines(quick: bool) -> list[Line]:
    full = [tumbling_windows(), pending_timers()]
    return [shorter(line) for line in full] if quick else full


def lines(quick: bool, same_epochs: bool) -> list[Line]:
    peer_records = EPOCH_RECORDS if same_epochs else PEER_EPOCH_RECORDS
    spark: Way = "transform-with-state"
    loop: Way = "dict-loop"
    full = [
        running_count(1_000, 3, (Bar(spark, 4),), peer_records),
        running_count(100_000, 3, (Bar(spark, 20), Bar(loop, 0.12)), peer_records),
        # After four of our epochs most of the million keys exist.
        running_count(1_000_000, 4, (Bar(spark, 15),), peer_records),
        almost_empty(),
    ]
    return [shorter(line) for line in full] if quick else full


def shorter(line: Line) -> Line:
    """Return the line with a third of the measured epochs after the full warm-up, for a rough estimate."""
    return replace(
        line,
        workloads={way: replace(work, measured=-(-work.measured // 3)) for way, work in line.workloads.items()},
    )
