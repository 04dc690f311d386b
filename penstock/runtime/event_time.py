"""Event-time progress at the last checkpoint, and how a task resumes from it.

The manifest records the watermark of every operator's subtasks. For every operator that generates watermarks in a
source's chain, it also records the watermarks of its channels: the splits of the source, or a single unnamed channel if
the source only has Spark partitions, which have no identity. Idleness therefore never depends on a row arriving, and
event time never moves backwards after a recovery.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.runtime.assigning import TimestampsOperator
from penstock.runtime.chain import ChainRun
from penstock.runtime.operators import Operator
from penstock.runtime.plan import Chain, Edge
from penstock.runtime.rows import Barrier, Buffer, channel_of, edge_of
from penstock.runtime.watermarks import GREATEST, LEAST, Valve


class ChannelTime(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    watermark: int
    active_at: int
    """Processing time of the last epoch with records on this channel."""
    idle: bool = False


class Standing(NamedTuple):
    """Event-time progress of one subtask of an operator at the last checkpoint."""

    watermark: int = LEAST
    idle: bool = False
    active_at: int | None = None
    """For operators that generate watermarks: processing time of the last epoch with records; None before the first."""


class OperatorTime(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    subtasks: list[int] = []
    """The watermark of each subtask."""
    idle: bool = False
    """Whether all subtasks were idle."""
    channels: dict[str, ChannelTime] = {}
    """For operators that generate watermarks in a source's chain."""
    ended: bool = False
    """Whether all channels have ended and there was at least one: downstream operators do not wait for this one."""
    idle_subtasks: list[bool] = []
    """Whether each subtask was idle; empty in manifests written before idleness was recorded per subtask."""
    active_at: list[int] = []
    """For operators that generate watermarks: processing time of each subtask's last epoch with records, or of the
    job's first epoch. In a source's chain a single value, until a channel is known."""
    reached: int = LEAST
    """For operators that generate watermarks: the watermark of a task that has no other input."""

    def of_subtask(self, subtask: int, parallelism: int, makes_watermarks: bool = False) -> Standing:
        """Return where a subtask starts: at its previous position, if the parallelism is unchanged.

        After a rescale, subtasks of an operator that generates watermarks start at the operator's combined watermark;
        downstream operators then wait for each of them. Subtasks of other operators start at the lowest watermark: it
        is unknown whose keys they received, and records that are not late must not be dropped.
        """
        if len(self.subtasks) == parallelism:
            known = len(self.idle_subtasks) == parallelism
            return Standing(
                self.subtasks[subtask],
                self.idle_subtasks[subtask] if known else self.idle and not makes_watermarks,
                self.active_at[subtask] if len(self.active_at) == parallelism else None,
            )
        if not makes_watermarks:
            return Standing(min(self.subtasks, default=LEAST), self.idle)
        channels = self.channels.values()
        idle = [*self.idle_subtasks, *(channel.idle for channel in channels)]
        active_at = [*self.active_at, *(channel.active_at for channel in channels)]
        return Standing(self.furthest(), bool(idle) and all(idle), max(active_at, default=None))

    def furthest(self) -> int:
        """Return the watermark of a task that has no other input, following the rules of a Valve."""
        reached: list[int] = []
        valve = Valve(reached.append, watermark=self.reached)
        for subtask, watermark in enumerate(self.subtasks):
            valve.open(subtask, watermark, subtask < len(self.idle_subtasks) and self.idle_subtasks[subtask])
        for name, channel in self.channels.items():
            valve.open(name, channel.watermark, channel.idle)
        valve.settle()
        return valve.watermark


Times = Mapping[str, OperatorTime]
"""By operator uid."""

_NOWHERE = OperatorTime()


def after_jump(times: Times, jumped: int) -> Times:
    """Return `times` adjusted for a clock that jumped forward: skipped time does not count as idleness."""
    return {uid: _later(time, jumped) for uid, time in times.items()} if jumped else times


def _later(time: OperatorTime, jumped: int) -> OperatorTime:
    return replace(
        time,
        channels={name: replace(each, active_at=each.active_at + jumped) for name, each in time.channels.items()},
        active_at=[at + jumped for at in time.active_at],
    )


def standing(chain: Chain, place: int, subtask: int, times: Times) -> Standing:
    """Return where an operator behind an exchange starts an epoch, as seen by its task and by its consumers."""
    operator = chain.operators[place]
    own = times.get(operator.uid, _NOWHERE).of_subtask(subtask, chain.parallelism, operator.assigns_time)
    if operator.assigns_time:
        return own if operator.idle_timeout_ms is not None else own._replace(idle=False)
    if operator.parent is None:
        return own
    # Nothing separates it from its predecessor, so its watermark is at least as high.
    before = standing(chain, operator.parent, subtask, times)
    return before._replace(watermark=max(own.watermark, before.watermark))


