"""Answers and bodies of the endpoints that the `penstock` command uses. Commands import them without the server."""

from __future__ import annotations

from typing import Annotated

import msgspec

Parallelism = Annotated[int, msgspec.Meta(ge=1, le=1 << 15)]


class ClusterDescription(msgspec.Struct, kw_only=True, frozen=True):
    """The service that answers."""

    version: str
    pid: int
    leading: bool
    leader: str
    """Address of the Dispatcher that leads, as far as this one knows."""
    ready: bool
    draining: bool
    problem: str
    """Why it is not ready."""
    application: bool = False
    """Whether it is part of one program (`penstock run --web`), which prints its log and keeps no file."""


class JobLine(msgspec.Struct, kw_only=True, frozen=True):
    """One job, as `penstock list` shows it."""

    id: str
    name: str
    status: str
    started: int
    ended: int
    """-1 while the job runs."""
    attempt: int
    """How often the service has started a JobManager for it."""
    epochs: int
    restarts: int
    parallelism: dict[str, int]
    reason: str
    """Why the job failed or waits."""
    checkpoints: str = ""
    """Location of the checkpoints; empty if they are in the memory of the driver."""


class RescaleRequest(msgspec.Struct, kw_only=True, frozen=True):
    """The body of POST /penstock/v1/jobs/:jobid/rescaling."""

    parallelism: Parallelism | dict[str, Parallelism]
    """Of all operators, or by uid."""
