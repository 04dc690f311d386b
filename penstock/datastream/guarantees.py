"""The end-to-end guarantee of a job, derived from its graph and settings."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from penstock.common.configuration import Configuration
from penstock.common.console import NOT_ON_CONSOLE
from penstock.common.options.checkpoints import CHECKPOINT_INTERVAL, CHECKPOINTS_DIRECTORY
from penstock.common.options.running import MAX_EPOCH_RECORDS
from penstock.connectors.flow_settings import flow_guarantee
from penstock.connectors.guarantees import (
    CheckpointGuarantee,
    JobGuarantee,
    SinkGuarantee,
    SourceGuarantee,
    in_a_line,
    job_guarantee,
    sink_guarantee,
)
from penstock.connectors.sink import AT_LEAST_ONCE, EXACTLY_ONCE, Sink
from penstock.connectors.source import Source
from penstock.datastream.checkpoint_config import checkpointing_mode
from penstock.datastream.checkpointing_mode import CheckpointingMode
from penstock.driver.checkpoint_settings import checkpoint_interval
from penstock.graph.logical import LogicalGraph, Node
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.sink_operators import SinkFunctionOperator, SinkOperator
from penstock.savepoint.settings import restore_settings
from penstock.state.backend_settings import backend_settings

_logger = logging.getLogger("penstock")

_AGAIN = "and its sinks emit their output again"


def guarantee_of(
    name: str, logical: LogicalGraph, physical: PhysicalGraph, configuration: Configuration
) -> JobGuarantee:
    """Return the end-to-end guarantee of a job without running it.

    Only programs with DataFrames need Spark for this.
    """
    single_epoch = is_single_epoch(logical, physical, configuration)
    checkpoints = _checkpoints(configuration, single_epoch)
    at_least_once = checkpointing_mode(configuration) is CheckpointingMode.AT_LEAST_ONCE
    nodes = list(logical.in_order())
    sources = [_source(node) for node in nodes if node.source is not None]
    flow = flow_guarantee(logical, configuration, single_epoch)
    return job_guarantee(name, checkpoints, flow, sources, _sinks(nodes, at_least_once, checkpoints))


def log_guarantee(guarantee: JobGuarantee) -> None:
    """Log the guarantee in one line, as a warning if a failure loses records of a source."""
    losing = not all(source.replayable for source in guarantee.sources)
    if losing:
        _logger.warning("%s", in_a_line(guarantee))
    else:
        _logger.info("%s", in_a_line(guarantee), extra=NOT_ON_CONSOLE)


def _checkpoints(configuration: Configuration, single_epoch: bool) -> CheckpointGuarantee:
    if single_epoch:
        return CheckpointGuarantee(
            guarantee=EXACTLY_ONCE,
            why="a batch job needs none: its output becomes visible only when it is complete",
        )
    if checkpoint_interval(configuration) <= 0:
        return CheckpointGuarantee(
            guarantee=AT_LEAST_ONCE,
            why=f"checkpointing is off ({CHECKPOINT_INTERVAL.key} is not set), so a failed job starts from scratch, "
            f"{_AGAIN}",
        )
    if not backend_settings(configuration)[1]:
        return CheckpointGuarantee(
            guarantee=AT_LEAST_ONCE,
            why=f"they are in the driver's memory ({CHECKPOINTS_DIRECTORY.key} is not set), so a job whose driver dies "
            f"starts from scratch, {_AGAIN}",
        )
    return CheckpointGuarantee(
        guarantee=EXACTLY_ONCE,
        why="checkpoints outlive the driver, and the next driver resumes from the last one",
        outlive_driver=True,
    )


def is_single_epoch(logical: LogicalGraph, physical: PhysicalGraph, configuration: Configuration) -> bool:
    """Return whether the job is a batch whose sources can all be read as one Spark job."""
    from penstock.spark.bounded import read_at_once

    if not physical.batch or restore_settings(configuration) is not None:
        return False
    origins = [node.source.origin for node in logical.nodes.values() if node.source is not None]
    return bool(origins) and all(map(read_at_once, origins))


def _source(node: Node) -> SourceGuarantee:
    assert node.source is not None
    origin = node.source.origin
    if isinstance(origin, Source):
        return SourceGuarantee(
            uid=node.uid,
            name=node.name,
            replayable=origin.replayable,
            why=origin.why,
            not_throttled=origin.not_throttled,
        )
    if node.source.reader == "chunks" or not origin.isStreaming:
        return SourceGuarantee(
            uid=node.uid,
            name=node.name,
            replayable=True,
            why="the job reads a copy of the records, which it keeps as long as its checkpoints",
            not_throttled=f"it is divided into epochs of {MAX_EPOCH_RECORDS.key} records when the job starts",
        )
    from penstock.spark.formats import replayable

    can, why = replayable(origin)
    fixed = "the options of a streaming DataFrame (such as maxFilesPerTrigger) fix the size of an epoch"
    not_throttled = f"{fixed} when the job starts"
    return SourceGuarantee(uid=node.uid, name=node.name, replayable=can, why=why, not_throttled=not_throttled)


def _sinks(nodes: list[Node], at_least_once: bool, checkpoints: CheckpointGuarantee) -> Iterator[SinkGuarantee]:
    for node in nodes:
        if isinstance(node.operator, SinkOperator):
            sink: Sink = node.operator.sink
            yield sink_guarantee(node.uid, node.name, sink, at_least_once, checkpoints)
        elif isinstance(node.operator, SinkFunctionOperator):
            why = "its function is called immediately, and again for each record of a replayed epoch"
            yield SinkGuarantee(uid=node.uid, name=node.name, guarantee=AT_LEAST_ONCE, why=why)
