"""Event time assigned by a source itself, per split."""

from __future__ import annotations

from collections.abc import Callable

from penstock.common.watermark_strategy import Watermark
from penstock.runtime.chain import ChainRun
from penstock.runtime.exchange import Records
from penstock.runtime.moment import Timestamped
from penstock.runtime.operators import Mark
from penstock.runtime.watermarks import GREATEST, LEAST


class SourceTime:
    """Passes on a source's records with their timestamps and watermarks. Created per task and epoch."""

    def __init__(self, run: ChainRun) -> None:
        self._run = run
        self.reached: dict[str, int] = {}
        """The source's own watermarks, by split."""
        self.begins: dict[str, int] = {}
        """The source's own watermarks at the last checkpoint, by split."""

    def feed(self, records: Records, roots: list[Callable[[Records], None]], marks: list[Mark]) -> None:
        """Feed records that can carry timestamps and have watermarks between them."""
        moment = self._run.moment
        channel = moment.channel
        for record in records:
            if channel not in self.reached:
                self._begin_split(channel, marks)
            if type(record) is Watermark:
                # The greatest timestamp is reserved for the end of the input, which a source cannot announce.
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
