"""A task: one chain and subtask. It reads an epoch's rows, runs the chain, and acknowledges with a report."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.common.wall_clock import now_ms
from penstock.runtime.chain import ChainRun, next_target
from penstock.runtime.checkpointed import Restored
from penstock.runtime.event_time import (
    Inflow,
    OperatorTime,
    active_operators,
    idle_operators,
    reported_watermarks,
    shown_watermarks,
    stand,
    stand_in_source,
    where_channels_stood,
)
from penstock.runtime.exchange import Exchange, Records
from penstock.runtime.failures import describe_failure, party_of
from penstock.runtime.inbox import Inbox, UpstreamFailed
from penstock.runtime.key_sample import KeySample
from penstock.runtime.metrics import TaskMetrics, encode_metrics
from penstock.runtime.moment import OfSplit
from penstock.runtime.outbox import Outbox
from penstock.runtime.report import EdgeTotals, Report, encode_report
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
from penstock.runtime.source_time import SourceTime
from penstock.runtime.task_epoch import TaskEpoch
from penstock.runtime.task_state import fit_types, restore_forms, restored, snapshot
from penstock.runtime.watermarks import GREATEST, LEAST
from penstock.state.key_groups import range_of_subtask


class Task:
    """Runs one epoch of one chain and subtask, and yields rows for the next stage or the driver."""

    def __init__(
        self,
        run: ChainRun,
        producer: int,
        caught: tuple[type[BaseException], ...] = (Exception, SystemExit),
    ) -> None:
        """`caught` has the exceptions of user code to report to the driver as failures of the operator."""
        self._run = run
        self._producer = producer
        self._caught = caught
        self._out = Outbox()
        self._exchanges: dict[int, Exchange] = {}
        self._inflow: Inflow | None = None
        self._bytes_in = 0
        self._dead_letters = 0
        self._keys = KeySample()
        self._started_at = 0
        self._align_ms = 0.0
        self._source_time = SourceTime(run)
        self.failed = False

    def over_rows(self, epoch: TaskEpoch, rows: Iterable[ExchangeRow]) -> Iterator[ExchangeRow]:
        """Run the epoch of a chain behind an exchange."""
        run = self._run
        self._started_at, began = now_ms(), time.perf_counter()
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
            self._bytes_in = inbox.bytes
            try:
                inbox.align()
            except UpstreamFailed:
                yield from self._give_up(epoch)
                return
            self._align_ms = (time.perf_counter() - began) * 1000
            target = run.chain.first_target + self._producer
            read = self._read_timed if run.graph.timed else self._read
            yield from self._run_epoch(
                epoch,
                lambda roots: read(epoch, inbox, roots),
                lambda: inbox.totals(route_to(run.level, target)),
            )
        finally:
            inbox.close()

    def over_records(self, epoch: TaskEpoch, batches: Iterable[Records | OfSplit]) -> Iterator[ExchangeRow]:
        """Run the epoch of a source's chain, whose records come from Spark in batches."""
        run = self._run
        moment = run.moment
        self._started_at = now_ms()

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
                    self._source_time.feed(records, roots, marks)
                else:
                    for root in roots:
                        root(records)
                letters: Sequence[Any] = ()
                if type(batch) is OfSplit:
                    letters = batch.letters
                    self._dead_letters += len(letters)
                    for letter in letters:
                        moment.timestamp = None
                        run.letters(letter)
                    if batch.ended:
                        self._source_time.end_split(marks, ends)
                yield len(records) + len(letters)

        yield from self._run_epoch(epoch, feed, list)

    def _read_timed(self, epoch: TaskEpoch, inbox: Inbox, roots: list[Callable[[Records], None]]) -> Iterator[int]:
        """Like `_read`, with the watermarks at their positions between the records."""
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
            if event.keys is not None:
                self._keys.add(event.keys)
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
                self._keys.add(buffer.keys)
            elif run.port(channel):
                for value in values:
                    run.operators[0].process_second(value)
            else:
                for root in roots:
                    root(values)
            inbox.count(channel, len(values))
            yield len(values)

    def prepare(self, epoch: TaskEpoch) -> Iterator[ExchangeRow]:
        """Open the chain with its state in the last checkpoint, without running the epoch. Yields any failure."""
        try:
            self.open(epoch)
            self._run.prepared_for = epoch.lineage, epoch.number
        except self._caught as error:  # as in `_run_epoch`
            self._tell_place(epoch, 0)
            yield self._failure(error)

    def open(self, epoch: TaskEpoch) -> bool:
        """Open the chain, and return whether it already holds its state in the last checkpoint.

        If it does not, functions with operator state are replaced by new ones, unless they were just prepared.

        Raises:
            StateTypeChanged: Stored values of a state cannot be converted to its declared type.
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
        received: Callable[[], list[EdgeTotals]],
    ) -> Iterator[ExchangeRow]:
        run, out = self._run, self._out
        replicas = None
        records = 0
        exchanges = self._exchanges = run.exchanges(self._producer, out)
        run.moment.begin_epoch(epoch.timestamp)
        try:
            stands = self.open(epoch)
            roots = run.connect(exchanges)
            if run.overlay is not None:
                uid = run.chain.operators[0].uid
                replicas = epoch.state.replicas(uid)
                groups = range_of_subtask(self._producer, run.chain.parallelism, run.chain.max_parallelism)
                least, limit = epoch.state.timers(uid), epoch.state.overlay_bytes
                run.overlay.begin(epoch.number, replicas, least, groups, limit, epoch.state.blocks[uid])
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
            # The remaining work does not belong to a record.
            run.moment.timestamp = None
            # Timers that this epoch's records set and that are already due.
            run.tick()
            for operator in run.operators:
                operator.end_epoch()
            if epoch.ends_input:
                for mark in run.roots(exchanges):
                    mark(GREATEST, "")
            if run.overlay is not None:
                run.overlay.processed(records)
            sent = [exchange.close(epoch.number, False) for exchange in exchanges.values()]
            epoch.probe("processed")
            totals = received()
            measured = self._measure(epoch, records, exchanges)
            processed = time.perf_counter()
            reports = snapshot(run, epoch)
            snapshot_ms = (time.perf_counter() - processed) * 1000
        except GeneratorExit:
            raise
        except self._caught as error:  # user code can raise anything; the driver receives it as a row
            out.clear()
            self._tell_place(epoch, records)
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
            received=totals,
            operators=reports,
            watermarks=reported_watermarks(run, self._source_time.reached),
            idle=idle_operators(run, self._inflow),
            active=active_operators(run),
            shown=shown_watermarks(run),
        )
        busy_ms = (time.perf_counter() - began) * 1000
        measured = replace(
            measured,
            acknowledged_at=now_ms(),
            busy_ms=busy_ms,
            started_at=self._started_at,
            snapshot_ms=snapshot_ms,
            align_ms=round(self._align_ms),
            upload_ms=round(epoch.state.upload_ms) if run.stateful else 0,
        )
        epoch.metrics(encode_metrics(measured))
        yield self._to_driver(REPORT, encode_report(report))
        epoch.probe("reported")

    def _stand(self, epoch: TaskEpoch) -> None:
        """Resume event time from the last checkpoint."""
        run, times = self._run, epoch.times()
        if run.chain.source_uid is None:
            stand(run, self._producer, times, epoch.timestamp)
            return
        stand_in_source(run, times, epoch.timestamp)
        if run.chain.gives_time:
            self._source_time.begins = where_channels_stood(times.get(run.chain.source_uid, OperatorTime()))

    def _measure(self, epoch: TaskEpoch, records: int, exchanges: dict[int, Exchange]) -> TaskMetrics:
        run = self._run
        return TaskMetrics(
            chain=run.chain.id,
            subtask=self._producer,
            epoch=epoch.number,
            records_in=records,
            sent=[exchange.measure() for exchange in exchanges.values()],
            operators=[measured for registry in run.metrics if (measured := registry.measure()) is not None],
            bytes_in=self._bytes_in,
            place=epoch.place,
            dead_letters=self._dead_letters,
            heavy_keys=self._keys.heaviest(run.chain.max_parallelism),
        )

    def _tell_place(self, epoch: TaskEpoch, records: int) -> None:
        """Tell the driver where a task failed. The row of its failure must not depend on the place."""
        measured = TaskMetrics(
            chain=self._run.chain.id,
            subtask=self._producer,
            epoch=epoch.number,
            records_in=records,
            sent=[],
            operators=[],
            place=epoch.place,
        )
        epoch.metrics(encode_metrics(measured))

    def _restored(self, epoch: TaskEpoch, uid: str) -> Restored:
        return restored(self._run.chain, self._producer, uid, epoch.number - 1, epoch.state.history)

    def _give_up(self, epoch: TaskEpoch) -> Iterator[ExchangeRow]:
        """Close every channel as failed: downstream tasks then neither wait for nor use this task's output."""
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
