"""The operator that assigns event-time timestamps to records and emits watermarks."""

from __future__ import annotations

from typing import Any

from penstock.common.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.moment import WrongTimestamp
from penstock.runtime.operators import Emit, EpochInfo, Operator, describe, method_of
from penstock.runtime.watermarks import GREATEST, LEAST


class TimestampsOperator(Operator):
    """Assigns each record its timestamp, then advances the watermark of the channel that the record arrived on.

    By default a watermark follows the record that advanced it, so watermarks depend on the records alone and not on
    epoch boundaries. Upstream watermarks are ignored, except the final one.

    In a source's chain, the channels are the splits. Downstream operators detect silent splits themselves, because a
    silent source might have no task. Behind an exchange, a subtask is a single channel with an empty name.
    """

    kind = "Timestamps/Watermarks"
    reads_only = True

    def __init__(self, strategy: WatermarkStrategy) -> None:
        super().__init__(strategy.timestamp_assigner)
        self.strategy = strategy
        self.periodic = False
        """Whether watermarks follow at the end of the epoch, not right behind each record."""
        self.channels: dict[str, int] = {}
        """The watermark of every channel that had records in this epoch; GREATEST for one that has ended."""
        self.idle = False
        """Behind an exchange: whether no record arrived within the strategy's idle timeout."""
        self._in_source = False
        self._stood: dict[str, int] = {}
        self._active_at = 0

    def emit_at_epoch_ends(self, periodic: bool) -> None:
        """Set whether watermarks follow at the end of each epoch. Called while the program is built."""
        self.periodic = periodic

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        self.extract = None if self.function is None else method_of(self.function, "extract_timestamp")

    def stand(self, watermarks: dict[str, int], idle: bool, active_at: int) -> None:
        """Resume from the previous epoch's position, behind an exchange. Called before each epoch."""
        self._stood, self.idle, self._active_at = watermarks, idle, active_at

    def stand_in_source(self, watermarks: dict[str, int]) -> None:
        """Resume from the watermarks of a source's channels. Called before each epoch."""
        self._in_source = True
        self._stood = watermarks

    def begin_epoch(self, epoch: EpochInfo) -> None:
        self.channels = {}
        self._generators: dict[str, WatermarkGenerator] = {}
        self._latest: dict[str, int] = {}
        """If periodic: the watermark that each channel reaches at the end of the epoch."""
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
                    if not self.periodic:
                        self._reach(channel, watermark)
                    elif watermark > self._latest.get(channel, LEAST):
                        self._latest[channel] = watermark
            elif self.strategy.generator is not None:
                self._generators[channel].on_event(value, timestamp, _Output(self, channel))

    def _begin(self, channel: str) -> None:
        """Register a channel at its first record in this epoch."""
        watermark = self.channels[channel] = self._stood.get(channel, LEAST)
        if self.strategy.generator is not None:
            self._generators[channel] = self.strategy.generator()
        if self._in_source or self.idle:
            # Announce the channel downstream even if its watermark never advances, or end its idleness.
            self.idle = False
            self.mark(watermark, channel)

    def _reach(self, channel: str, watermark: int) -> None:
        if self.batch:
            # A batch only has the final watermark: no reader waits for early results, and no record can be late.
            return
        self.channels[channel] = watermark
        if not channel:
            self.watermark = watermark
        self.mark(watermark, channel)

    def end_epoch(self) -> None:
        for channel, watermark in self._latest.items():
            if self.channels[channel] < watermark:
                self._reach(channel, watermark)
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
            # In the report, this watermark marks a split that has ended.
            self.channels[channel] = GREATEST

    def _wrong(self, timestamp: Any) -> WrongTimestamp:
        return WrongTimestamp(
            f"{describe(self.function)} returned {timestamp!r} as the timestamp of a record; a timestamp must be an "
            f"int, in milliseconds{', that fits into 64 bits' if type(timestamp) is int else ''}.",
            fix=(
                "Convert it to milliseconds since 1970-01-01."
                if type(timestamp) is int
                else "Convert it with int(...); for a datetime d, return int(d.timestamp() * 1000)."
            ),
            locations=(self.location,),
        )


class _Output:
    """The output passed to the user's watermark generators."""

    def __init__(self, operator: TimestampsOperator, channel: str) -> None:
        self._operator = operator
        self._channel = channel

    def emit_watermark(self, watermark: Any) -> None:
        """Emit a Watermark, or a time in milliseconds. Watermarks that do not advance the current one are ignored."""
        time = getattr(watermark, "timestamp", watermark)
        if type(time) is not int:
            raise PenstockError(f"A watermark must be an int, in milliseconds, not {time!r}.")
        # The greatest timestamp is reserved for the end of the input.
        time = min(time, GREATEST - 1)
        if time > self._operator.channels[self._channel]:
            self._operator._reach(self._channel, time)

    def mark_idle(self) -> None:
        """Accepted without effect: idleness is configured with `with_idleness`."""
