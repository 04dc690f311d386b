"""A Python source in the harness: what it gives is added to a log, from which epochs take it."""

from __future__ import annotations

import json
import pickle
from typing import Any

from penstock.common.program import Program
from penstock.connectors.dead_letters import LetterBox
from penstock.connectors.source import Source, ranges, read_split
from penstock.runtime.moment import OfSplit
from penstock.runtime.plan import Chain
from penstock.testing.inside import from_inside


class DrawnSource:
    """A source in Python as the harness reads it: planned and read in this process."""

    def __init__(self, chain: Chain, parallelism: int, program: Program) -> None:
        assert chain.pickled_source is not None
        self._program = program
        with program.entered():
            # As on Spark, what runs is a copy of what the program holds.
            self.source: Source = pickle.loads(chain.pickled_source)
            self.source.use_letter_box(LetterBox.of(chain))
            self.positions = self._logged(self.source.start(parallelism))
            """Up to where it was drawn. May be set: then it goes on from there."""

    def draw(self, limit: int | None) -> list[Any]:
        """The records up to where the source advances to, each with its split, and where splits end."""
        records: list[OfSplit] = from_inside(self._program, lambda: self._drawn(limit))
        return records

    def _drawn(self, limit: int | None) -> list[OfSplit]:
        ahead = self._logged(self.source.advance(dict(self.positions), limit))
        records: list[OfSplit] = []
        for part in ranges(self.positions, ahead):
            for chunk in read_split(self.source, *part):
                records += [OfSplit(chunk.split, [record]) for record in chunk.records]
                records += [OfSplit(chunk.split, [], letters=[letter]) for letter in chunk.letters]
                if chunk.ended and records and records[-1].split == chunk.split:
                    # With its last record: positions in the harness are counted in records.
                    records[-1] = records[-1]._replace(ended=True)
        self.positions = ahead
        return records

    def _logged(self, positions: Any) -> Any:
        """As positions come back from Spark's log."""
        return json.loads(json.dumps(positions))
