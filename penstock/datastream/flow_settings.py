"""Whether flow control holds a job's sources back, and how long its epochs should take."""

from __future__ import annotations

from penstock.common.configuration import Configuration
from penstock.connectors.guarantees import FlowGuarantee, throttled_sources
from penstock.datastream.checkpoint_settings import checkpoint_interval, length_of, whole_number
from penstock.driver.flow_control import FlowSettings
from penstock.graph.logical import LogicalGraph

ENABLED = "penstock.flow.enabled"
TARGET = "penstock.flow.target-epoch-time"
MOST = "penstock.epoch.max-records"

_LEAST_TARGET_MS = 1000
"""Of the target that nobody set: an epoch on Spark costs 0.15 s and more without any record, so shorter ones work off
a backlog far more slowly."""


def flow_settings(logical: LogicalGraph, configuration: Configuration, single_epoch: bool) -> FlowSettings | None:
    """`single_epoch`: whether the job is a batch, read at once."""
    target = flow_guarantee(logical, configuration, single_epoch).target_ms
    return None if target is None else FlowSettings(target, whole_number(configuration, MOST, 0) or None)


def flow_guarantee(logical: LogicalGraph, configuration: Configuration, single_epoch: bool) -> FlowGuarantee:
    """Return what `penstock info` prints about flow control: the target time of an epoch, or why there is none."""
    asked = _asked_for(configuration)
    bounded = all(node.source.bounded for node in logical.nodes.values() if node.source is not None)
    interval = checkpoint_interval(configuration)
    if single_epoch:
        return FlowGuarantee(None, "a batch is read at once")
    if asked is False:
        return FlowGuarantee(None, f"{ENABLED} is false")
    if not throttled_sources(logical):
        return FlowGuarantee(None, "no source can be throttled")
    if asked is None and whole_number(configuration, MOST, 0):
        return FlowGuarantee(None, f"{MOST} says how much an epoch takes")
    if asked is None and bounded and interval <= 0:
        return FlowGuarantee(None, "the input ends, and no checkpoint interval says how long an epoch should take")
    why = f"{TARGET} says so"
    if not configuration.get_string(TARGET, ""):
        why = f"the checkpoint interval, {_LEAST_TARGET_MS} ms at least"
    return FlowGuarantee(_target(configuration), why)


def flow_if_asked(configuration: Configuration) -> FlowSettings | None:
    """In the harness, where every source can be held back, and no epoch is shorter than another without need."""
    if not _asked_for(configuration):
        return None
    return FlowSettings(_target(configuration), whole_number(configuration, MOST, 0) or None)


def _target(configuration: Configuration) -> int:
    if configuration.get_string(TARGET, ""):
        return length_of(configuration, TARGET, "")
    return max(checkpoint_interval(configuration), _LEAST_TARGET_MS)


def _asked_for(configuration: Configuration) -> bool | None:
    """Whether the user wants it or not; None where nothing is said."""
    if configuration.contains_key(ENABLED):
        return configuration.get_boolean(ENABLED, True)
    return True if configuration.contains_key(TARGET) else None
