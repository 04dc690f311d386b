"""The end-to-end guarantee of a job: that of its weakest part, and which part that is."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.connectors.sink import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, Sink
from penstock.connectors.source import Source
from penstock.graph.logical import LogicalGraph

NO_GUARANTEE = "none"
"""Records can be lost or duplicated."""


class SourceGuarantee(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    name: str
    replayable: bool
    why: str
    not_throttled: str = ""
    """Why flow control cannot throttle the source; empty if it can."""


class SinkGuarantee(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    name: str
    guarantee: str
    why: str


class CheckpointGuarantee(msgspec.Struct, frozen=True, kw_only=True):
    """What the checkpoints of a job guarantee after a failure."""

    guarantee: str
    why: str
    outlive_driver: bool = False


class FlowGuarantee(msgspec.Struct, frozen=True, kw_only=True):
    target_ms: int | None
    """Target epoch time; None if sources are not throttled."""
    why: str


class JobGuarantee(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    guarantee: str
    reason: str
    weakest: list[str]
    """Uids of the sources and sinks that keep the job from exactly-once, and "checkpoints" if checkpointing does."""
    checkpoints: CheckpointGuarantee
    flow: FlowGuarantee
    sources: list[SourceGuarantee]
    sinks: list[SinkGuarantee]


def sink_guarantee(
    uid: str, name: str, sink: Sink, at_least_once: bool, checkpoints: CheckpointGuarantee
) -> SinkGuarantee:
    """Return the guarantee of a sink. `at_least_once`: whether the checkpointing mode is AT_LEAST_ONCE."""
    if at_least_once and sink.commit_before_checkpoint:
        why = "execution.checkpointing.mode is AT_LEAST_ONCE: it commits records before their checkpoint is complete"
        return SinkGuarantee(uid=uid, name=name, guarantee=AT_LEAST_ONCE, why=f"{why}, and again if that fails")
    if sink.guarantee == AT_MOST_ONCE and not checkpoints.outlive_driver:
        # Without durable checkpoints no later driver resumes the job: it starts over and outputs every record.
        why = "it outputs records when their epoch is complete"
        return SinkGuarantee(uid=uid, name=name, guarantee=EXACTLY_ONCE, why=why)
    return SinkGuarantee(uid=uid, name=name, guarantee=sink.guarantee, why=sink.why)


def job_guarantee(
    job: str,
    checkpoints: CheckpointGuarantee,
    flow: FlowGuarantee,
    sources: Iterable[SourceGuarantee],
    sinks: Iterable[SinkGuarantee],
) -> JobGuarantee:
    sources, sinks = list(sources), list(sinks)
    losing = {source.uid: _part("source", source) for source in sources if not source.replayable}
    losing |= {sink.uid: _part("sink", sink) for sink in sinks if sink.guarantee == AT_MOST_ONCE}
    repeating = {sink.uid: _part("sink", sink) for sink in sinks if sink.guarantee == AT_LEAST_ONCE}
    # A non-replayable source does not repeat records, whatever the checkpoints guarantee.
    if checkpoints.guarantee != EXACTLY_ONCE and any(source.replayable for source in sources):
        repeating["checkpoints"] = f"the checkpoints: {checkpoints.why}"
    weak = losing | repeating
    level, reason = EXACTLY_ONCE, f"every source is replayable, every sink commits a record once; {checkpoints.why}"
    if weak:
        level = NO_GUARANTEE if losing and repeating else AT_MOST_ONCE if losing else AT_LEAST_ONCE
        reason = f"because of {'; '.join(weak.values())}"
    return JobGuarantee(
        job=job,
        guarantee=level,
        reason=reason,
        weakest=list(weak),
        checkpoints=checkpoints,
        flow=flow,
        sources=sources,
        sinks=sinks,
    )


def in_a_line(guarantee: JobGuarantee) -> str:
    """Return the guarantee as one line, for the log at job start."""
    level = "gives no guarantee" if guarantee.guarantee == NO_GUARANTEE else f"is {guarantee.guarantee}"
    joint = ", " if guarantee.weakest else ": "
    return f"Job '{guarantee.job}' {level}{joint}{guarantee.reason}."


def in_words(guarantee: JobGuarantee) -> str:
    """Return the guarantee with one line per part."""
    flow = "off" if guarantee.flow.target_ms is None else f"epochs of about {guarantee.flow.target_ms} ms"
    lines = [
        in_a_line(guarantee),
        f"  checkpoints: {guarantee.checkpoints.guarantee}: {guarantee.checkpoints.why}",
        f"  flow control: {flow}: {guarantee.flow.why}",
    ]
    for source in guarantee.sources:
        kind = "replayable" if source.replayable else "not replayable"
        lines.append(f"  source '{source.name}' (uid '{source.uid}'): {kind}: {source.why}")
        if source.not_throttled:
            lines.append(f"    cannot be throttled: {source.not_throttled}")
    lines += [f"  sink '{sink.name}' (uid '{sink.uid}'): {sink.guarantee}: {sink.why}" for sink in guarantee.sinks]
    return "\n".join(lines)


def throttled_sources(logical: LogicalGraph) -> list[str]:
    """Return the uids of the sources that obey a limit."""
    origins = {node.uid: node.source.origin for node in logical.nodes.values() if node.source is not None}
    return [uid for uid, origin in origins.items() if isinstance(origin, Source) and not origin.not_throttled]


def _part(kind: str, part: SourceGuarantee | SinkGuarantee) -> str:
    return f"{kind} '{part.name}' (uid '{part.uid}'): {part.why}"
