"""Task handling shared by the engines: Spark workers (`spark/worker.py`) and the test harness."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from penstock.checkpoint.manifest_chain import ManifestChain
from penstock.driver.epoch_parameters import EpochParameters
from penstock.runtime.chain import ChainRun
from penstock.runtime.metrics import WorkerPlace
from penstock.runtime.rows import ExchangeRow
from penstock.runtime.task import Task
from penstock.runtime.task_epoch import TaskEpoch
from penstock.state.access import StateAccess
from penstock.state.backends import ReplicaStore
from penstock.state.storage import Storage

Name = TypeVar("Name")


def state_access(parameters: EpochParameters, storage: Storage, replicas: ReplicaStore) -> StateAccess:
    """Return the access to committed state for the tasks of an epoch."""
    return StateAccess(
        ManifestChain(storage, parameters.wanted, parameters.backend.transfer_threads),
        None if storage.in_memory else storage,
        replicas.opener(parameters.lineage),
        parameters.inline_bytes,
        parameters.overlay_bytes,
        parameters.blocks,
    )


def task_epoch(
    parameters: EpochParameters,
    state: StateAccess,
    probe: Callable[[str], None],
    metrics: Callable[[bytes], None],
    place: WorkerPlace,
) -> TaskEpoch:
    """Return the epoch as its tasks see it. `place` is the process that runs them."""
    return TaskEpoch(
        number=parameters.number,
        ends_input=parameters.ends_input,
        state=state,
        lineage=parameters.lineage,
        timestamp=parameters.timestamp,
        probe=probe,
        metrics=metrics,
        single_epoch=parameters.single_epoch,
        token=parameters.token,
        place=place,
        jumped=parameters.jumped,
    )


class TaskRuns(Generic[Name]):
    """The open chains of one process, by an engine-specific name. Their functions stay open between epochs."""

    def __init__(
        self,
        caught: tuple[type[BaseException], ...] = (Exception, SystemExit),
        given_up: tuple[type[BaseException], ...] = (),
    ) -> None:
        """`caught`: exceptions that user code can raise. `given_up`: exceptions that end a task the engine gave up."""
        self._caught = caught
        self._given_up = given_up
        self.runs: dict[Name, ChainRun] = {}

    def run_task(
        self,
        name: Name,
        open_run: Callable[[], ChainRun],
        producer: int,
        rows: Callable[[Task], Iterator[ExchangeRow]],
    ) -> Iterator[ExchangeRow]:
        """Run a task with the chain kept from an earlier epoch or a new one; keep the chain unless the task fails."""
        run = self.runs.pop(name, None) or open_run()
        task = Task(run, producer, self._caught)
        try:
            yield from rows(task)
        except self._given_up:
            with suppress(*self._caught):
                run.close()
            raise
        except BaseException:
            # The chain is lost, but the process might be reused.
            run.abandon()
            raise
        if task.failed:
            # The driver already receives the failure; a second one while closing would only hide it.
            with suppress(*self._caught):
                run.close()
        else:
            self.runs[name] = run

    def close(self) -> None:
        """Close all open functions when a job ends."""
        for run in self.runs.values():
            run.close()
        self.runs.clear()

    def abandon(self) -> None:
        """Drop all chains without closing their functions, as if the process were killed."""
        for run in self.runs.values():
            run.abandon()
        self.runs.clear()
