"""What can be asked of a running job besides its end: a savepoint, a stop with a savepoint, another parallelism.

The life cycle grants or refuses each request; what is granted is done between two epochs. Spark's job and the harness
differ only in how they execute it: see `Executor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NamedTuple, Protocol, TypeVar

from penstock.checkpoint.lineages import SharedStorage
from penstock.checkpoint.manifest import Manifest, Version
from penstock.driver.epochs import EpochDriver
from penstock.driver.instructions import AwaitRecovery, Refusal, RunEpoch, Save, StopQuery
from penstock.driver.life_cycle import LifeCycle
from penstock.errors import PenstockError

_Granted = TypeVar("_Granted")


class Executor(Protocol):
    """What executes the instructions of the life cycle, as requests need it."""

    @property
    def life(self) -> LifeCycle: ...

    @property
    def driver(self) -> EpochDriver: ...

    def between_epochs(self) -> AbstractContextManager[None]:
        """Wait until the job has recovered or ended and no epoch runs; within it, none begins."""
        ...

    def run_epoch(self, epoch: RunEpoch) -> object:
        """Run an epoch without waiting for records, and report it to the life cycle. Called between epochs."""
        ...

    def save(self, directory: SharedStorage, manifest: Manifest, version: Version) -> str:
        """Make a savepoint of a pinned checkpoint; gives its path."""
        ...

    def stop(self, stop: StopQuery) -> None:
        """Stop the query; return when the job has ended."""
        ...


class _Refused(NamedTuple):
    """What is said of a request that is not met."""

    batch: str
    over: str
    fix: str


_NO_SAVEPOINT = _Refused(
    "no savepoint can be made of it",
    "is over: no savepoint can be made of it",
    "Start it again, and make the savepoint while it runs.",
)
_NO_RESCALE = _Refused(
    "its parallelism stays",
    "is over, and cannot be rescaled",
    "Start it again with another parallelism: penstock run -p N, or env.set_parallelism(N).",
)


class Requests:
    """Can be called from any thread, as far as the executor can."""

    def __init__(self, job_name: str, executor: Executor) -> None:
        self._job_name, self._executor = job_name, executor
        self.savepoint_at_end: str | None = None
        """The path of the savepoint that the job was stopped with."""

    def savepoint(self, directory: SharedStorage) -> str:
        """Make one of the last checkpoint below this directory, concurrently with the epochs that follow; gives its
        path."""
        executor = self._executor
        with ExitStack() as pinned:
            with self._granted(lambda: executor.life.savepoint_requested(), _NO_SAVEPOINT) as save:
                self._run_epochs_before(save)
                manifest, version = pinned.enter_context(executor.driver.pinned_last())
            return executor.save(directory, manifest, version)

    def stop_with_savepoint(self, directory: SharedStorage, drain: bool, cancel: bool = False) -> str:
        """Make one of all that the job did, and end it; gives the savepoint's path. If it fails, the job goes on.

        `drain`: the input is ended first, so that all timers and windows fire; then the job is over in any case.
        `cancel`: the job counts as cancelled.
        """
        executor = self._executor
        stop: StopQuery | None = None
        try:
            with self._granted(lambda: executor.life.stop_requested(drain), _NO_SAVEPOINT) as save:
                self._run_epochs_before(save)
                if save.drain:
                    stop = executor.life.stopped(cancel)
                with executor.driver.pinned_last() as (manifest, version):
                    path = executor.save(directory, manifest, version)
                self.savepoint_at_end = path
                stop = stop or executor.life.stopped(cancel)
        finally:
            if stop is not None:
                executor.stop(stop)
        return path

    def rescale(self, parallelism: int | Mapping[str, int]) -> None:
        """From the next epoch on. Returns when the epoch in progress, if any, is over."""
        with self._granted(lambda: self._executor.life.rescale_requested(), _NO_RESCALE):
            self._executor.driver.rescale(parallelism)

    @contextmanager
    def _granted(
        self, request: Callable[[], _Granted | AwaitRecovery | Refusal], refused: _Refused
    ) -> Iterator[_Granted]:
        """Between two epochs of a job that has recovered: what its life cycle says to a request."""
        # One that will be refused does not wait for an epoch.
        self._raise_refusal(request(), refused)
        while True:
            with self._executor.between_epochs():
                answer = request()
                self._raise_refusal(answer, refused)
                if not isinstance(answer, (AwaitRecovery, Refusal)):
                    yield answer
                    return

    def _raise_refusal(self, answer: object, refused: _Refused) -> None:
        if answer is Refusal.BATCH:
            raise PenstockError(
                f"Job '{self._job_name}' runs as a batch, which has no checkpoints: {refused.batch}.",
                fix="Run it with RuntimeExecutionMode.STREAMING.",
            )
        if answer is Refusal.OVER:
            raise PenstockError(f"Job '{self._job_name}' {refused.over}.", fix=refused.fix)

    def _run_epochs_before(self, save: Save) -> None:
        if save.first_epoch:
            self._executor.run_epoch(RunEpoch())
        if save.drain:
            self._executor.run_epoch(RunEpoch(ends_input=True))
