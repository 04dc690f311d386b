"""How the watermarks of many channels become that of one task: the smallest of those that count."""

from __future__ import annotations

from collections.abc import Callable, Hashable

LEAST = -(2**63)
"""Before any watermark."""
GREATEST = 2**63 - 1
"""The watermark of ended input: nothing can be late any more."""


class _Channel:
    __slots__ = ("idle", "watermark")

    def __init__(self, watermark: int, idle: bool) -> None:
        self.watermark = watermark
        self.idle = idle


class Valve:
    """The watermark of a task over its channels. It never moves backwards.

    A channel counts unless it is idle or behind the task's watermark: one that wakes up behind counts again when it has
    caught up. The task's watermark is the smallest of the channels that count. If all channels are idle, it is that of
    the channel that is furthest ahead; if the only active ones are behind, it stays. So it follows from where the
    channels and the task stand, and an epoch that begins with what the manifest holds of both goes on as if there had
    been no cut.

    These are the rules of Flink's StatusWatermarkValve, but for two cases in which Flink's waits for the next
    watermark, or for ever: here a channel that becomes active ahead of the task counts at once, and the last channel
    that becomes idle lets the task advance also if it was behind.

    `advance(watermark)` is called with every step, `rest()` when the task has become idle because all channels are, and
    `wake()` when it no longer is.
    """

    def __init__(
        self,
        advance: Callable[[int], None],
        rest: Callable[[], None] = lambda: None,
        wake: Callable[[], None] = lambda: None,
        watermark: int = LEAST,
    ) -> None:
        self.watermark = watermark
        self.idle = False
        self._advance = advance
        self._rest = rest
        self._wake = wake
        self._channels: dict[Hashable, _Channel] = {}

    def open(self, channel: Hashable, watermark: int = LEAST, idle: bool = False) -> None:
        """Add a channel as it stood. All are to be there before the first of them moves."""
        self._channels[channel] = _Channel(watermark, idle)

    def knows(self, channel: Hashable) -> bool:
        return channel in self._channels

    def settle(self) -> None:
        """All channels are there: take the step that they allow together."""
        self._step()

    def mark(self, channel: Hashable, watermark: int) -> None:
        """The channel is active, and has got this far."""
        moved = self._channels[channel]
        if moved.idle:
            self.activate(channel)
        before = moved.watermark
        if watermark > before:
            moved.watermark = watermark
            # While any channel counts, the smallest of these is the task's own watermark.
            if before <= self.watermark <= watermark:
                self._step()

    def activate(self, channel: Hashable) -> None:
        """Records come again."""
        moved = self._channels[channel]
        if not moved.idle:
            return
        moved.idle = False
        if self.idle:
            self.idle = False
            self._wake()
        self._step()

    def suspend(self, channel: Hashable, watermark: int = LEAST) -> None:
        """No records for long: the others need not wait for it. `watermark`: where the channel was when it stopped."""
        moved = self._channels[channel]
        if watermark > moved.watermark:
            self.mark(channel, watermark)
        if not moved.idle:
            moved.idle = True
            self._step()

    def _step(self) -> None:
        reached = self.watermark
        counting = [each.watermark for each in self._channels.values() if not each.idle and each.watermark >= reached]
        if counting:
            self._rise(min(counting))
        elif not self.idle and self._channels and all(each.idle for each in self._channels.values()):
            self._rise(max(each.watermark for each in self._channels.values()))
            self.idle = True
            self._rest()

    def _rise(self, watermark: int) -> None:
        if watermark > self.watermark:
            self.watermark = watermark
            self._advance(watermark)
