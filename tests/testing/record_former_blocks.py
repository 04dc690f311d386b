"""Records a checkpoint and a savepoint of `rescaled_job` for `test_former_blocks.py`.

Ran once, with the last revision before format 4 (34d89c4) in the current directory:

    PYTHONPATH=.:tests/testing python tests/testing/record_former_blocks.py DIRECTORY
"""

import sys
from pathlib import Path

from rescaled_job import KEYS, job

from penstock.driver.epoch_settings import Settings
from penstock.state.local_storage import LocalStorage

RECORDS = [(number * 5 % KEYS, 1 + number % 3, 10 * number) for number in range(200)]
PER_EPOCH = 25
"""The job has a base of most blocks, deltas since, timers that are not due yet, and open windows."""


def record(directory: Path, most: int) -> None:
    place = directory / str(most)
    options = Settings(base_bytes=0, retained=1, asynchronous=False)
    harness = job(LocalStorage(place / "checkpoint"), 3, most, settings=options)
    for start in range(0, len(RECORDS), PER_EPOCH):
        harness.push(*RECORDS[start : start + PER_EPOCH]).epoch()
    Path(harness.savepoint(place)).rename(place / "savepoint")


if __name__ == "__main__":
    for groups in (64, 100):
        record(Path(sys.argv[1]), groups)
