"""Whether flow control holds a job's sources back, and how long its epochs should take."""

from __future__ import annotations

from penstock.common.configuration import Configuration
from penstock.common.options.checkpoints import CHECKPOINT_INTERVAL
from penstock.common.options.running import FLOW_ENABLED, LEAST_DEFAULT_EPOCH_MS, MAX_EPOCH_RECORDS, TARGET_EPOCH_TIME
from penstock.connectors.guarantees import FlowGuarantee, throttled_sources
from penstock.driver.flow_control import FlowSettings
from penstock.graph.logical import LogicalGraph


def flow_settings(logical: LogicalGraph, configuration: Configuration, single_epoch: bool) -> FlowSettings | None:
    """`single_epoch`: whether the job is a batch, read at once."""
    target = flow_guarantee(logical, configuration, single_epoch).target_ms
    return None if target is None else FlowSettings(target, configuration.get(MAX_EPOCH_RECORDS) or None)


def flow_guarantee(logical: LogicalGraph, configuration: Configuration, single_epoch: bool) -> FlowGuarantee:
    """Return what `penstock info` prints about flow control: the target time of an epoch, or why there is none."""
    asked = _asked_for(configuration)
    bounded = all(node.source.bounded for node in logical.nodes.values() if node.source is not None)
    if single_epoch:
        return FlowGuarantee(target_ms=None, why="a batch is read at once")
    if asked is False:
        return FlowGuarantee(target_ms=None, why=f"{FLOW_ENABLED.key} is false")
    if not throttled_sources(logical):
        return FlowGuarantee(target_ms=None, why="no source can be throttled")
    if asked is None and configuration.get(MAX_EPOCH_RECORDS):
        return FlowGuarantee(target_ms=None, why=f"{MAX_EPOCH_RECORDS.key} says how much an epoch takes")
    if asked is None and bounded and not configuration.get(CHECKPOINT_INTERVAL):
        return FlowGuarantee(
            target_ms=None, why="the input ends, and no checkpoint interval says how long an epoch should take"
        )
    why = f"{TARGET_EPOCH_TIME.key} says so"
    if configuration.get(TARGET_EPOCH_TIME) is None:
        why = f"the checkpoint interval, {LEAST_DEFAULT_EPOCH_MS} ms at least"
    return FlowGuarantee(target_ms=_target_ms(configuration), why=why)


def flow_if_asked(configuration: Configuration) -> FlowSettings | None:
    """In the harness, where every source can be held back, and no epoch is shorter than another without need."""
    if not _asked_for(configuration):
        return None
    return FlowSettings(_target_ms(configuration), configuration.get(MAX_EPOCH_RECORDS) or None)


def _target_ms(configuration: Configuration) -> int:
    target = configuration.get(TARGET_EPOCH_TIME)
    return max(configuration.get(CHECKPOINT_INTERVAL) or 0, LEAST_DEFAULT_EPOCH_MS) if target is None else target


def _asked_for(configuration: Configuration) -> bool | None:
    """Whether the user wants it or not; None where nothing is said."""
    enabled = configuration.get(FLOW_ENABLED)
    return True if enabled is None and configuration.get(TARGET_EPOCH_TIME) is not None else enabled
