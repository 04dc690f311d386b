"""How the watermarks of many channels become that of one task: the smallest of those that count."""

from __future__ import annotations

from collections.abc import Callable, Hashable

LEAST = -(2**63)
"""Before any watermark."""
GREATEST = 2**63 - 1
"""The watermark of ended input: nothing can be late any more."""


class _Channel:
    __slots__ = ("aligned", "idle", "watermark")

    def __init__(self, watermark: int) -> None:
        self.watermark = watermark
        self.idle = False
        self.aligned = True
        """Whether it counts. A channel that wakes up behind the task's watermark does not, until it has caught up."""


class Valve:
    """The watermark of a task over its channels. It never goes back.

    `advance(watermark)` is told of every step, `rest()` when the task has become idle because all channels are, and
    `wake()` when it is so no longer.
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
        opened = self._channels[channel] = _Channel(watermark)
        opened.idle = idle
        opened.aligned = not idle and watermark >= self.watermark

    def settle(self) -> None:
        """All channels are there: take the step that they allow together."""
        if self._channels and all(channel.idle for channel in self._channels.values()):
            self._rise(max(channel.watermark for channel in self._channels.values()))
            self._go_idle()
        else:
            self._step()

    def mark(self, channel: Hashable, watermark: int) -> None:
        moved = self._channels[channel]
        if moved.idle:
            self.activate(channel)
        if watermark <= moved.watermark:
            return
        before, moved.watermark = moved.watermark, watermark
        if not moved.aligned and watermark >= self.watermark:
            moved.aligned = True
        # Only the channel that was furthest behind can let the task go on.
        if before <= self.watermark or len(self._channels) == 1:
            self._step()

    def activate(self, channel: Hashable) -> None:
        """Records come again."""
        moved = self._channels[channel]
        if not moved.idle:
            return
        moved.idle = False
        moved.aligned = moved.watermark >= self.watermark
        if self.idle:
            self.idle = False
            self._wake()

    def suspend(self, channel: Hashable) -> None:
        """No records for long: the others need not wait for it."""
        moved = self._channels[channel]
        if moved.idle:
            return
        moved.idle = True
        moved.aligned = False
        if all(each.idle for each in self._channels.values()):
            # Nobody holds anything back now: as far as the furthest had come.
            self._rise(max(each.watermark for each in self._channels.values()))
            self._go_idle()
        else:
            self._step()

    def _go_idle(self) -> None:
        if not self.idle:
            self.idle = True
            self._rest()

    def _step(self) -> None:
        aligned = [channel.watermark for channel in self._channels.values() if channel.aligned]
        if aligned:
            self._rise(min(aligned))

    def _rise(self, watermark: int) -> None:
        if watermark > self.watermark:
            self.watermark = watermark
            self._advance(watermark)
