"""The result that an implementation passes to the table: the durations of its measured epochs."""

import json
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.workload import epoch_records, input_files


@dataclass(frozen=True)
class Result:
    """Durations of the measured epochs, in order, and the number of records in each."""

    records: int
    seconds: list[float]

    @classmethod
    def of_epochs(cls, input_dir: Path, seconds: list[float], warmup: int) -> "Result":
        """Create a result from the durations of all epochs of a run over `input_dir`, which has one file per epoch."""
        files = len(input_files(input_dir))
        if len(seconds) != files:
            raise SystemExit(f"expected {files} epochs, one per file, but there were {len(seconds)}")
        return cls(epoch_records(input_dir), seconds[warmup:])

    @property
    def median_seconds(self) -> float:
        return statistics.median(self.seconds)

    @property
    def records_per_second(self) -> float:
        return self.records / self.median_seconds

    def print(self) -> None:
        """Print the result as the last line of stdout. Called once, at the end of an implementation's process."""
        sys.stdout.write("\n" + json.dumps(asdict(self)) + "\n")

    @classmethod
    def parse(cls, stdout: str) -> "Result":
        return cls(**json.loads(stdout.strip().rpartition("\n")[2]))
