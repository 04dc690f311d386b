"""The driver's view of event time: watermarks after an epoch, and when an epoch must run even without data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from penstock.checkpoint.manifest import Manifest
from penstock.driver.report_totals import ReportTotals
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.event_time import (
    ChannelTime,
    OperatorTime,
    Standing,
    Times,
    after_jump,
    idle_timeout,
    is_idle,
    is_silent,
    standing,
    where_channels_stood,
)
from penstock.runtime.plan import Chain
from penstock.runtime.report import Report
from penstock.runtime.watermarks import GREATEST, LEAST
from penstock.state.ttl_timers import EXPIRY_KINDS


def times_after(
    before: Times, graph: PhysicalGraph, totals: ReportTotals, now: int, jumped: int = 0
) -> dict[str, OperatorTime]:
    """Return the event time of every operator and channel after an epoch whose reports have these totals.

    `now` was the clock of the epoch.

    Watermarks never fall below `before`, even if a report claims so. `jumped`: milliseconds by which the clock jumped
    forward since the previous epoch.
    """
    if not graph.timed:
        return {}
    before = after_jump(before, jumped)
    times: dict[str, OperatorTime] = {}
    for chain in graph.chains:
        if chain.source_uid is None and chain.id in totals.by_task:
            times.update(_subtasks(before, chain, totals, now))
    for chain in graph.sources():
        parts = totals.splits.get(chain.id, {})
        makers = [operator.uid for operator in chain.operators if operator.assigns_time]
        for uid in [*makers, *([chain.source_uid] if chain.source_uid is not None and chain.gives_time else [])]:
            stood = before.get(uid, OperatorTime())
            timeout_ms = idle_timeout(chain, uid)
            channels = _channels(stood, parts.get(uid, {}), timeout_ms, now)
            ended = not channels and bool(stood.ended or stood.channels or uid in parts)
            waits_since = [] if channels or ended else stood.active_at or [now]
            times[uid] = _furthest(
                OperatorTime(
                    idle=bool(waits_since) and is_silent(OperatorTime(active_at=waits_since), timeout_ms, now),
                    channels=channels,
                    ended=ended,
                    active_at=waits_since,
                    reached=max(stood.furthest(), totals.shown.get(uid, LEAST)),
                )
            )
    return times


def _subtasks(before: Times, chain: Chain, totals: ReportTotals, now: int) -> dict[str, OperatorTime]:
    """Return the times of the operators of a chain that is not a source's."""
    times = {}
    for place, operator in enumerate(chain.operators):
        uid = operator.uid
        stood = [standing(chain, place, subtask, before) for subtask in range(chain.parallelism)]
        watermarks = [each.watermark for each in stood]
        idle = [False] * chain.parallelism
        active_at = [now if each.active_at is None else each.active_at for each in stood]
        for subtask, watermark in totals.watermarks[chain.id][uid].items():
            watermarks[subtask] = max(watermarks[subtask], watermark)
        for subtask in totals.idle.get(uid, ()):
            idle[subtask] = True
        for subtask in totals.active.get(uid, ()):
            active_at[subtask] = now
        time = OperatorTime(subtasks=watermarks, idle=all(idle), idle_subtasks=idle)
        if operator.assigns_time:
            reached = before[uid].furthest() if uid in before else time.reached
            time = _furthest(replace(time, active_at=active_at, reached=reached))
        times[uid] = time
    return times


def _furthest(time: OperatorTime) -> OperatorTime:
    return replace(time, reached=time.furthest())


def _channels(
    stood: OperatorTime, parts: Mapping[str, int], timeout_ms: int | None, now: int
) -> dict[str, ChannelTime]:
    channels = {
        name: ChannelTime(
            watermark=channel.watermark, active_at=channel.active_at, idle=is_idle(channel, timeout_ms, now)
        )
        for name, channel in stood.channels.items()
    }
    begins = where_channels_stood(stood)
    # If a channel was read in several parts, the slowest one determines its watermark.
    for name, watermark in parts.items():
        if watermark == GREATEST:
            channels.pop(name, None)
            continue
        channels[name] = ChannelTime(watermark=max(watermark, begins.get(name, watermark)), active_at=now)
    return channels


def moved_backwards(before: Times, after: Times) -> Iterator[str]:
    """Describe every watermark that moved backward from one checkpoint to another. A correct job yields none."""
    for uid in before.keys() & after.keys():
        was, now = before[uid], after[uid]
        if len(was.subtasks) == len(now.subtasks):
            pairs = list(zip(was.subtasks, now.subtasks, strict=True))
        elif was.subtasks and now.subtasks:
            pairs = [(min(was.subtasks), min(now.subtasks))]
        else:
            pairs = []
        pairs += [
            (channel.watermark, now.channels[name].watermark)
            for name, channel in was.channels.items()
            if name in now.channels
        ]
        pairs.append((was.reached, now.reached))
        yield from (f"'{uid}' went from {first} back to {second}" for first, second in pairs if second < first)


def reported_backwards(before: Times, graph: PhysicalGraph, reports: Iterable[Report]) -> Iterator[str]:
    """Describe the subtasks whose watermark fell below its value at the start of the epoch. A correct job has none."""
    for report in reports:
        chain = graph.chains[report.chain]
        if not graph.timed or chain.source_uid is not None:
            continue
        for place, operator in enumerate(chain.operators):
            began, ended = standing(chain, place, report.subtask, before), report.watermarks[operator.uid][""]
            if ended < began.watermark:
                yield f"subtask {report.subtask} of '{operator.uid}' went from {began.watermark} back to {ended}"


def next_wakeup(last: Manifest | None, graph: PhysicalGraph) -> int | None:
    """Return when an epoch must run even without data, for a processing-time timer or a channel that becomes idle."""
    if last is None or last.ended:
        return None
    moments = [
        time
        for snapshot in last.operators.values()
        for kind in ("PROCESSING_TIME", EXPIRY_KINDS["PROCESSING_TIME"])
        for time in snapshot.timers.get(kind, {}).values()
    ]
    for chain in graph.chains:
        for place, operator in enumerate(chain.operators):
            if operator.idle_timeout_ms is not None and operator.uid in last.times:
                moments += [
                    stood.active_at + operator.idle_timeout_ms
                    for stood in _waited_for(chain, place, last.times)
                    if stood.active_at is not None and not stood.idle
                ]
    return min(moments, default=None)


def _waited_for(chain: Chain, place: int, times: Times) -> list[Standing]:
    """Return the channels of an operator that generates watermarks."""
    if chain.source_uid is None:
        return [standing(chain, place, subtask, times) for subtask in range(chain.parallelism)]
    time = times[chain.operators[place].uid]
    if time.channels:
        return [Standing(each.watermark, each.idle, each.active_at) for each in time.channels.values()]
    return [Standing(idle=time.idle, active_at=since) for since in time.active_at]
