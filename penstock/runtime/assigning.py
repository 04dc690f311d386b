"""Timestamps and watermarks: the operator that gives records their event time."""

from __future__ import annotations

from typing import Any

from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.moment import WrongTimestamp
from penstock.runtime.operators import Emit, EpochInfo, Operator, describe, method_of
from penstock.runtime.watermarks import GREATEST, LEAST


class TimestampsOperator(Operator):
    """Gives each record its timestamp, then says how far the channel it came on has got.

    A watermark follows the record that moved it, so where it stands depends on the records alone and not on where
    epochs are cut. Watermarks that come from before it count for nothing, but for the last.

    In a source's chain its channels are the splits, and who reads from it finds out by itself which of them are silent:
    a silent source may have no task. Behind an exchange a subtask is one channel, with the empty name.
    """

    kind = "Timestamps/Watermarks"
    reads_only = True

    def __init__(self, strategy: WatermarkStrategy) -> None:
        super().__init__(strategy.timestamp_assigner)
        self.strategy = strategy
        self.channels: dict[str, int] = {}
        """The watermark of every channel that had records in this epoch; GREATEST for one that has ended."""
        self.idle = False
        """Behind an exchange, whether it had no records for as long as its strategy says."""
        self._in_source = False
        self._stood: dict[str, int] = {}
        self._active_at = 0

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        self.extract = None if self.function is None else method_of(self.function, "extract_timestamp")

    def stand(self, watermarks: dict[str, int], idle: bool, active_at: int) -> None:
        """Go on from where it stood, behind an exchange; before each epoch."""
        self._stood, self.idle, self._active_at = watermarks, idle, active_at

    def stand_in_source(self, watermarks: dict[str, int]) -> None:
        """Go on from where the channels of a source stood; before each epoch."""
        self._in_source = True
        self._stood = watermarks

    def begin_epoch(self, epoch: EpochInfo) -> None:
        self.channels = {}
        self._generators: dict[str, WatermarkGenerator] = {}
        self._clock = epoch.timestamp

    # Hot path: about 0.5 µs per record around the user's assigner.
    def process(self, value: Any) -> None:
        moment = self.moment
        before = timestamp = moment.timestamp
        if self.extract is not None:
            timestamp = self.extract(value, LEAST if before is None else before)
            if type(timestamp) is not int or not LEAST <= timestamp <= GREATEST:
                raise self._wrong(timestamp)
            moment.timestamp = timestamp
        channel = moment.channel
        if channel not in self.channels:
            self._begin(channel)
        self.emit(value)
        moment.timestamp = before
        if timestamp is not None:
            delay = self.strategy.max_out_of_orderness_ms
            if delay is not None:
                watermark = timestamp - delay - 1
                if watermark > self.channels[channel]:
                    self._reach(channel, watermark)
            elif self.strategy.generator is not None:
                self._generators[channel].on_event(value, timestamp, _Output(self, channel))

    def _begin(self, channel: str) -> None:
        """The first record of a channel in this epoch."""
        watermark = self.channels[channel] = self._stood.get(channel, LEAST)
        if self.strategy.generator is not None:
            self._generators[channel] = self.strategy.generator()
        if self._in_source or self.idle:
            # So that those behind know of the channel, even if it never gets anywhere, or that it is idle no longer.
            self.idle = False
            self.mark(watermark, channel)

    def _reach(self, channel: str, watermark: int) -> None:
        if self.batch:
            # A batch has no watermark but the last: no reader waits for results, and no record comes late.
            return
        self.channels[channel] = watermark
        if not channel:
            self.watermark = watermark
        self.mark(watermark, channel)

    def end_epoch(self) -> None:
        for channel, generator in self._generators.items():
            generator.on_periodic_emit(_Output(self, channel))
        timeout = self.strategy.idle_timeout_ms
        if timeout is None or self._in_source or self.channels or self.idle:
            return
        if self._clock - self._active_at >= timeout:
            self.idle = True
            self.mark(None, "")

    def advance(self, watermark: int | None, channel: str = "") -> None:
        if watermark == GREATEST:
            super().advance(watermark, channel)
        elif watermark is None and self._in_source and (channel in self.channels or channel in self._stood):
            if channel not in self.channels:
                # Its last record was in an earlier epoch.
                self._begin(channel)
            super().advance(None, channel)
            # Of a split that has come to its end; in the report that is what this watermark means.
            self.channels[channel] = GREATEST

    def _wrong(self, timestamp: Any) -> WrongTimestamp:
        return WrongTimestamp(
            f"{describe(self.function)} gave {timestamp!r} as the timestamp of a record; it must be a whole number of "
            f"milliseconds{' that 64 bits hold' if type(timestamp) is int else ''}.",
            fix=(
                "Convert it to milliseconds since 1970."
                if type(timestamp) is int
                else "Write int(...) around it; a datetime d is int(d.timestamp() * 1000)."
            ),
            locations=(self.location,),
        )


class _Output:
    """Given to the user's watermark generators."""

    def __init__(self, operator: TimestampsOperator, channel: str) -> None:
        self._operator = operator
        self._channel = channel

    def emit_watermark(self, watermark: Any) -> None:
        """A Watermark, or its time in milliseconds; one that is not ahead of the last is passed over."""
        time = getattr(watermark, "timestamp", watermark)
        if type(time) is not int:
            raise PenstockError(f"A watermark is a whole number of milliseconds, not {time!r}.")
        # The greatest one is for the end of the input.
        time = min(time, GREATEST - 1)
        if time > self._operator.channels[self._channel]:
            self._operator._reach(self._channel, time)

    def mark_idle(self) -> None:
        """Taken, and without effect: idleness is told by `with_idleness`."""
