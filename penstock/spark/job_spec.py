"""The specification of a job on Spark, checked before Spark starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint.lineages import Lineages, SharedStorage
from penstock.driver.assignment import Assignment
from penstock.driver.epoch_settings import Settings
from penstock.driver.epoch_statistics import EpochStatistics
from penstock.driver.flow_control import FlowSettings
from penstock.driver.instructions import JobTraits
from penstock.driver.restarts import RestartStrategy
from penstock.driver.slots import SlotSettings
from penstock.graph.logical import LogicalGraph
from penstock.graph.physical import PhysicalGraph
from penstock.savepoint.restoring import RestoreSettings, check_savepoint
from penstock.spark.sources import sources_in_log


@dataclass
class JobSpec:
    """Everything needed to run a job, checked before Spark starts."""

    name: str
    logical: LogicalGraph
    physical: PhysicalGraph
    settings: Settings
    checkpoint_root: SharedStorage | None
    """Storage of this job's lineages; None for the driver's memory."""
    checkpointing: bool
    interval_ms: int
    retain: bool
    parallelism: int
    records_per_epoch: int
    restart_strategy: RestartStrategy
    restore: RestoreSettings | None = None
    """The savepoint that the job starts from."""
    store_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the stores that hold savepoints."""
    slots: SlotSettings = field(default_factory=SlotSettings)
    on_epoch: list[Callable[[EpochStatistics], None]] = field(default_factory=list)
    flow: FlowSettings | None = None
    """How to limit the sources that support it; None without flow control."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    """The job's settings, to show them."""
    single_epoch: bool = False
    """Whether the job is a batch that is read in one Spark job. It starts over after a failure. With `checkpointing`,
    as in a cluster, its manifest outlives the driver, and the next attempt commits it."""
    assignment: Assignment | None = None
    """The attempt of a cluster that this process runs; None for a program run by hand."""

    @property
    def bounded(self) -> bool:
        """Whether all sources are known to end."""
        return all(node.source.bounded for node in self.logical.nodes.values() if node.source is not None)

    @property
    def traits(self) -> JobTraits:
        return JobTraits(
            checkpointing=self.checkpointing,
            resumable=self.checkpointing and self.checkpoint_root is not None,
            retain=self.retain,
            single_epoch=self.single_epoch,
            bounded=self.bounded,
            has_sources=bool(self.physical.sources()),
        )


def check_savepoint_of(spec: JobSpec) -> None:
    """Raise if the job cannot start from its savepoint, before Spark starts. Changes nothing."""
    restore, root = spec.restore, spec.checkpoint_root
    if restore is None:
        return
    # A job that already started from it resumes from its checkpoints, and might have removed the savepoint.
    if not (root is not None and spec.checkpointing and Lineages(root).goes_on_from(restore.origin)):
        check_savepoint(spec.physical, sources_in_log(spec.logical, spec.physical), restore)
