"""What the steps of an epoch hand to each other: triggered, collected, decided, published."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.checkpoint.manifest import Manifest, Version
from penstock.driver.committing import CommitPlan
from penstock.runtime.metrics import TaskMetrics
from penstock.runtime.report import Report


@dataclass(frozen=True, kw_only=True)
class TriggeredEpoch:
    """An epoch before its first attempt. All its attempts share these values."""

    number: int
    batch: int | None
    """Spark's batch, or that of the epoch before."""
    spark_log: dict[str, bytes]
    log_index: dict[str, int] | None
    ends_input: bool
    timestamp: int
    """The epoch's clock, in milliseconds."""
    jumped: int
    began_at: float
    """By the monotonic clock, in seconds."""


@dataclass(frozen=True, kw_only=True)
class CollectedEpoch:
    """The attempt at an epoch that all tasks acknowledged."""

    reports: tuple[Report, ...]
    measured: list[TaskMetrics]
    records: int
    """Read from all sources."""
    triggered_at: int
    """The attempt's trigger by the machine's clock, in milliseconds."""
    started: float
    """The same by the monotonic clock, in seconds."""


@dataclass(frozen=True, kw_only=True)
class DecidedEpoch:
    """What is published, and what is committed before and after that."""

    manifest: Manifest
    commits: CommitPlan


@dataclass(frozen=True, kw_only=True)
class PublishedEpoch:
    """A completed checkpoint. What follows cannot undo it."""

    manifest: Manifest
    version: Version | None
    """None for a batch, whose manifest is not stored."""
