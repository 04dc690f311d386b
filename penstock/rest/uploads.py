"""Receives an uploaded file: streamed to a private temporary file, at most `rest.server.max-content-length` bytes.

The name that the client chose is data. It is cleaned, and never becomes a path.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from penstock.errors import PenstockError
from penstock.rest.bodies import content_length, too_large
from penstock.rest.errors import BadRequest
from penstock.rest.service import Service

_WRITE_BYTES = 1 << 20
_MAX_NAME = 100
_MAX_PARTS = 16
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class UploadNotStored(PenstockError):
    """The service cannot store an upload, for example because its disk is full.

    Operator action: free space in `cluster.dir`, then upload the file again.
    """


class Upload(NamedTuple):
    """A received file."""

    name: str
    file: Path


@asynccontextmanager
async def received_file(service: Service, request: Request) -> AsyncIterator[Upload]:
    """Receive the only file of a multipart request. The temporary file is removed at the end if it still exists.

    Raises BadRequest, TooLarge.
    """
    boundary = _boundary(request)
    announced = content_length(request)
    if announced is not None and announced > service.max_content:
        raise too_large(service.max_content)
    path = service.uploads / f"upload-{secrets.token_hex(16)}"
    try:
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:
                name = await _receive(service, request, boundary, file)
        except OSError as error:
            raise UploadNotStored(
                f"The upload cannot be stored: {error.strerror}.", fix="Free space in cluster.dir, then try again."
            ) from None
        yield Upload(name, path)
    finally:
        path.unlink(missing_ok=True)


def clean_name(given: str) -> str:
    """Return a plain file name: the last part of the given one, without characters that need care.

    Raises BadRequest if nothing is left.
    """
    last = re.split(r"[/\\]", given)[-1]
    stem, suffix = os.path.splitext(_UNSAFE.sub("_", last).lstrip("."))
    name = stem[: _MAX_NAME - len(suffix)] + suffix
    if not stem.strip("._-") or len(suffix) > 10:
        raise BadRequest("The uploaded file has no usable name.", fix="Use a name such as job.py or job.zip.")
    return name


def _boundary(request: Request) -> bytes:
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not 0 < len(boundary) <= 200:
        raise BadRequest(
            "An upload needs the content type multipart/form-data with a boundary.",
            fix="Upload with e.g. `curl -F jarfile=@job.py`.",
        )
    return boundary


async def _receive(service: Service, request: Request, boundary: bytes, file: BinaryIO) -> str:
    form = _Form()
    received = 0
    try:
        parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]
        async for chunk in request.stream():
            received += len(chunk)
            if received > service.max_content:
                raise too_large(service.max_content)
            parser.write(chunk)
            if len(form.pending) >= _WRITE_BYTES:
                await _write(file, form)
        parser.finalize()
    except FormParserError:
        raise BadRequest("The body is not valid multipart data.") from None
    except ClientDisconnect:
        raise BadRequest("The client closed the connection before the end of the upload.") from None
    if not form.complete:
        raise BadRequest("The multipart data ends before its last boundary.")
    if form.file_name is None:
        raise BadRequest("The upload contains no file.", fix="Upload with e.g. `curl -F jarfile=@job.py`.")
    await _write(file, form)
    return clean_name(form.file_name)


async def _write(file: BinaryIO, form: _Form) -> None:
    data, form.pending = form.pending, bytearray()
    await asyncio.to_thread(_write_all, file, data)


def _write_all(file: BinaryIO, data: bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


class _Form:
    """Keeps the name of the only file, and its content until it is written. Other fields are skipped.

    The parser limits the size of headers.
    """

    def __init__(self) -> None:
        self.file_name: str | None = None
        self.pending = bytearray()
        self.complete = False
        self._parts = 0
        self._header = (bytearray(), bytearray())
        self._disposition = b""
        self._in_file = False

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._name,
            "on_header_value": self._value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_end,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._complete,
        }

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise BadRequest(f"The upload has more than {_MAX_PARTS} parts.")
        self._header = (bytearray(), bytearray())
        self._disposition = b""

    def _name(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def _value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def _header_end(self) -> None:
        name, value = self._header
        if name.lower() == b"content-disposition":
            self._disposition = bytes(value)
        self._header = (bytearray(), bytearray())

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"filename")
        self._in_file = name is not None
        if name is None:
            return
        if self.file_name is not None:
            raise BadRequest("The upload contains several files.", fix="Upload one file: a .py, .zip or .whl.")
        self.file_name = name.decode("utf-8", "replace")

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self.pending += data[start:end]

    def _end(self) -> None:
        self._in_file = False

    def _complete(self) -> None:
        self.complete = True