def governor(chain: Chain, place: int | None) -> str | None:
    """Return the uid of the generator of an operator's watermarks in a source's chain, or None if it has none."""
    while place is not None:
        operator = chain.operators[place]
        if operator.assigns_time:
            return operator.uid
        place = operator.parent
    return chain.source_uid if chain.gives_time else None


def of_letters(chain: Chain, edge: Edge) -> bool:
    """Return whether an edge carries a source's dead letters, or results derived from them, without watermarks."""
    place, tag = edge.from_operator, edge.tag
    while place is not None:
        operator = chain.operators[place]
        if operator.assigns_time:
            return False
        place, tag = operator.parent, operator.parent_tag
    return tag is not None


def stand(run: ChainRun, subtask: int, times: Times, now: int) -> None:
    """Restore the event-time progress of every operator of a task. Called before anything else in the epoch."""
    for place, operator in enumerate(run.operators):
        stood = standing(run.chain, place, subtask, times)
        operator.watermark = stood.watermark
        if isinstance(operator, TimestampsOperator):
            operator.stand({"": stood.watermark}, stood.idle, now if stood.active_at is None else stood.active_at)


def stand_in_source(run: ChainRun, times: Times, now: int) -> None:
    """Like `stand`, for a source's chain: it has no subtasks, so each task resumes from the source's progress."""
    chain = run.chain
    for place, operator in enumerate(run.operators):
        uid = governor(chain, place)
        stood = times.get(uid, _NOWHERE) if uid is not None else _NOWHERE
        operator.watermark = stood.furthest()
        operator.follow = None
        if isinstance(operator, TimestampsOperator):
            operator.stand_in_source(where_channels_stood(stood))
        elif operator.shows_watermark and run.chain.pickled_source is not None:
            operator.follow = _Following(operator, stood, idle_timeout(chain, uid), now)


def where_channels_stood(stood: OperatorTime) -> dict[str, int]:
    """Return the watermark with which each channel of a source starts an epoch."""
    channels = {name: channel.watermark for name, channel in stood.channels.items()}
    # If no channel is known, the operator might have been behind an exchange: records without a split resume there.
    return channels or {"": stood.furthest()}


class _Following:
    """Tracks the watermark visible to an operator in a source's chain: over all splits, although a task reads a few.

    A new split counts from its first record on, unless it is behind the watermark already shown.
    """

    def __init__(self, operator: Operator, stood: OperatorTime, timeout_ms: int | None, now: int) -> None:
        self._operator = operator
        self._valve = Valve(self._advance, watermark=operator.watermark)
        for name, channel in stood.channels.items():
            self._valve.open(name, channel.watermark, is_idle(channel, timeout_ms, now))

    def __call__(self, watermark: int | None, split: str) -> None:
        if not self._valve.knows(split):
            self._valve.open(split)
        if watermark is None:
            self._valve.suspend(split)
        else:
            self._valve.mark(split, watermark)

    def _advance(self, watermark: int) -> None:
        self._operator.watermark = watermark


