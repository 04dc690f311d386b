"""Requests to a running job: complete a checkpoint, make a savepoint, stop with a savepoint, rescale.

The life cycle grants or refuses each request; granted requests are executed between two epochs. The Spark job and the
test harness differ only in how they execute them; see `Executor`.
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
from penstock.driver.rescaling import RescaleFailed, Scale
from penstock.errors import PenstockError

_Granted = TypeVar("_Granted")


class Executor(Protocol):
    """Executes the instructions of the life cycle; the part that requests use."""

    @property
    def life(self) -> LifeCycle: ...

    @property
    def driver(self) -> EpochDriver: ...

    @property
    def last_failure(self) -> BaseException | None:
        """The last failure of the job, even if it was restarted."""
        ...

    def between_epochs(self) -> AbstractContextManager[None]:
        """Wait until the job has recovered or ended and no epoch runs. No epoch begins inside the context."""
        ...

    def run_epoch(self, epoch: RunEpoch) -> object:
        """Run an epoch without waiting for records and report it to the life cycle. Call between epochs.

        If it fails, the job fails as with any other epoch, and restarts if its restart strategy allows it.
        """
        ...

    def save(self, directory: SharedStorage, manifest: Manifest, version: Version) -> str:
        """Make a savepoint of a pinned checkpoint and return its path."""
        ...

    def stop(self, stop: StopQuery) -> None:
        """Stop the query and wait until the job has ended."""
        ...


class _Refused(NamedTuple):
    """Message parts for a refused request."""

    batch: str
    over: str
    fix: str


_NO_SAVEPOINT = _Refused(
    "it cannot make a savepoint",
    "has ended and cannot make a savepoint",
    "Start it again and make the savepoint while it runs.",
)
_NO_CHECKPOINT = _Refused(
    "it cannot complete one on request",
    "has ended and cannot complete a checkpoint",
    "Start it again and request the checkpoint while it runs.",
)
_NO_RESCALE = _Refused(
    "it cannot be rescaled",
    "has ended and cannot be rescaled",
    "Start it again with another parallelism: penstock run -p N, or env.set_parallelism(N).",
)


class Requests:
    """As thread-safe as the executor."""

    def __init__(self, job_name: str, executor: Executor) -> None:
        self._job_name, self._executor = job_name, executor
        self.savepoint_at_end: str | None = None
        """Path of the savepoint that the job was stopped with."""

    def savepoint(self, directory: SharedStorage) -> str:
        """Make a savepoint of the last checkpoint below `directory` and return its path.

        The savepoint is written concurrently with later epochs.
        """
        executor = self._executor
        with ExitStack() as pinned:
            with self._granted(lambda: executor.life.savepoint_requested(), _NO_SAVEPOINT) as save:
                self._run_epochs_before(save)
                manifest, version = pinned.enter_context(executor.driver.pinned_last())
            return self._save(directory, manifest, version, ends_job=False)

    def stop_with_savepoint(self, directory: SharedStorage, drain: bool, cancel: bool = False) -> str:
        """Make a savepoint of the job's complete state, end the job and return the path.

        If the savepoint fails, the job continues. `drain`: end the input first, which fires all timers and windows;
        the job then ends in any case. `cancel`: report the job as cancelled.
        """
        executor = self._executor
        stop: StopQuery | None = None
        try:
            with self._granted(lambda: executor.life.stop_requested(drain), _NO_SAVEPOINT) as save:
                self._run_epochs_before(save)
                if save.drain:
                    stop = executor.life.stopped(cancel)
                with executor.driver.pinned_last() as (manifest, version):
                    path = self._save(directory, manifest, version, ends_job=True)
                self.savepoint_at_end = path
                stop = stop or executor.life.stopped(cancel)
        finally:
            if stop is not None:
                executor.stop(stop)
        return path

    def checkpoint(self) -> int:
        """Run an epoch now, without waiting for records, and return the number of its checkpoint."""
        with self._granted(lambda: self._executor.life.savepoint_requested(), _NO_CHECKPOINT):
            self._executor.run_epoch(RunEpoch())
            return self._executor.driver.next_number - 1

    def _save(self, directory: SharedStorage, manifest: Manifest, version: Version, ends_job: bool) -> str:
        with self._executor.driver.checkpoints.saving(manifest, ends_job) as completed:
            path = self._executor.save(directory, manifest, version)
            completed(path)
        return path

    def rescale(self, parallelism: int | Mapping[str, int]) -> None:
        """Run an epoch with another parallelism after the one in progress. Return when its checkpoint is published.

        Raises CannotRescale or TooFewSlotsToRescale, without waiting if the request is impossible, and RescaleFailed if
        the job keeps its former parallelism because the epoch failed.
        """
        executor = self._executor
        self._raise_refusal(executor.life.rescale_requested(), _NO_RESCALE)
        executor.driver.check_rescale(parallelism)
        with self._granted(lambda: executor.life.rescale_requested(), _NO_RESCALE):
            former, wanted = executor.driver.scale, executor.driver.check_rescale(parallelism)
            if wanted != former:
                self._run_rescaled(former, wanted)

    def _run_rescaled(self, former: Scale, wanted: Scale) -> None:
        """Run an epoch at another scale. Raises RescaleFailed if it is not published."""
        executor, driver, number = self._executor, self._executor.driver, self._executor.driver.next_number
        failed_before = executor.last_failure
        driver.set_scale(wanted)
        try:
            executor.run_epoch(RunEpoch())
        except BaseException as error:
            published = driver.has_published(number)
            if not published:
                driver.set_scale(former)
            if not isinstance(error, Exception):
                raise
            if published is None:
                raise RescaleFailed(
                    f"Job '{self._job_name}' might not have been rescaled: {_cause(error)} The job continues with the "
                    f"parallelism of its last checkpoint if its restart strategy allows it.",
                    fix="Look up its parallelism with `penstock list --json` once it runs, and rescale it again if "
                    "necessary.",
                ) from error
            if not published:
                raise self._not_rescaled(error) from error
        if executor.driver.scale != wanted:
            # The executor restarted the job at its last checkpoint.
            failure = executor.last_failure
            raise self._not_rescaled(failure if failure is not failed_before else None) from failure

    def _not_rescaled(self, error: BaseException | None) -> RescaleFailed:
        cause = "the job crashed." if error is None else _cause(error)
        return RescaleFailed(
            f"Job '{self._job_name}' was not rescaled, because its first epoch with the new parallelism failed: "
            f"{cause} It continues with its former parallelism if its restart strategy allows it.",
            fix="Remove the cause, and rescale again once the job runs.",
        )

    @contextmanager
    def _granted(
        self, request: Callable[[], _Granted | AwaitRecovery | Refusal], refused: _Refused
    ) -> Iterator[_Granted]:
        """Wait until a recovered job is between two epochs, then yield the life cycle's instruction for the request."""
        # Refuse early, without waiting for an epoch.
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


def _cause(error: BaseException) -> str:
    """Return the cause of a failure as a sentence."""
    if isinstance(error, PenstockError):
        text = " ".join(filter(None, [error.headline(), error.context()]))
    else:
        text = f"{type(error).__name__}: {error}"
    return text if text.endswith(".") else f"{text}."
