"""Reads and decodes the bodies and parameters of requests."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from penstock.rest.errors import BadRequest, TooLarge

_MAX_JSON = 1 << 20
_ID = re.compile(r"[0-9a-f]{32}")
_TRUTH = {"true": True, "false": False}

T = TypeVar("T")


async def decoded(request: Request, kind: type[T]) -> T:
    """Return the body of a request; an empty one is an empty object. Raises BadRequest, TooLarge.

    Types are checked strictly. Unknown fields are ignored, as in Flink.
    """
    data = await _read(request)
    try:
        return msgspec.json.decode(data if data.strip() else b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise BadRequest(f"The body does not have the expected form: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"The body is not valid JSON: {error}.") from None
    except RecursionError:
        raise BadRequest("The body is nested too deeply.") from None


async def _read(request: Request) -> bytes:
    announced = content_length(request)
    if announced is not None and announced > _MAX_JSON:
        raise too_large(_MAX_JSON)
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > _MAX_JSON:
                raise too_large(_MAX_JSON)
    except ClientDisconnect:
        raise BadRequest("The client closed the connection before the end of the body.") from None
    return bytes(data)


def content_length(request: Request) -> int | None:
    """Return the announced length of the body, or None. The HTTP parser refuses lengths that are not numbers."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isdecimal() and len(text) < 20 else None


def too_large(limit: int) -> TooLarge:
    """Return the error for a body that exceeds `limit` bytes."""
    return TooLarge(f"The body of the request exceeds {limit:,} bytes.")


def hex_id(what: str, text: str) -> str:
    """Check an id that a client chose. Raises BadRequest."""
    if not _ID.fullmatch(text):
        raise BadRequest(f"The {what} is not valid.", fix="Use 32 lower-case hexadecimal digits.")
    return text


def location(what: str, text: str) -> str:
    """Check a path or URI that a client passed. Raises BadRequest."""
    if not text.isprintable():
        raise BadRequest(f"The {what} contains control characters.")
    if not text.startswith("/") and "://" not in text and not text.startswith("file:"):
        raise BadRequest(
            f"The {what} is a relative path, but the service has a working directory that you do not know.",
            fix="Pass an absolute path, or a URI such as s3://bucket/path.",
        )
    return text


def whole(request: Request, name: str) -> int | None:
    """Return a query parameter that is a positive integer, or None if it is missing. Raises BadRequest."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and 0 < len(text) < 10 and int(text) > 0):
        raise BadRequest(f"The query parameter '{name}' is not a positive integer.")
    return int(text)


def truth(request: Request, name: str) -> bool | None:
    """Return a query parameter that is true or false, or None if it is missing. Raises BadRequest."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if text.lower() not in _TRUTH:
        raise BadRequest(f"The query parameter '{name}' is neither true nor false.")
    return _TRUTH[text.lower()]
