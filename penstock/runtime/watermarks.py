"""Combines the watermarks of a task's channels: the smallest of the channels that count."""

from __future__ import annotations

from collections.abc import Callable, Hashable

LEAST = -(2**63)
"""Lower than any watermark."""
GREATEST = 2**63 - 1
"""The watermark at the end of the input: nothing can be late any more."""


class _Channel:
    __slots__ = ("idle", "watermark")

    def __init__(self, watermark: int, idle: bool) -> None:
        self.watermark = watermark
        self.idle = idle


class Valve:
    """The watermark of a task over its channels. It never moves backwards.

    A channel counts unless it is idle or behind the task's watermark; a channel that becomes active behind the task
    counts again once it has caught up. The task's watermark is the smallest of the channels that count. If all channels
    are idle, it is the largest of their watermarks; if the only active channels are behind, it does not move. The
    watermark is therefore a function of the positions of the channels and the task, and an epoch that starts from the
    manifest continues as if there had been no epoch boundary.

    These are the rules of Flink's StatusWatermarkValve, except for two cases in which Flink waits for the next
    watermark, possibly forever: here, a channel that becomes active ahead of the task counts immediately, and the last
    channel to become idle lets the task advance even if that channel was behind.

    `advance(watermark)` is called for every step, `rest()` when the task becomes idle because all channels are, and
    `wake()` when it becomes active again.
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
        """Add a channel at its previous position. All channels must be added before one of them moves."""
        self._channels[channel] = _Channel(watermark, idle)

    def knows(self, channel: Hashable) -> bool:
        return channel in self._channels

    def settle(self) -> None:
        """Advance as far as the channels allow, once all of them have been added."""
        self._step()

    def mark(self, channel: Hashable, watermark: int) -> None:
        """Advance an active channel to this watermark."""
        moved = self._channels[channel]
        if moved.idle:
            self.activate(channel)
        before = moved.watermark
        if watermark > before:
            moved.watermark = watermark
            # While any channel counts, the smallest of their watermarks is the task's own.
            if before <= self.watermark <= watermark:
                self._step()

    def activate(self, channel: Hashable) -> None:
        """Make a channel active: it has records again."""
        moved = self._channels[channel]
        if not moved.idle:
            return
        moved.idle = False
        if self.idle:
            self.idle = False
            self._wake()
        self._step()

    def suspend(self, channel: Hashable, watermark: int = LEAST) -> None:
        """Make a channel idle: the others do not wait for it. `watermark`: the channel's last position."""
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
