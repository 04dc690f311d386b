"""Requests to a job and its answers. Each is one JSON object on one line."""

from __future__ import annotations

import msgspec

from penstock.common.json_text import to_json
from penstock.driver.job_snapshot import JobSnapshot, Operation
from penstock.driver.process_facts import Environment, ThreadDump


class Describe(msgspec.Struct, tag="describe", frozen=True, kw_only=True):
    """Return the job's description."""


class MakeSavepoint(msgspec.Struct, tag="savepoint", frozen=True, kw_only=True):
    """Make a savepoint. The job continues."""

    directory: str | None = None
    """Target directory, as an absolute path because the job's working directory differs. None: the job's setting."""


class Stop(msgspec.Struct, tag="stop", frozen=True, kw_only=True):
    """Make a savepoint, then end the job."""

    directory: str | None = None
    drain: bool = False
    """Whether to end the input first, which fires all timers and windows."""


class Cancel(msgspec.Struct, tag="cancel", frozen=True, kw_only=True):
    savepoint: bool = False
    """Whether to make a savepoint first."""
    directory: str | None = None


class Rescale(msgspec.Struct, tag="rescale", frozen=True, kw_only=True):
    parallelism: int | dict[str, int]
    """For all operators without an explicit parallelism, or by operator uid or name."""


class TakeCheckpoint(msgspec.Struct, tag="checkpoint", frozen=True, kw_only=True):
    """Complete a checkpoint now."""


Operable = MakeSavepoint | Stop | Cancel | Rescale | TakeCheckpoint
"""Requests that take long. `Trigger` starts one without waiting for its end."""

SAVEPOINT, STOP, CANCEL, RESCALE, CHECKPOINT = "savepoint", "stop", "cancel", "rescale", "checkpoint"
"""Kinds of operations; see `Operation.kind`."""


def kind_of(request: Operable) -> str:
    """Return the kind of an operation. One that makes a savepoint and ends the job is a stop, also if it cancels."""
    match request:
        case MakeSavepoint():
            return SAVEPOINT
        case Stop() | Cancel(savepoint=True):
            return STOP
        case Cancel():
            return CANCEL
        case Rescale():
            return RESCALE
        case TakeCheckpoint():
            return CHECKPOINT


class Trigger(msgspec.Struct, tag="trigger", frozen=True, kw_only=True):
    """Start an operation and return its state. An id that is known starts nothing new."""

    id: str
    request: Operable


class Poll(msgspec.Struct, tag="poll", frozen=True, kw_only=True):
    """Return the state of an operation."""

    id: str


class Follow(msgspec.Struct, tag="follow", frozen=True, kw_only=True):
    """Return a snapshot of the job now, and another one after each change, until the client disconnects."""


class DescribeEnvironment(msgspec.Struct, tag="describe-environment", frozen=True, kw_only=True):
    """Return the versions, options and paths of the process and of its JVM."""


class DumpThreads(msgspec.Struct, tag="dump-threads", frozen=True, kw_only=True):
    """Return the threads of the process."""


Request = Describe | Operable | Trigger | Poll | Follow | DescribeEnvironment | DumpThreads


class Description(msgspec.Struct, tag="description", frozen=True, kw_only=True):
    id: str
    name: str
    status: str
    pid: int
    """Process ID of the driver."""
    started: int
    """Start time, in milliseconds since 1970."""
    epochs: int
    """Number of the last completed epoch; it keeps counting across restarts and savepoints."""
    restarts: int
    """Restarts since this driver started."""
    parallelism: dict[str, int]
    """Parallelism of each task, by the uid of its first operator."""
    checkpoints: str = ""
    """Location of the checkpoints, if they outlive the driver."""


class Done(msgspec.Struct, tag="done", frozen=True, kw_only=True):
    savepoint: str | None = None
    """Path of the savepoint, if one was made."""
    checkpoint: int | None = None
    """Number of the checkpoint, if one was requested."""


class Refused(msgspec.Struct, tag="refused", frozen=True, kw_only=True):
    """The request was refused. The job continues unchanged."""

    kind: str
    """Class name of the error."""
    problem: str
    fix: str = ""


Answer = Description | Done | Refused | Operation | JobSnapshot | Environment | ThreadDump

encode = to_json
decode_request = msgspec.json.Decoder(Request).decode
decode_answer = msgspec.json.Decoder(Answer).decode
