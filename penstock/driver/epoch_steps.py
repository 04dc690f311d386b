"""The values passed between the steps of an epoch: triggered, collected, decided, published."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.checkpoint.manifest import Manifest, Version
from penstock.driver.committing import CommitPlan
from penstock.driver.epoch_metrics import EpochMetrics
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.driver.report_totals import ReportTotals
from penstock.graph.physical import PhysicalGraph
from penstock.state.blocks import Blocks


@dataclass(frozen=True, kw_only=True)
class TriggeredEpoch:
    """An epoch before its first attempt. All attempts share these values."""

    number: int
    batch: int | None
    """Spark's batch ID, or that of the previous epoch if this one has no batch."""
    spark_log: dict[str, bytes]
    log_index: dict[str, int] | None
    ends_input: bool
    timestamp: int
    """Processing time of the epoch, in milliseconds."""
    jumped: int
    began_at: float
    """Seconds on the monotonic clock."""
    blocks: dict[str, Blocks]
    """The blocks of keyed operators, by uid."""


@dataclass(frozen=True, kw_only=True)
class CollectedEpoch:
    """The attempt that all tasks acknowledged."""

    totals: ReportTotals
    """Of the reports of all tasks."""
    metrics: EpochMetrics
    records: int
    """Records read from all sources."""
    triggered_at: int
    """When the attempt was triggered, in milliseconds on the machine's clock."""
    started: float
    """When the attempt was triggered, in seconds on the monotonic clock."""


@dataclass(frozen=True, kw_only=True)
class MeasuredEpoch:
    """A completed epoch with its measurements, for statistics."""

    graph: PhysicalGraph
    manifest: Manifest
    collected: CollectedEpoch
    statistics: EpochStatistics
    committing: float
    """Seconds in which the epoch waited for sinks to commit: its own output, and concurrent commits of the previous
    epoch that were not complete."""
    slots: int
    """How many tasks ran concurrently, or 0 for all."""


@dataclass(frozen=True, kw_only=True)
class DecidedEpoch:
    """The manifest to publish, and what to commit before and after publishing it."""

    manifest: Manifest
    commits: CommitPlan


@dataclass(frozen=True, kw_only=True)
class PublishedEpoch:
    """A completed checkpoint. No later step can undo it."""

    manifest: Manifest
    version: Version | None
    """None for a batch, whose manifest is not stored."""
    state_bytes: int
    """Of all keyed state."""
