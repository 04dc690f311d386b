"""One job of a given size: `python -m bench.scale.job '{"subtasks": 500}'` prints what its driver costs as JSON."""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import mean

import msgspec

from bench.scale.size import OPERATORS, SLOTS, Size, groups_of
from bench.scale.storage import CountingStorage
from bench.scale.tasks import SimulatedTasks
from penstock.checkpoint import manifest_chain
from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.common.garbage import collection_paused
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.driver_sinks import CollectSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.committing import Commit, CommitContext
from penstock.driver.control_messages import encode
from penstock.driver.epoch_settings import Settings
from penstock.driver.epochs import EpochDriver
from penstock.driver.instructions import JobTraits
from penstock.driver.job_observer import JobFacts, JobObserver
from penstock.driver.life_cycle import LifeCycle
from penstock.driver.restarts import NoRestart
from penstock.graph.builder import build
from penstock.graph.physical import PhysicalGraph

SWEEP = 16
"""Epochs between two sweeps of the housekeeping: what it costs is the mean over these."""
WARM_UP = 24
_RESTART_EVERY = 4
"""Epochs between two restarts of an executor: how many deltas follow the bases depends on the epoch."""
"""Enough that every block has a base and old files are removed, if the epochs change enough for a base."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one epoch costs in the driver, as the mean over `SWEEP` epochs unless stated otherwise."""

    epochs_ms: list[float]
    """CPU time of the driver in each epoch, without the simulated tasks."""
    manifest_bytes: float
    memory_bytes: int
    """Peak of the process above what it had before the first epoch."""
    files: float
    """Created by the tasks and the driver."""
    listed: float
    """Names that listings returned."""
    collected_bytes: float
    """Reports and metrics that reached the driver."""
    restart_bytes: float
    """Size of the manifests and state files that one executor with empty disks reads."""
    restart_manifests_bytes: float
    restarts_ms: list[float]
    """CPU time of each such executor to find these files, without reading the state."""
    snapshot_ms: float
    """CPU time of a snapshot for the service, the fastest of five."""
    snapshot_bytes: int

    @property
    def cpu_ms(self) -> float:
        return mean(self.epochs_ms)

    @property
    def restart_cpu_ms(self) -> float:
        return mean(self.restarts_ms)


class _Sink:
    """The driver's side of a sink whose committables belong in the manifest."""

    durable = True
    commit_before_checkpoint = concurrent_commit = False

    def start(self, context: CommitContext) -> None: ...
    def commit(self, commits: list[Commit], context: CommitContext) -> None: ...
    def abort(self, commits: list[Commit], context: CommitContext) -> None: ...
    def abort_uncommitted(self, epoch: int, token: str | None, context: CommitContext) -> None: ...
    def clean_up(self, lineage: str, epoch: int, states: list[bytes], context: CommitContext) -> None: ...
    def finish(self, lineage: str, states: list[bytes], context: CommitContext) -> None: ...
    def settle(self, context: CommitContext) -> None: ...
    def close(self, context: CommitContext) -> None: ...


@dataclass
class _Observed:
    life: LifeCycle
    driver: EpochDriver


def program(size: Size) -> PhysicalGraph:
    """Build a source with event time, `OPERATORS` keyed operators behind one exchange each, and a sink."""
    env = StreamExecutionEnvironment.get_execution_environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_collection([]).uid("events").assign_timestamps_and_watermarks(strategy).uid("times")
    for number in range(OPERATORS):
        stream = stream.key_by(_itself).process(_itself_in_context).uid(f"operator-{number}")
    stream.sink_to(CollectSink()).uid("sink")
    return build(env._graph, parallelism=size.subtasks, max_parallelism=size.key_groups)


def _itself(value: object) -> object:
    return value


def _itself_in_context(value: object, context: object) -> list[object]:
    return [value]


