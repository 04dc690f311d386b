"""The driver's view of time: where event time stands after an epoch, and when one must run although no data came."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.checkpoint.manifest import Manifest
from penstock.runtime.event_time import ChannelTime, OperatorTime, Times, idle_timeout, is_idle
from penstock.runtime.plan import PhysicalGraph
from penstock.runtime.report import Report
from penstock.runtime.watermarks import GREATEST, LEAST
from penstock.state.ttl_timers import EXPIRY_KINDS


def times_after(before: Times, graph: PhysicalGraph, reports: Iterable[Report], now: int) -> dict[str, OperatorTime]:
    """Where every operator and channel stands after the epoch with these reports, whose clock was `now`."""
    if not graph.timed:
        return {}
    times: dict[str, OperatorTime] = {}
    parts: dict[str, dict[str, list[int]]] = {}
    for report in reports:
        chain = graph.chains[report.chain]
        for uid, reached in report.watermarks.items():
            if chain.source_uid is not None:
                for name, watermark in reached.items():
                    parts.setdefault(uid, {}).setdefault(name, []).append(watermark)
            else:
                time = times.setdefault(uid, OperatorTime([LEAST] * chain.parallelism, report.idle))
                time.subtasks[report.subtask] = reached[""]
    for chain in graph.sources():
        makers = [operator.uid for operator in chain.operators if operator.assigns_time]
        for uid in [*makers, *([chain.source_uid] if chain.source_uid is not None and chain.gives_time else [])]:
            stood = before.get(uid, OperatorTime())
            channels = _channels(stood.channels, parts.get(uid, {}), idle_timeout(chain, uid), now)
            ended = not channels and bool(stood.ended or stood.channels or uid in parts)
            times[uid] = OperatorTime(channels=channels, ended=ended)
    return times


def _channels(
    stood: dict[str, ChannelTime], parts: dict[str, list[int]], timeout_ms: int | None, now: int
) -> dict[str, ChannelTime]:
    channels = {
        name: ChannelTime(channel.watermark, channel.active_at, is_idle(channel, timeout_ms, now))
        for name, channel in stood.items()
    }
    for name, reached in parts.items():
        known = stood.get(name)
        # A channel without a name was read in parts: it has got as far as the one that is furthest behind.
        watermark = min(reached)
        if watermark == GREATEST:
            channels.pop(name, None)
            continue
        channels[name] = ChannelTime(watermark if known is None else max(watermark, known.watermark), now)
    return channels


def next_wakeup(last: Manifest | None, graph: PhysicalGraph) -> int | None:
    """When an epoch is to run even without data, in ms: for a processing-time timer, or a channel that goes idle."""
    if last is None or last.ended:
        return None
    moments = [
        time
        for snapshot in last.operators.values()
        for kind in ("PROCESSING_TIME", EXPIRY_KINDS["PROCESSING_TIME"])
        for time in snapshot.timers.get(kind, {}).values()
    ]
    for chain in graph.sources():
        for operator in chain.operators:
            if operator.idle_timeout_ms is not None and operator.uid in last.times:
                moments += [
                    channel.active_at + operator.idle_timeout_ms
                    for channel in last.times[operator.uid].channels.values()
                    if not channel.idle
                ]
    return min(moments, default=None)
