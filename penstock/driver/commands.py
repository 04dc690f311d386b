"""Executes commands from other processes (`penstock list`, `savepoint`, `stop`, …) on a job."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

import msgspec

from penstock.common.job import JobStatus
from penstock.common.job_client import JobClient
from penstock.driver.control_messages import (
    Answer,
    Cancel,
    Describe,
    DescribeEnvironment,
    Description,
    Done,
    DumpThreads,
    Follow,
    MakeSavepoint,
    Operable,
    Poll,
    Request,
    Rescale,
    Stop,
    TakeCheckpoint,
    Trigger,
    kind_of,
)
from penstock.driver.epochs import EpochDriver
from penstock.driver.job_snapshot import JobSnapshot
from penstock.driver.operations import Operations
from penstock.driver.process_facts import Environment, thread_dump


class DescribableJob(Protocol):
    """The parts of a job that its description needs. None of them blocks."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def started_at(self) -> float:
        """Seconds since 1970."""
        ...

    @property
    def restarts(self) -> int: ...

    @property
    def driver(self) -> EpochDriver: ...

    @property
    def checkpoints(self) -> str:
        """The location of the checkpoints if they outlive the driver, otherwise empty."""
        ...

    def status(self) -> JobStatus: ...

    def snapshot(self) -> JobSnapshot: ...

    def environment(self) -> Environment: ...


class Commands:
    """Answers requests. Thread-safe; handles several requests concurrently."""

    def __init__(
        self, job: DescribableJob, client: JobClient, kept_s: float, completed: Callable[[], None] = lambda: None
    ) -> None:
        """`kept_s`: how long the result of an operation can be polled. `completed` is called after each result."""
        self._job, self._client = job, client
        self._operations = Operations(kept_s, completed=completed)

    def __call__(self, request: Request) -> Answer:
        """Carry out a request and return the answer."""
        match request:
            case Describe():
                return self._description()
            case Follow():
                return self.snapshot()
            case Trigger(id=trigger_id, request=operable):
                return self._operations.trigger(trigger_id, lambda: self._carry_out(operable), kind_of(operable))
            case Poll(id=trigger_id):
                return self._operations.poll(trigger_id)
            case DescribeEnvironment():
                return self._job.environment()
            case DumpThreads():
                return thread_dump()
        return self._carry_out(request)

    def snapshot(self) -> JobSnapshot:
        """Return a snapshot of the job, with its recent operations. It shows the effect of those that are done."""
        operations = self._operations.recent()
        return msgspec.structs.replace(self._job.snapshot(), operations=operations)

    def await_results(self, timeout_s: float) -> None:
        """Wait for the results of the operations in progress, but not longer than this. Call when the job has ended."""
        self._operations.await_results(timeout_s)

    def _carry_out(self, request: Operable) -> Done:
        client = self._client
        match request:
            case MakeSavepoint(directory=directory):
                return Done(savepoint=client.trigger_savepoint(directory).result())
            case Stop(directory=directory, drain=drain):
                return Done(savepoint=client.stop_with_savepoint(drain, directory).result())
            case Cancel(savepoint=True, directory=directory):
                return Done(savepoint=client.cancel_with_savepoint(directory).result())
            case Cancel():
                client.cancel().result()
                return Done()
            case Rescale(parallelism=parallelism):
                client.rescale(parallelism)
                return Done()
            case TakeCheckpoint():
                return Done(checkpoint=client.trigger_checkpoint().result())

    def _description(self) -> Description:
        """Describe the job without waiting for the epoch in progress."""
        job, driver = self._job, self._job.driver
        return Description(
            id=job.id,
            name=job.name,
            status=job.status().name,
            pid=os.getpid(),
            started=int(job.started_at * 1000),
            epochs=driver.next_number - 1,
            restarts=job.restarts,
            parallelism={
                chain.operators[0].uid: chain.parallelism
                for chain in driver.graph.chains
                if chain.level > 0 and chain.operators
            },
            checkpoints=job.checkpoints,
        )
