"""The event time that a source gives its records itself, split by split."""

from __future__ import annotations

from collections.abc import Callable

from penstock.common.watermark_strategy import Watermark
from penstock.runtime.chain import ChainRun
from penstock.runtime.exchange import Records
from penstock.runtime.moment import Timestamped
from penstock.runtime.operators import Mark
from penstock.runtime.watermarks import GREATEST, LEAST


class SourceTime:
    """Passes a source's records on with their timestamps, and its watermarks between them. For one epoch of a task."""

    def __init__(self, run: ChainRun) -> None:
        self._run = run
        self.reached: dict[str, int] = {}
        """By split, the watermarks that the source itself gave."""
        self.begins: dict[str, int] = {}
        """By split, where these stood at the last checkpoint."""

    def feed(self, records: Records, roots: list[Callable[[Records], None]], marks: list[Mark]) -> None:
        """Of a source whose records may come with timestamps, and with watermarks between them."""
        moment = self._run.moment
        channel = moment.channel
        for record in records:
            if channel not in self.reached:
                self._begin_split(channel, marks)
            if type(record) is Watermark:
                # The greatest one is for the end of the input, which is not the source's to say.
                watermark = min(record.timestamp, GREATEST - 1)
                if watermark > self.reached[channel] and not self._run.graph.batch:
                    self.reached[channel] = watermark
                    for mark in marks:
                        mark(watermark, channel)
                continue
            timed = type(record) is Timestamped
            moment.timestamp = record.timestamp if timed else None
            for root in roots:
                root([record.value if timed else record])

    def _begin_split(self, channel: str, marks: list[Mark]) -> None:
        begins = self.reached[channel] = self.begins.get(channel, LEAST)
        for mark in marks:
            mark(begins, channel)

    def end_split(self, marks: list[Mark], ends: list[Mark]) -> None:
        channel = self._run.moment.channel
        if channel not in self.reached and channel in self.begins:
            # Its last record was in an earlier epoch.
            self._begin_split(channel, marks)
        if channel in self.reached:
            self.reached[channel] = GREATEST
        for end in ends:
            end(None, channel)
