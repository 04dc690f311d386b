"""A task: one chain and subtask. It reads an epoch's rows, runs the chain, and acknowledges with a report."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from penstock.common.watermark_strategy import Watermark
from penstock.runtime.assigning import TimestampsOperator
from penstock.runtime.chain import ChainRun, Reported, next_target
from penstock.runtime.checkpointed import Restored
from penstock.runtime.event_time import (
    Inflow,
    OperatorTime,
    Times,
    after_jump,
    governor,
    stand,
    stand_in_source,
    where_channels_stood,
)
from penstock.runtime.exchange import Exchange, Records
from penstock.runtime.failures import describe_failure, party_of
from penstock.runtime.inbox import Inbox, UpstreamFailed
from penstock.runtime.metrics import TaskMetrics, encode_metrics
from penstock.runtime.moment import OfSplit, Timestamped
from penstock.runtime.operators import EpochInfo, Mark
from penstock.runtime.outbox import Outbox
from penstock.runtime.plan import Chain
from penstock.runtime.report import ChannelCount, DeltaHandle, OperatorReport, Report, encode_report
from penstock.runtime.rows import (
    BARRIER,
    DATA,
    END_LEVEL,
    FAILURE,
    REPORT,
    Barrier,
    Buffer,
    ExchangeRow,
    channel_of,
    encode_struct,
    route_level,
    route_target,
    route_to,
)
from penstock.runtime.watermarks import GREATEST, LEAST
from penstock.state.access import StateAccess
from penstock.state.key_groups import range_of_subtask
from penstock.state.overlay import StoredTypes
from penstock.state.replica import StateHistory
from penstock.state.shares import Share
from penstock.state.stored_types import StoredType
from penstock.state.ttl import Form


@dataclass
class TaskEpoch:
    """What changes for a task from epoch to epoch."""

    number: int
    ends_input: bool
    state: StateAccess
    lineage: str = ""
    timestamp: int = 0
    """Processing time, in milliseconds: the same for every task and attempt of the epoch."""
    probe: Callable[[str], None] = lambda point: None
    """Told where the task stands; crash tests die there."""
    metrics: Callable[[bytes], None] = lambda measured: None
    """Given the task's TaskMetrics, just before its report. May be called again by a retried task."""
    single_epoch: bool = False
    """Whether it is the whole job: its state ends with it."""
    token: str = ""
    """Of the driver that runs the epoch."""
    jumped: int = 0
    """By how many milliseconds the clock jumped forward since the epoch before; no channel was silent for them."""

    def times(self) -> Times:
        """Where event time stood at the last checkpoint, by the clock of this epoch."""
        return after_jump(self.state.history.times(), self.jumped)

    @property
    def info(self) -> EpochInfo:
        state = self.state
        return EpochInfo(self.lineage, self.number, self.timestamp, state.storage, state.inline_bytes, self.token)


