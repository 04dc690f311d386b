"""What a command asks a job, and what it is answered: one JSON object each, on a line of its own."""

from __future__ import annotations

import msgspec


class Describe(msgspec.Struct, tag="describe", frozen=True, kw_only=True):
    """How is it going?"""


class MakeSavepoint(msgspec.Struct, tag="savepoint", frozen=True, kw_only=True):
    """The job goes on."""

    directory: str | None = None
    """Where it goes; None for where the job's settings say. Absolute, for the job has a directory of its own."""


class Stop(msgspec.Struct, tag="stop", frozen=True, kw_only=True):
    """Make a savepoint and end the job with it."""

    directory: str | None = None
    drain: bool = False
    """Whether the input is ended first, so that all timers and windows fire."""


class Cancel(msgspec.Struct, tag="cancel", frozen=True, kw_only=True):
    savepoint: bool = False
    """Whether one is made first."""
    directory: str | None = None


class Rescale(msgspec.Struct, tag="rescale", frozen=True, kw_only=True):
    parallelism: int | dict[str, int]
    """For all operators without a parallelism of their own, or by operator uid or name."""


Request = Describe | MakeSavepoint | Stop | Cancel | Rescale


class Description(msgspec.Struct, tag="description", frozen=True, kw_only=True):
    id: str
    name: str
    status: str
    pid: int
    """Of the driver."""
    started: int
    """When, in ms."""
    epochs: int
    """Number of the last one that is complete; it counts on over restarts and savepoints."""
    restarts: int
    """In the life of this driver."""
    parallelism: dict[str, int]
    """Of each task, by the uid of its first operator."""
    checkpoints: str = ""
    """Where its checkpoints are, if they outlive the driver."""


class Done(msgspec.Struct, tag="done", frozen=True, kw_only=True):
    savepoint: str | None = None
    """The path of it, if one was made."""


class Refused(msgspec.Struct, tag="refused", frozen=True, kw_only=True):
    """It was not done, for this reason. The job goes on as before."""

    kind: str
    """The class of the error."""
    problem: str
    fix: str = ""


Answer = Description | Done | Refused

encode = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(Request).decode
decode_answer = msgspec.json.Decoder(Answer).decode
