"""The errors that reads of queryable state raise. Each has a code, by which it travels from a server to a client."""

from __future__ import annotations

from typing import ClassVar

from penstock.errors import PenstockError


class QueryError(PenstockError):
    """A read of queryable state failed. The subclasses name the reasons.

    Operator action: follow the message.
    """

    code: ClassVar[str] = "failed"
    again: ClassVar[bool] = False
    """Whether the same request can succeed a moment later."""


class UnknownJob(QueryError):
    """No server on this host reads the state of a job with this id or name.

    Operator action: check the id with `penstock list`, or start a server for the job.
    """

    code = "unknown-job"


class UnknownQueryableState(QueryError):
    """The job has no queryable state of this name. The message lists those that it has.

    Operator action: use one of the names in the message, or declare the state with ``set_queryable``.
    """

    code = "unknown-name"


class UnknownKey(QueryError):
    """The state has nothing stored for this key.

    Operator action: none; the key had no record yet, or its value was cleared or has expired.
    """

    code = "unknown-key"


class WrongKeyType(QueryError):
    """The key is not of the type of the state's keys. 1, 1.0, True and "1" are four different keys.

    Operator action: pass a key of the type that the message names.
    """

    code = "wrong-key-type"


class WrongKind(QueryError):
    """The read does not fit the kind of state, or its descriptor does not.

    Operator action: use the read that the message names.
    """

    code = "wrong-kind"


class NotServed(QueryError):
    """No server has the block of this key at present: one is starting, or has died.

    Operator action: none; clients try again until their deadline. If it lasts, start another server.
    """

    code = "not-served"
    again = True


class CheckpointNotReached(QueryError):
    """The job has not completed the checkpoint that the read asked for.

    Operator action: wait longer, or ask for an earlier checkpoint.
    """

    code = "not-reached"


class CheckpointGone(QueryError):
    """The server no longer keeps the checkpoint that the read asked for. The message has the oldest one.

    Operator action: read a later one, or raise ``queryable-state.retained-checkpoints``.
    """

    code = "gone"


class NotEnabled(QueryError):
    """The job does not run with queryable state.

    Operator action: set ``queryable-state.enable`` to true and start the job again.
    """

    code = "not-enabled"
    again = True


class NotAllowed(QueryError):
    """The token is missing or wrong.

    Operator action: pass the content of the server's token file.
    """

    code = "not-allowed"


class NotTrusted(QueryError):
    """The server's certificate is from an authority that the client does not trust, or is for another name.

    Operator action: pass the authority of the server to the client, and connect to a name in the certificate.
    """

    code = "not-trusted"


class BadRequest(QueryError):
    """The request is malformed.

    Operator action: use a client of the server's version.
    """

    code = "bad-request"


class ResultTooLarge(QueryError):
    """The answer is larger than the server sends.

    Operator action: ask for fewer keys, set a limit and continue at the cursor, or scan the state.
    """

    code = "too-large"


class TooManyReads(QueryError):
    """The server executes its maximum number of reads already.

    Operator action: none; clients try again until their deadline. If it lasts, start another server.
    """

    code = "busy"
    again = True


class Unreachable(QueryError):
    """No server answers at the address.

    Operator action: check the address, and whether the server runs.
    """

    code = "unreachable"
    again = True


_ALL: list[type[QueryError]] = [QueryError, *QueryError.__subclasses__()]
BY_CODE = {kind.code: kind for kind in _ALL}