class Task:
    """Runs one epoch of one chain and subtask. The rows it yields go to the next stage, or to the driver."""

    def __init__(
        self,
        run: ChainRun,
        producer: int,
        caught: tuple[type[BaseException], ...] = (Exception, SystemExit),
    ) -> None:
        """`caught`: what user code can raise and the driver is to hear of as a failure of its operator."""
        self._run = run
        self._producer = producer
        self._caught = caught
        self._out = Outbox()
        self._exchanges: dict[int, Exchange] = {}
        self._inflow: Inflow | None = None
        self._reached: dict[str, int] = {}
        """By split, the watermarks that the source itself gave."""
        self._begins: dict[str, int] = {}
        """By split, where these stood at the last checkpoint."""
        self.failed = False

    def over_rows(self, epoch: TaskEpoch, rows: Iterable[ExchangeRow]) -> Iterator[ExchangeRow]:
        """For a chain behind an exchange."""
        run = self._run
        inbox = Inbox(epoch.number, run.expected_channels())
        try:
            for row in rows:
                if route_level(row.route) != run.level:
                    target = next_target(run.graph, run.level, route_level(row.route), route_target(row.route))
                    yield row._replace(target=target)
                elif row.kind == DATA:
                    inbox.add_buffer(row)
                elif row.kind == BARRIER:
                    inbox.add_barrier(row)
            epoch.probe("received")
            try:
                inbox.align()
            except UpstreamFailed:
                yield from self._give_up(epoch)
                return
            target = run.chain.first_target + self._producer
            read = self._read_timed if run.graph.timed else self._read
            yield from self._run_epoch(
                epoch,
                lambda roots: read(epoch, inbox, roots),
                lambda: inbox.counts(route_to(run.level, target)),
            )
        finally:
            inbox.close()

    def over_records(self, epoch: TaskEpoch, batches: Iterable[Records | OfSplit]) -> Iterator[ExchangeRow]:
        """For a source's chain: records come from Spark, batch by batch."""
        run = self._run
        moment = run.moment

        def feed(roots: list[Callable[[Records], None]]) -> Iterator[int]:
            moment.channel = ""
            marks, ends = run.roots(self._exchanges, letters=False), run.roots(self._exchanges)
            for batch in batches:
                moment.timestamp = None
                records: Records
                if type(batch) is OfSplit:
                    moment.channel, records = batch.split, batch.records
                else:
                    records = batch  # type: ignore[assignment]
                if run.chain.gives_time:
                    self._feed_with_time(records, roots, marks)
                else:
                    for root in roots:
                        root(records)
                letters: Sequence[Any] = ()
                if type(batch) is OfSplit:
                    letters = batch.letters
                    for letter in letters:
                        moment.timestamp = None
                        run.letters(letter)
                    if batch.ended:
                        self._end_split(marks, ends)
                yield len(records) + len(letters)

        yield from self._run_epoch(epoch, feed, list)

    def _feed_with_time(self, records: Records, roots: list[Callable[[Records], None]], marks: list[Mark]) -> None:
        """Of a source whose records may come with timestamps, and with watermarks between them."""
        moment = self._run.moment
        channel = moment.channel
        for record in records:
            if channel not in self._reached:
                self._begin_split(channel, marks)
            if type(record) is Watermark:
                # The greatest one is for the end of the input, which is not the source's to say.
                watermark = min(record.timestamp, GREATEST - 1)
                if watermark > self._reached[channel] and not self._run.graph.batch:
                    self._reached[channel] = watermark
                    for mark in marks:
                        mark(watermark, channel)
                continue
            timed = type(record) is Timestamped
            moment.timestamp = record.timestamp if timed else None
            for root in roots:
                root([record.value if timed else record])

    def _begin_split(self, channel: str, marks: list[Mark]) -> None:
        begins = self._reached[channel] = self._begins.get(channel, LEAST)
        for mark in marks:
            mark(begins, channel)

    def _end_split(self, marks: list[Mark], ends: list[Mark]) -> None:
        channel = self._run.moment.channel
        if channel not in self._reached and channel in self._begins:
            # Its last record was in an earlier epoch.
            self._begin_split(channel, marks)
        if channel in self._reached:
            self._reached[channel] = GREATEST
        for end in ends:
            end(None, channel)

    def _read_timed(self, epoch: TaskEpoch, inbox: Inbox, roots: list[Callable[[Records], None]]) -> Iterator[int]:
        """As `_read`, with the watermarks at their places between the records."""
        run = self._run
        times = epoch.times()
        inflow = Inflow(run, times, epoch.timestamp, inbox.barriers())
        self._inflow = inflow
        for channel, event in inbox.events():
            if isinstance(event, Barrier):
                inflow.close(channel, event)
                yield 0
                continue
            values = run.decode(channel, event.values)
            stamps = array("q")
            stamps.frombytes(event.times or b"")
            for start, end in inflow.segments(channel, event, len(values)):
                self._feed_segment(channel, event, values[start:end], stamps[start:end], start)
            if run.overlay is not None:
                run.overlay.grown(len(event.values), len(values))
            inbox.count(channel, len(values))
            yield len(values)

    def _feed_segment(self, channel: int, buffer: Buffer, values: list[Any], stamps: Sequence[int], start: int) -> None:
        run = self._run
        head, port, moment = run.operators[0], run.port(channel), run.moment
        if run.overlay is not None and buffer.keys is not None:
            keys = buffer.keys[start : start + len(values)]
            if stamps:
                head.process_timed(run.overlay, keys, values, stamps, port)
            else:
                moment.timestamp = None
                head.process_keyed(run.overlay, keys, values, port)
            return
        process = head.process_second if port else head.process
        for place, value in enumerate(values):
            moment.timestamp = stamps[place] if stamps and stamps[place] != LEAST else None
            process(value)

    def _read(self, epoch: TaskEpoch, inbox: Inbox, roots: list[Callable[[Records], None]]) -> Iterator[int]:
        run = self._run
        overlay, decode = run.overlay, run.decode
        for channel, buffer in inbox.buffers():
            values = decode(channel, buffer.values)
            if overlay is not None and buffer.keys is not None:
                run.operators[0].process_keyed(overlay, buffer.keys, values, run.port(channel))
                overlay.grown(len(buffer.values), len(values))
            elif run.port(channel):
                for value in values:
                    run.operators[0].process_second(value)
            else:
                for root in roots:
                    root(values)
            inbox.count(channel, len(values))
            yield len(values)

    def prepare(self, epoch: TaskEpoch) -> Iterator[ExchangeRow]:
        """Open the chain as an epoch does, with what the last checkpoint holds of it, and no more. Gives a failure."""
        try:
            self.open(epoch)
            self._run.prepared_for = epoch.lineage, epoch.number
        except self._caught as error:  # as in an epoch
            yield self._failure(error)

    def open(self, epoch: TaskEpoch) -> bool:
        """Whether the chain, now open, holds what the last checkpoint has of it; if not, functions are new if need be.

        Raises StateTypeChanged for a state whose stored values cannot become those of its declared type.
        """
        run = self._run
        stands = run.stateful and run.is_current(epoch.lineage, epoch.number - 1, epoch.state.history)
        new = run.prepared_for == (epoch.lineage, epoch.number)
        run.prepared_for = None
        if run.stateful and not stands and not new and any(operator.checkpointed for operator in run.operators):
            run.renew()
        for registry in run.metrics:
            registry.begin()
        if run.overlay is not None:
            restore_forms(run, epoch.state.history, epoch.timestamp)
        run.open(lambda uid: self._restored(epoch, uid))
        if run.overlay is not None:
            fit_types(run, epoch.state.history.types(run.operators[0].uid))
        return stands

    def _run_epoch(
        self,
        epoch: TaskEpoch,
        feed: Callable[[list[Callable[[Records], None]]], Iterator[int]],
        received: Callable[[], list[ChannelCount]],
    ) -> Iterator[ExchangeRow]:
        run, out = self._run, self._out
        replicas = None
        records = 0
        exchanges = self._exchanges = run.exchanges(self._producer, out)
        run.moment.processing_time = epoch.timestamp
        run.moment.timestamp = None
        try:
            stands = self.open(epoch)
            roots = run.connect(exchanges)
            if run.overlay is not None:
                replicas = epoch.state.replicas(run.chain.operators[0].uid, run.chain.max_parallelism)
                groups = range_of_subtask(self._producer, run.chain.parallelism, run.chain.max_parallelism)
                least = epoch.state.history.timers(run.chain.operators[0].uid)
                run.overlay.begin(epoch.number, replicas, least, groups, epoch.state.overlay_bytes)
            if run.graph.timed:
                self._stand(epoch)
            for operator in run.operators:
                if operator.stateful and not operator.checkpointed and not (stands and operator.keeps_state):
                    operator.restore(self._restored(epoch, operator.uid).states)
                operator.begin_epoch(epoch.info)
            run.tick()
            began = time.perf_counter()
            for count in feed(roots):
                records += count
                if out:
                    yield from out.drain()
            # What follows belongs to no record.
            run.moment.timestamp = None
            # Those that this epoch's records set for a time that has come.
            run.tick()
            for operator in run.operators:
                operator.end_epoch()
            if epoch.ends_input:
                for mark in run.roots(exchanges):
                    mark(GREATEST, "")
            if run.overlay is not None:
                run.overlay.key = None
                run.overlay.records = records
            sent = [count for exchange in exchanges.values() for count in exchange.close(epoch.number, False)]
            epoch.probe("processed")
            counts = received()
            measured = self._measure(epoch, records, exchanges)
            reports = self._snapshot(epoch)
        except GeneratorExit:
            raise
        except self._caught as error:  # user code may raise anything; it travels to the driver as a row of its own
            out.clear()
            yield self._failure(error)
            yield from self._give_up(epoch)
            return
        finally:
            if replicas is not None:
                replicas.close()
            if run.overlay is not None:
                run.overlay.release()
        epoch.probe("snapshot")
        yield from out.drain()
        report = Report(
            chain=run.chain.id,
            subtask=self._producer,
            epoch=epoch.number,
            records_in=records,
            sent=sent,
            received=counts,
            operators=reports,
            watermarks=self._watermarks(),
            idle=self._idle_operators(),
            active=self._active_operators(),
            shown=self._shown(),
        )
        busy_ms = (time.perf_counter() - began) * 1000
        epoch.metrics(encode_metrics(replace(measured, acknowledged_at=int(time.time() * 1000), busy_ms=busy_ms)))
        yield self._to_driver(REPORT, encode_report(report))
        epoch.probe("reported")

    def _stand(self, epoch: TaskEpoch) -> None:
        """Let event time go on from the last checkpoint."""
        run, times = self._run, epoch.times()
        if run.chain.source_uid is None:
            stand(run, self._producer, times, epoch.timestamp)
            return
        stand_in_source(run, times, epoch.timestamp)
        if run.chain.gives_time:
            self._begins = where_channels_stood(times.get(run.chain.source_uid, OperatorTime()))

    def _idle_operators(self) -> list[str]:
        run, idle = self._run, self._inflow is not None and self._inflow.valve.idle
        if run.chain.source_uid is not None:
            return []
        makers = {operator.uid: operator.idle for operator in run.operators if isinstance(operator, TimestampsOperator)}
        governors = [governor(run.chain, place) for place in range(len(run.operators))]
        return [
            operator.uid
            for operator, maker in zip(run.operators, governors, strict=True)
            if (idle if maker is None else makers[maker])
        ]

    def _active_operators(self) -> list[str]:
        if self._run.chain.source_uid is not None:
            return []
        operators = self._run.operators
        return [each.uid for each in operators if isinstance(each, TimestampsOperator) and each.channels]

    def _shown(self) -> dict[str, int]:
        chain, shown = self._run.chain, dict[str, int]()
        for place, operator in enumerate(self._run.operators):
            maker = governor(chain, place)
            if operator.follow is not None and maker is not None:
                shown[maker] = max(operator.watermark, shown.get(maker, LEAST))
        return {uid: watermark for uid, watermark in shown.items() if watermark < GREATEST}

    def _watermarks(self) -> dict[str, dict[str, int]]:
        run = self._run
        if not run.graph.timed:
            return {}
        watermarks: dict[str, dict[str, int]] = {}
        if run.chain.source_uid is not None:
            if run.chain.gives_time:
                watermarks[run.chain.source_uid] = self._reached
            for operator in run.operators:
                if isinstance(operator, TimestampsOperator):
                    watermarks[operator.uid] = operator.channels
            return watermarks
        return {operator.uid: {"": operator.watermark} for operator in run.operators}

    def _measure(self, epoch: TaskEpoch, records: int, exchanges: dict[int, Exchange]) -> TaskMetrics:
        run = self._run
        sent = [exchange.measure() for exchange in exchanges.values()]
        operators = [measured for registry in run.metrics if (measured := registry.measure()) is not None]
        return TaskMetrics(
            chain=run.chain.id,
            subtask=self._producer,
            epoch=epoch.number,
            records_in=records,
            sent=sent,
            operators=operators,
        )

    def _restored(self, epoch: TaskEpoch, uid: str) -> Restored:
        return restored(self._run.chain, self._producer, uid, epoch.number - 1, epoch.state.history)

    def _snapshot(self, epoch: TaskEpoch) -> list[OperatorReport]:
        run = self._run
        reports = []
        held: dict[str, dict[str, Share]] = {}
        for place, operator in enumerate(run.operators):
            deltas: list[DeltaHandle] = []
            states: dict[str, str] = {}
            timers: dict[str, dict[int, int]] = {}
            forms: dict[str, Form] = {}
            migrations: dict[str, tuple[bytes, ...]] = {}
            if place == 0 and run.overlay is not None and not epoch.single_epoch:
                types = run.overlay.types()
                states = {name: stored.schema for name, stored in types.items()}
                migrations = {name: stored.migrations for name, stored in types.items() if stored.migrations}
                forms = run.overlay.ttl.forms()
                changes = run.overlay.changes()
                if changes:
                    written = epoch.state.write_delta(epoch.number, changes, run.chain.max_parallelism)
                    deltas.append(
                        DeltaHandle(
                            name=written.name,
                            size=written.size,
                            entries=written.entries,
                            blocks=written.blocks,
                            inline=written.inline,
                        )
                    )
                timers = run.overlay.least()
            committable = operator.snapshot()
            kept: dict[str, Share] = {}
            if operator.stateful and not (epoch.single_epoch and operator.keeps_state):
                kept = held[operator.uid] = operator.operator_state(epoch.info)
            if states or deltas or kept or timers or committable is not None:
                reports.append(
                    OperatorReport(
                        uid=operator.uid,
                        states=states,
                        deltas=deltas,
                        committable=committable,
                        operator_state=kept,
                        timers=timers,
                        ttl=forms,
                        migrations=migrations,
                    )
                )
        if run.stateful:
            run.reported = Reported(epoch.lineage, epoch.number, held)
        return reports

    def _give_up(self, epoch: TaskEpoch) -> Iterator[ExchangeRow]:
        """Close every channel as failed, so that no task downstream waits for or trusts what was sent."""
        self.failed = True
        self._out.clear()
        for exchange in self._run.exchanges(self._producer, self._out).values():
            exchange.close(epoch.number, True)
        yield from self._out.drain()

    def _failure(self, error: BaseException) -> ExchangeRow:
        self.failed = True
        run = self._run
        otherwise = run.source if run.chain.source_uid is not None else party_of(run.operators[0])
        failure = describe_failure(error, run.operators, otherwise, self._producer)
        return self._to_driver(FAILURE, encode_struct(failure))

    def _to_driver(self, kind: int, payload: bytes) -> ExchangeRow:
        run = self._run
        place = self._producer + run.chain.first_target
        target = next_target(run.graph, run.level, END_LEVEL, place)
        return ExchangeRow(
            target, route_to(END_LEVEL, place), channel_of(run.chain.id, self._producer), 0, kind, payload
        )


def restored(chain: Chain, subtask: int, uid: str, checkpoint: int, history: StateHistory) -> Restored:
    """What a subtask goes on from, of an operator's own state."""
    if history.wanted is None:
        return Restored(None, {})
    return Restored(checkpoint, history.operator_state(uid, subtask, chain.parallelism, chain.max_parallelism))


def restore_forms(run: ChainRun, history: StateHistory, timestamp: int) -> None:
    """Tell the states of a chain how they are stored, before they are registered."""
    assert run.overlay is not None
    uid = run.chain.operators[0].uid
    stood = history.times().get(uid)
    watermark = LEAST if stood is None else min(stood.subtasks, default=LEAST)
    run.overlay.ttl.restore(history.schemas(uid), history.forms(uid), (timestamp, watermark))


def fit_types(run: ChainRun, stored: Mapping[str, StoredType]) -> None:
    """Let the keyed states of a chain read what is stored, or raise StateTypeChanged."""
    assert run.overlay is not None
    head = run.operators[0]
    hint = head.state_hint
    origin = f" The latter is the annotation of {hint.origin}." if hint else ""
    run.overlay.fit_types(StoredTypes(stored, f"operator '{head.name}' (uid '{head.uid}')", origin))