class SimulatedJob:
    """The real driver over simulated tasks, with its checkpoints in a directory."""

    def __init__(self, size: Size, directory: str) -> None:
        self.size = size
        self.graph = program(size)
        self.storage = CountingStorage(directory)
        self.tasks = SimulatedTasks(self.graph, self.storage, size)
        self.driver = EpochDriver(
            self.graph,
            self.storage,
            # Housekeeping in the driver's own thread, so that its work counts for the epoch.
            Settings(asynchronous=False),
            self.tasks.execute,
            {"sink": _Sink()},
            merge=self.tasks.merge,
            parallelism=size.subtasks,
            observe=self._observe,
        )
        life = LifeCycle(JobTraits(), NoRestart())
        self._job = _Observed(life, self.driver)
        self._observer = JobObserver(JobFacts(id="simulated", name="simulated", parallelism=size.subtasks))
        life.start()
        self.driver.start_sinks()
        self.driver.recover()

    def _observe(self, epoch: object) -> None:
        self._observer.completed(self.driver, epoch)  # type: ignore[arg-type]

    def epoch(self) -> None:
        """Run an epoch, as `spark/execution.py` does."""
        number = self.driver.next_number
        offsets = f"offsets/{number}"
        # The offsets of a source of as many partitions as subtasks.
        self.driver.run_epoch(number, {offsets: bytes(20 * self.size.subtasks)}, log_index={offsets: number})
        self.driver.next_wakeup  # noqa: B018  a property that the job reads after each epoch

    def snapshot(self) -> bytes:
        """Return what the driver pushes to the service."""
        return encode(self._observer.snapshot(self._job))

    def restarted(self) -> tuple[float, Counter[str]]:
        """Find the state of some subtasks as an executor without replicas. Return its CPU seconds and what it read."""
        manifest_chain.forget_manifests()
        counts, self.storage.counts = self.storage.counts, Counter()
        began = time.process_time()
        # Workers raise the thresholds of Python's collector.
        with collection_paused():
            self._restart()
        took = time.process_time() - began
        # An executor is another process: the driver's epochs do not share its memory.
        manifest_chain.forget_manifests()
        read, self.storage.counts = self.storage.counts, counts
        return took, read

    def _restart(self) -> None:
        for chain in self.graph.chains:
            if chain.source_uid is not None:
                continue
            for subtask in range(min(SLOTS, chain.parallelism)):
                history = ManifestChain(self.storage, self.driver.version)
                uid = chain.operators[0].uid
                blocks = self.driver.blocks[uid]
                for block in blocks.touching(groups_of(chain, subtask)):
                    history.steps(uid, blocks.groups(block), None)


def measure(size: Size, directory: str, warm_up: int = WARM_UP, epochs: int = SWEEP, profile: bool = False) -> Figures:
    """Run `warm_up` epochs and measure the next ones."""
    job = SimulatedJob(size, directory)
    tasks = job.tasks
    before = _resident()
    for _ in range(warm_up):
        job.epoch()
    counts = job.storage.counts = Counter()
    took_ms: list[float] = []
    restarts_ms: list[float] = []
    restarts: Counter[str] = Counter()
    with cProfile.Profile() if profile else nullcontext() as profiler:
        for number in range(epochs):
            began, tasks.cpu_s = time.process_time(), 0.0
            job.epoch()
            took_ms.append((time.process_time() - began - tasks.cpu_s) * 1000)
            if number % _RESTART_EVERY == 0:
                took, read = job.restarted()
                restarts_ms.append(took * 1000)
                restarts += read
    if profiler is not None:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(30)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    took, snapshot = min(_timed(job.snapshot) for _ in range(5))
    times = len(restarts_ms)
    return Figures(
        epochs_ms=took_ms,
        manifest_bytes=counts["manifest bytes"] / epochs,
        memory_bytes=memory,
        files=counts["created"] / epochs,
        listed=counts["listed"] / epochs,
        collected_bytes=tasks.collected_bytes,
        restart_bytes=restarts["bytes read"] / times,
        restart_manifests_bytes=restarts["manifest bytes read"] / times,
        restarts_ms=restarts_ms,
        snapshot_ms=took * 1000,
        snapshot_bytes=len(snapshot),
    )


def _timed(work: Callable[[], bytes]) -> tuple[float, bytes]:
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale.job", description=__doc__)
    parser.add_argument("size", help="fields of Size as JSON")
    parser.add_argument("--profile", action="store_true", help="print where the CPU time goes")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="epochs before the measured ones")
    parser.add_argument("--epochs", type=int, default=SWEEP, help="measured epochs")
    chosen = parser.parse_args()
    size = msgspec.json.decode(chosen.size, type=Size)
    # In memory if possible: the speed of a disk is not the subject, and creating a file can cost much CPU time.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="penstock-scale-", dir=memory) as directory:
        figures = measure(size, directory, chosen.warm_up, chosen.epochs, chosen.profile)
    print(msgspec.json.encode(figures).decode())


if __name__ == "__main__":
    main()
