"""Flow control settings: whether to throttle a job's sources, and the target epoch time."""

from __future__ import annotations

from penstock.common.configuration import Configuration
from penstock.common.options.checkpoints import CHECKPOINT_INTERVAL
from penstock.common.options.running import FLOW_ENABLED, LEAST_DEFAULT_EPOCH_MS, MAX_EPOCH_RECORDS, TARGET_EPOCH_TIME
from penstock.connectors.guarantees import FlowGuarantee, throttled_sources
from penstock.driver.flow_control import FlowSettings
from penstock.graph.logical import LogicalGraph


def flow_settings(logical: LogicalGraph, configuration: Configuration, single_epoch: bool) -> FlowSettings | None:
    """Return the job's flow control settings, or None if it is off.

    `single_epoch`: whether the job is a batch job, which reads all input in one epoch.
    """
    target = flow_guarantee(logical, configuration, single_epoch).target_ms
    return None if target is None else FlowSettings(target, configuration.get(MAX_EPOCH_RECORDS) or None)


def flow_guarantee(logical: LogicalGraph, configuration: Configuration, single_epoch: bool) -> FlowGuarantee:
    """Return the flow control that `penstock info` prints: the target epoch time, or why it is off."""
    asked = _asked_for(configuration)
    bounded = all(node.source.bounded for node in logical.nodes.values() if node.source is not None)
    if single_epoch:
        return FlowGuarantee(target_ms=None, why="a batch job reads all input in one epoch")
    if asked is False:
        return FlowGuarantee(target_ms=None, why=f"{FLOW_ENABLED.key} is false")
    if not throttled_sources(logical):
        return FlowGuarantee(target_ms=None, why="no source can be throttled")
    if asked is None and configuration.get(MAX_EPOCH_RECORDS):
        return FlowGuarantee(target_ms=None, why=f"{MAX_EPOCH_RECORDS.key} limits the size of an epoch")
    if asked is None and bounded and not configuration.get(CHECKPOINT_INTERVAL):
        return FlowGuarantee(target_ms=None, why="the input is bounded and no checkpoint interval sets an epoch time")
    why = f"set by {TARGET_EPOCH_TIME.key}"
    if configuration.get(TARGET_EPOCH_TIME) is None:
        why = f"follows the checkpoint interval, at least {LEAST_DEFAULT_EPOCH_MS} ms"
    return FlowGuarantee(target_ms=_target_ms(configuration), why=why)


def flow_if_asked(configuration: Configuration) -> FlowSettings | None:
    """Return the settings for the test harness: flow control is on only if the configuration enables it.

    In the harness every source can be throttled, and short epochs have no benefit.
    """
    if not _asked_for(configuration):
        return None
    return FlowSettings(_target_ms(configuration), configuration.get(MAX_EPOCH_RECORDS) or None)


def _target_ms(configuration: Configuration) -> int:
    target = configuration.get(TARGET_EPOCH_TIME)
    return max(configuration.get(CHECKPOINT_INTERVAL) or 0, LEAST_DEFAULT_EPOCH_MS) if target is None else target


def _asked_for(configuration: Configuration) -> bool | None:
    """Return whether the user enabled or disabled flow control; None if neither."""
    enabled = configuration.get(FLOW_ENABLED)
    return True if enabled is None and configuration.get(TARGET_EPOCH_TIME) is not None else enabled
