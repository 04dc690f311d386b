"""The job whose state is read: sums per key, in the harness, with the storage and the settings of a job on Spark.

`python -m bench.query.job DIRECTORY KEYS CHANGES` loads all keys, prints a line, and then runs epochs until its input
ends. It rests as long after each epoch as the epoch took, so it uses half a core.
"""

import random
import sys
import threading
import time

from penstock.checkpoint.lineages import Lineages
from penstock.common import Configuration, Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.state import ReducingStateDescriptor
from penstock.state.local_storage import LocalStorage
from penstock.testing import JobHarness

STATE = "sums"
PIECE = 100_000
"""Records in an epoch that loads keys."""


def harness(directory: str, keys: int) -> JobHarness:
    """Return a job that keeps a sum for each of its keys: of the numbers with the same remainder."""
    configuration = Configuration()
    configuration.set_string("queryable-state.enable", "true")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    numbers = env.from_collection([], type_info=Types.LONG()).key_by(lambda number: number % keys, Types.LONG())
    sums = ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
    numbers.as_queryable_state(STATE, sums).uid("sums")
    lineages = Lineages(LocalStorage(directory))
    return JobHarness(env, backend="filesystem", storage=lineages.storage_of(lineages.current()), parallelism=1)


def load(job: JobHarness, keys: int) -> None:
    """Give each key its own number."""
    for start in range(0, keys, PIECE):
        job.push(*range(start, min(start + PIECE, keys))).epoch()


def change(job: JobHarness, keys: int, changes: int, rng: random.Random) -> None:
    """Run an epoch that adds to some keys."""
    job.push(*(rng.randrange(keys) for _ in range(changes))).epoch()


def main(directory: str, keys: int, changes: int) -> None:
    job = harness(directory, keys)
    load(job, keys)
    print(job.checkpoint, flush=True)
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    rng = random.Random(1)
    took = 0.0
    while not ended.wait(took):
        started = time.perf_counter()
        change(job, keys, changes, rng)
        took = time.perf_counter() - started
    job.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
