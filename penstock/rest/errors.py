"""Errors of requests, and the status that each error of the cluster has in an answer."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from penstock.cluster.coordination import CoordinationUnavailable
from penstock.cluster.gateway import Conflict, NotLeading, Timeout, UnknownOperation, UnknownProgram
from penstock.cluster.records import UnknownJob
from penstock.common.json_text import to_json
from penstock.common.masking import masked_start
from penstock.common.options import BadSetting
from penstock.common.program_files import BadProgram
from penstock.control.client import JobNotFound, NoAnswer, RefusedByJob
from penstock.driver.operations import BeingStopped
from penstock.errors import PenstockError
from penstock.query import errors as query
from penstock.rest.masking import Masking
from penstock.rest.views import BadQuery, NotFound
from penstock.savepoint.format import SavepointError


class BadRequest(PenstockError):
    """A request is malformed: its JSON, a parameter or a file name. Operator action: correct the request."""


class Forbidden(PenstockError):
    """A setting of the service forbids the request. Operator action: change the setting that the message names."""


class TooLarge(PenstockError):
    """The body of a request exceeds `rest.server.max-content-length`.

    Operator action: upload a smaller file, or raise the setting and restart the service.
    """


_STATUS: tuple[tuple[type[Exception], HTTPStatus], ...] = (
    (BadRequest, HTTPStatus.BAD_REQUEST),
    (BadQuery, HTTPStatus.BAD_REQUEST),
    (BadProgram, HTTPStatus.BAD_REQUEST),
    (BadSetting, HTTPStatus.BAD_REQUEST),
    (SavepointError, HTTPStatus.BAD_REQUEST),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (NotFound, HTTPStatus.NOT_FOUND),
    (UnknownJob, HTTPStatus.NOT_FOUND),
    (UnknownOperation, HTTPStatus.NOT_FOUND),
    (UnknownProgram, HTTPStatus.NOT_FOUND),
    (JobNotFound, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (BeingStopped, HTTPStatus.CONFLICT),
    (RefusedByJob, HTTPStatus.CONFLICT),
    (TooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (query.UnknownJob, HTTPStatus.NOT_FOUND),
    (query.UnknownQueryableState, HTTPStatus.NOT_FOUND),
    (query.UnknownKey, HTTPStatus.NOT_FOUND),
    (query.WrongKeyType, HTTPStatus.BAD_REQUEST),
    (query.WrongKind, HTTPStatus.BAD_REQUEST),
    (query.BadRequest, HTTPStatus.BAD_REQUEST),
    (query.ResultTooLarge, HTTPStatus.BAD_REQUEST),
    (query.CheckpointNotReached, HTTPStatus.CONFLICT),
    (query.NotEnabled, HTTPStatus.CONFLICT),
    (query.CheckpointGone, HTTPStatus.GONE),
    (query.TooManyReads, HTTPStatus.TOO_MANY_REQUESTS),
    (query.NotAllowed, HTTPStatus.BAD_GATEWAY),
    (query.NotTrusted, HTTPStatus.BAD_GATEWAY),
    (query.NotServed, HTTPStatus.SERVICE_UNAVAILABLE),
    (query.Unreachable, HTTPStatus.SERVICE_UNAVAILABLE),
    (NotLeading, HTTPStatus.SERVICE_UNAVAILABLE),
    (Timeout, HTTPStatus.SERVICE_UNAVAILABLE),
    (NoAnswer, HTTPStatus.SERVICE_UNAVAILABLE),
    (CoordinationUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
)


_LONGEST = 32_768
"""Characters of an error, which can quote a request or the output of a program."""


class ErrorBody(msgspec.Struct, kw_only=True, frozen=True):
    """The body of an answer that reports an error."""

    errors: list[str]


def status_of(error: PenstockError) -> HTTPStatus:
    """Return the status of the answer that reports an error."""
    if isinstance(error, RefusedByJob) and error.kind == UnknownOperation.__name__:
        # The JobManager that kept the operation has died, so a client must not go on polling.
        return HTTPStatus.NOT_FOUND
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


def error_body(masking: Masking, *texts: str) -> bytes:
    """Return the body that reports errors, without secrets."""
    return to_json(ErrorBody(errors=[masked_start(text, _LONGEST, masking.text) for text in texts]))
