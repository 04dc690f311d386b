"""What one way of counting hands to the table: the durations of its measured epochs."""

import json
import statistics
import sys
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Result:
    """Durations of the warm epochs, in order, and the records in each of them."""

    records: int
    seconds: list[float]

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)

    @property
    def records_per_second(self) -> float:
        return self.records / self.median_seconds

    def print(self) -> None:
        """Called once, last, by a way's process: the result is the last line of its stdout."""
        sys.stdout.write("\n" + json.dumps(asdict(self)) + "\n")

    @classmethod
    def parse(cls, stdout: str) -> "Result":
        return cls(**json.loads(stdout.strip().rpartition("\n")[2]))
