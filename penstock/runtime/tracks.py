"""The timestamps and watermarks of an edge: timestamps per record, watermarks between records."""

from __future__ import annotations

from array import array

from penstock.runtime.moment import Moment, WrongTimestamp
from penstock.runtime.rows import WatermarkAt
from penstock.runtime.watermarks import GREATEST, LEAST


class Tracks:
    """Collects timestamps and watermarks for one exchange and epoch.

    A watermark is sent before the next record of each target, so a target gets at most one per channel and record. The
    last ones travel in the barrier.
    """

    def __init__(self, moment: Moment, targets: int) -> None:
        self._moment = moment
        self._times = [array("q") for _ in range(targets)]
        self._marks: list[list[WatermarkAt]] = [[] for _ in range(targets)]
        self.current: dict[str, int] = {}
        """The latest watermark, by channel."""
        self.idle: set[str] = set()
        self._changed: dict[str, int] = {}
        self._version = 0
        self._seen = [0] * targets

    def mark(self, watermark: int | None, channel: str) -> None:
        if watermark == GREATEST:
            # The end of the input: each task detects it by itself, once it has read all its input.
            return
        if watermark is None:
            if channel and channel not in self.current:
                # A split that ended without a watermark is not a channel.
                return
            self.current.setdefault(channel, LEAST)
            self.idle.add(channel)
        else:
            self.current[channel] = watermark
            self.idle.discard(channel)
        self._version += 1
        self._changed[channel] = self._version

    def note(self, target: int) -> None:
        """Record the timestamp of a record that is about to be added to a target's buffer."""
        times = self._times[target]
        if self._seen[target] != self._version:
            seen = self._seen[target]
            self._marks[target] += [
                WatermarkAt(
                    position=len(times), channel=channel, watermark=self.current[channel], idle=channel in self.idle
                )
                for channel, version in self._changed.items()
                if version > seen
            ]
            self._seen[target] = self._version
        timestamp = self._moment.timestamp
        try:
            times.append(LEAST if timestamp is None else timestamp)
        except (OverflowError, TypeError):
            raise WrongTimestamp(
                f"A record has the timestamp {timestamp!r}; it must be an int, in milliseconds, that fits into 64 "
                f"bits.",
                fix="Make the source return an int: milliseconds since 1970-01-01.",
            ) from None

    def take(self, target: int) -> tuple[bytes, list[WatermarkAt]]:
        """Return the timestamps and watermarks of the buffer that is about to be sent."""
        times, marks = self._times[target].tobytes(), self._marks[target]
        self._times[target] = array("q")
        self._marks[target] = []
        return times, marks
