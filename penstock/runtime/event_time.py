"""Where event time stood at the last checkpoint, and how a task goes on from there.

The manifest holds for every operator where its subtasks stood, and for every operator that makes watermarks in a
source's chain where its channels stood: the splits of the source, or one channel without a name where Spark's
partitions, which have no identity, are all there is. So silence never depends on a row arriving, and event time never
goes back after a recovery.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

import msgspec

from penstock.runtime.chain import ChainRun
from penstock.runtime.exchange import Exchange
from penstock.runtime.plan import Chain, Edge
from penstock.runtime.rows import Barrier, Buffer
from penstock.runtime.watermarks import LEAST, Valve


class ChannelTime(msgspec.Struct, array_like=True, frozen=True):
    watermark: int
    active_at: int
    """The clock of the last epoch that had records of it."""
    idle: bool = False


class OperatorTime(msgspec.Struct, array_like=True, frozen=True):
    subtasks: list[int] = []
    """The watermark of each."""
    idle: bool = False
    """Whether all its inputs were."""
    channels: dict[str, ChannelTime] = {}
    ended: bool = False
    """Whether there were channels, and all of them have come to their ends: nobody need wait for it."""

    def of_subtask(self, subtask: int, parallelism: int) -> int:
        """Its own watermark; after a rescale the least of all, for nobody knows whose keys it has."""
        if len(self.subtasks) == parallelism:
            return self.subtasks[subtask]
        return min(self.subtasks, default=LEAST)


Times = Mapping[str, OperatorTime]
"""By operator uid."""

_NOWHERE = OperatorTime()


def governor(chain: Chain, place: int | None) -> str | None:
    """The uid of who makes the watermarks that an operator of a source's chain passes on; None where nobody does."""
    while place is not None:
        operator = chain.operators[place]
        if operator.assigns_time:
            return operator.uid
        place = operator.parent
    return chain.source_uid if chain.gives_time else None


def of_letters(chain: Chain, edge: Edge) -> bool:
    """Whether an edge carries a source's dead letters, or what was made of them: nobody makes watermarks there."""
    place, tag = edge.from_operator, edge.tag
    while place is not None:
        operator = chain.operators[place]
        if operator.assigns_time:
            return False
        place, tag = operator.parent, operator.parent_tag
    return tag is not None


def stand(run: ChainRun, subtask: int, times: Times) -> None:
    """Let every operator of a task stand where it stood; before anything of the epoch runs, whatever ran here last."""
    for operator in run.operators:
        operator.watermark = times.get(operator.uid, _NOWHERE).of_subtask(subtask, run.chain.parallelism)


class Inflow:
    """The watermarks that reach a task in one epoch, and the task's own, which follows from them."""

    def __init__(
        self,
        run: ChainRun,
        times: Times,
        now: int,
        barriers: dict[int, Barrier],
        exchanges: dict[int, Exchange],
    ) -> None:
        self._run = run
        self._exchanges = exchanges
        head = run.operators[0]
        self.valve = Valve(head.advance, self._rest, self._wake, head.watermark)
        for number in run.chain.inputs:
            edge = run.graph.edges[number]
            producer = run.graph.chains[edge.from_chain]
            if producer.source_uid is not None:
                self._open_source(edge, producer, times, now, barriers)
            else:
                assert edge.from_operator is not None
                stood = times.get(producer.operators[edge.from_operator].uid, _NOWHERE)
                for place in range(producer.parallelism):
                    watermark = stood.of_subtask(place, producer.parallelism)
                    self.valve.open(number << 32 | place, watermark, stood.idle)
        self.valve.settle()

    def _open_source(self, edge: Edge, producer: Chain, times: Times, now: int, barriers: dict[int, Barrier]) -> None:
        letters = of_letters(producer, edge)
        uid = None if letters else governor(producer, edge.from_operator)
        known_time = times.get(uid, _NOWHERE) if uid is not None else _NOWHERE
        stood = known_time.channels
        timeout = idle_timeout(producer, uid)
        given = {channel: barrier for channel, barrier in barriers.items() if channel >> 32 == edge.id}
        names = {name for barrier in given.values() for name in barrier.watermarks}
        for name in sorted(stood.keys() | names - {""}):
            known = stood.get(name)
            if known is None:
                self.valve.open((edge.id, name))
            elif name or not names:
                idle = name not in names and is_idle(known, timeout, now)
                self.valve.open((edge.id, name), known.watermark, idle)
        if "" in names:
            # Each part that had records is a channel of its own for this epoch; together they are the source's one.
            known = stood.get("")
            for channel, barrier in given.items():
                if "" in barrier.watermarks:
                    self.valve.open(channel, LEAST if known is None else known.watermark)
        elif not stood and not names:
            # Nobody makes watermarks here, or nothing came yet: event time waits.
            self.valve.open((edge.id, None), idle=known_time.ended or letters)

    def mark(self, channel: int, name: str, watermark: int, idle: bool) -> None:
        key: Hashable = (channel >> 32, name) if name else channel
        self.valve.mark(key, watermark)
        if idle:
            self.valve.suspend(key)

    def close(self, channel: int, barrier: Barrier) -> None:
        """A channel has ended for this epoch, where its barrier says."""
        for name, watermark in barrier.watermarks.items():
            self.mark(channel, name, watermark, name in barrier.idle)

    def segments(self, channel: int, buffer: Buffer, records: int) -> Iterator[tuple[int, int]]:
        """The runs of records between which watermarks stand; when one is given, those before it have been passed."""
        start = 0
        for mark in buffer.marks:
            if mark.position > start:
                yield start, mark.position
                start = mark.position
            self.mark(channel, mark.channel, mark.watermark, mark.idle)
        if start < records:
            yield start, records

    def _rest(self) -> None:
        for exchange in self._passing():
            exchange.mark(None, "")

    def _wake(self) -> None:
        for exchange in self._passing():
            exchange.mark(self.valve.watermark, "")

    def _passing(self) -> list[Exchange]:
        """The edges on which this task's own watermark goes on; behind an assigner it does not."""
        chain = self._run.chain
        edges = [self._run.graph.edges[number] for number in chain.outputs]
        return [self._exchanges[edge.id] for edge in edges if governor(chain, edge.from_operator) is None]


def idle_timeout(chain: Chain, uid: str | None) -> int | None:
    return next((operator.idle_timeout_ms for operator in chain.operators if operator.uid == uid), None)


def is_idle(channel: ChannelTime, timeout_ms: int | None, now: int) -> bool:
    return timeout_ms is not None and now - channel.active_at >= timeout_ms
