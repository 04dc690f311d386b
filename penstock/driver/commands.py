"""Executes commands from other processes (`penstock list`, `savepoint`, `stop`, `cancel`, `rescale`) on a job."""

from __future__ import annotations

import os
from typing import Protocol

from penstock.common.job import JobStatus
from penstock.common.job_client import JobClient
from penstock.driver.control_messages import (
    Answer,
    Cancel,
    Describe,
    Description,
    Done,
    MakeSavepoint,
    Request,
    Rescale,
    Stop,
)
from penstock.driver.epochs import EpochDriver


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


class Commands:
    """Answers requests. Thread-safe; handles several requests concurrently."""

    def __init__(self, job: DescribableJob, client: JobClient) -> None:
        self._job, self._client = job, client

    def __call__(self, request: Request) -> Answer:
        """Carry out a request and return the answer."""
        client = self._client
        match request:
            case Describe():
                return self._description()
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