class Inflow:
    """The watermarks that reach a task in one epoch, and the task's own watermark, which is derived from them."""

    def __init__(
        self,
        run: ChainRun,
        times: Times,
        now: int,
        barriers: dict[int, Barrier],
    ) -> None:
        head = run.operators[0]
        self._advance = run.advance_of(head)
        self.valve = Valve(self._advance, self._rest, self._wake, head.watermark)
        for number in run.chain.inputs:
            edge = run.graph.edges[number]
            producer = run.graph.chains[edge.from_chain]
            if producer.source_uid is not None:
                self._open_source(edge, producer, times, now, barriers)
            else:
                assert edge.from_operator is not None
                for subtask in range(producer.parallelism):
                    stood = standing(producer, edge.from_operator, subtask, times)
                    self.valve.open(channel_of(number, subtask), stood.watermark, stood.idle)
        self.valve.settle()

    def _open_source(self, edge: Edge, producer: Chain, times: Times, now: int, barriers: dict[int, Barrier]) -> None:
        letters = of_letters(producer, edge)
        uid = None if letters else governor(producer, edge.from_operator)
        known_time = times.get(uid, _NOWHERE) if uid is not None else _NOWHERE
        stood = known_time.channels
        begins = where_channels_stood(known_time)
        timeout = idle_timeout(producer, uid)
        given = {channel: barrier for channel, barrier in barriers.items() if edge_of(channel) == edge.id}
        names = {name for barrier in given.values() for name in barrier.watermarks}
        for name in sorted(stood.keys() | names - {""}):
            known = stood.get(name)
            if known is None:
                self.valve.open((edge.id, name))
            elif name or not names:
                idle = name not in names and is_idle(known, timeout, now)
                self.valve.open((edge.id, name), known.watermark, idle)
        if "" in names:
            # Each partition with records is a separate channel for this epoch; together they are the source's channel.
            for channel, barrier in given.items():
                if "" in barrier.watermarks:
                    self.valve.open(channel, begins.get("", LEAST))
        elif not stood and not names:
            # Nothing generates watermarks here, or nothing has arrived yet: event time waits.
            silent = known_time.ended or letters or is_silent(known_time, timeout, now)
            self.valve.open((edge.id, None), begins.get("", LEAST), silent)

    def mark(self, channel: int, name: str, watermark: int, idle: bool) -> None:
        key: Hashable = (edge_of(channel), name) if name else channel
        if idle:
            self.valve.suspend(key, watermark)
        else:
            self.valve.mark(key, watermark)

    def close(self, channel: int, barrier: Barrier) -> None:
        """End a channel for this epoch, at the watermarks in its barrier."""
        for name, watermark in barrier.watermarks.items():
            self.mark(channel, name, watermark, name in barrier.idle)

    def segments(self, channel: int, buffer: Buffer, records: int) -> Iterator[tuple[int, int]]:
        """Yield runs of records between watermarks. A watermark is processed once the run before it is consumed."""
        start = 0
        for mark in buffer.marks:
            if mark.position > start:
                yield start, mark.position
                start = mark.position
            self.mark(channel, mark.channel, mark.watermark, mark.idle)
        if start < records:
            yield start, records

    def _rest(self) -> None:
        # Sent like a watermark, so it cannot overtake one; an assigner does not pass it on.
        self._advance(None, "")

    def _wake(self) -> None:
        self._advance(self.valve.watermark, "")


def idle_timeout(chain: Chain, uid: str | None) -> int | None:
    return next((operator.idle_timeout_ms for operator in chain.operators if operator.uid == uid), None)


def is_idle(channel: ChannelTime, timeout_ms: int | None, now: int) -> bool:
    return timeout_ms is not None and now - channel.active_at >= timeout_ms


def is_silent(time: OperatorTime, timeout_ms: int | None, now: int) -> bool:
    """Return whether a source without known channels has exceeded its idle timeout since the job's first epoch."""
    since = max(time.active_at, default=None)
    return timeout_ms is not None and since is not None and now - since >= timeout_ms


def reported_watermarks(run: ChainRun, reached: dict[str, int]) -> dict[str, dict[str, int]]:
    """Return the report's watermarks by uid and channel. `reached` has the source's own watermarks by split."""
    if not run.graph.timed:
        return {}
    watermarks: dict[str, dict[str, int]] = {}
    if run.chain.source_uid is not None:
        if run.chain.gives_time:
            watermarks[run.chain.source_uid] = reached
        for operator in run.operators:
            if isinstance(operator, TimestampsOperator):
                watermarks[operator.uid] = operator.channels
        return watermarks
    return {operator.uid: {"": operator.watermark} for operator in run.operators}


def idle_operators(run: ChainRun, inflow: Inflow | None) -> list[str]:
    """Return the uids of operators that are idle at the end of the epoch, for the report."""
    idle = inflow is not None and inflow.valve.idle
    if run.chain.source_uid is not None:
        return []
    makers = {operator.uid: operator.idle for operator in run.operators if isinstance(operator, TimestampsOperator)}
    governors = [governor(run.chain, place) for place in range(len(run.operators))]
    return [
        operator.uid
        for operator, maker in zip(run.operators, governors, strict=True)
        if (idle if maker is None else makers[maker])
    ]


def active_operators(run: ChainRun) -> list[str]:
    """Return the uids of operators that generate watermarks and had records in the epoch, for the report."""
    if run.chain.source_uid is not None:
        return []
    return [each.uid for each in run.operators if isinstance(each, TimestampsOperator) and each.channels]


def shown_watermarks(run: ChainRun) -> dict[str, int]:
    """Return the watermarks shown by operators of a source's chain, by uid of their generator, for the report."""
    shown = dict[str, int]()
    for place, operator in enumerate(run.operators):
        maker = governor(run.chain, place)
        if operator.follow is not None and maker is not None:
            shown[maker] = max(operator.watermark, shown.get(maker, LEAST))
    return {uid: watermark for uid, watermark in shown.items() if watermark < GREATEST}
