"""A Python source in the harness. Its records are appended to a log from which epochs read."""

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
    """A Python source planned and read in this process."""

    def __init__(self, chain: Chain, parallelism: int, program: Program) -> None:
        assert chain.pickled_source is not None
        self._program = program
        with program.entered():
            # As on Spark, a copy of the program's object runs.
            self.source: Source = pickle.loads(chain.pickled_source)
            self.source.use_letter_box(LetterBox.of(chain))
            self.positions = self._logged(self.source.start(chain.tasks if chain.own_parallelism else parallelism))
            """The positions read so far. Set them to continue from elsewhere."""

    def draw(self, limit: int | None) -> list[Any]:
        """Return the records up to the source's next positions, each with its split, and the ends of splits."""
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
                    # Attached to the last record, because the harness counts positions in records.
                    records[-1] = records[-1]._replace(ended=True)
        self.positions = ahead
        return records

    def _logged(self, positions: Any) -> Any:
        """Return the positions as Spark's log would restore them."""
        return json.loads(json.dumps(positions))
