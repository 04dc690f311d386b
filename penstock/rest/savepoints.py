"""Endpoints that look into savepoints. They read metadata only, and neither decode values nor run saved code.

A path can contain credentials, and reading one contacts the storage that it names. It is therefore sent in the body of
a POST, which is neither logged by proxies nor sent by a link on a foreign page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from penstock.cluster.gateway import Timeout
from penstock.common.options import store_options
from penstock.rest.bodies import decoded, location
from penstock.rest.service import Service
from penstock.tables.savepoint import Savepoint

T = TypeVar("T")


class InspectRequest(msgspec.Struct, kw_only=True, frozen=True):
    path: str


class DiffRequest(msgspec.Struct, kw_only=True, frozen=True):
    one: str
    other: str


class StateDescription(msgspec.Struct, kw_only=True, frozen=True):
    name: str
    type: str


class OperatorDescription(msgspec.Struct, kw_only=True, frozen=True):
    uid: str
    name: str
    parallelism: int
    max_parallelism: int
    size: int
    """Bytes of keyed state."""
    states: list[StateDescription]
    operator_state: dict[str, int]
    """Number of elements by name."""


class SourceDescription(msgspec.Struct, kw_only=True, frozen=True):
    uid: str
    name: str
    records: int
    positions: list[str]


class SavepointDescription(msgspec.Struct, kw_only=True, frozen=True):
    id: str
    job: str
    path: str
    created: int
    """In milliseconds since 1970."""
    penstock: str
    checkpoint: int
    size: int
    operators: list[OperatorDescription]
    sources: list[SourceDescription]


class DifferenceDescription(msgspec.Struct, kw_only=True, frozen=True):
    of: str
    uid: str
    what: str
    was: Any
    now: Any


async def inspect(service: Service, request: Request) -> SavepointDescription:
    """POST /penstock/v1/savepoints/inspect."""
    body = await decoded(request, InspectRequest)
    return await _in_time(service, lambda: _described(_loaded(service, body.path)))


async def diff(service: Service, request: Request) -> list[DifferenceDescription]:
    """POST /penstock/v1/savepoints/diff."""
    body = await decoded(request, DiffRequest)
    return await _in_time(service, lambda: _differences(_loaded(service, body.one), _loaded(service, body.other)))


def _loaded(service: Service, path: str) -> Savepoint:
    return Savepoint.load(location("savepoint path", path), store_options(service.gateway.settings))


def _differences(one: Savepoint, other: Savepoint) -> list[DifferenceDescription]:
    return [DifferenceDescription(**each._asdict()) for each in one.compared(other)]


def _described(savepoint: Savepoint) -> SavepointDescription:
    data = savepoint.metadata
    positions = savepoint.positions()
    return SavepointDescription(
        id=data.id,
        job=data.job,
        path=savepoint.path,
        created=data.created,
        penstock=data.penstock,
        checkpoint=data.checkpoint,
        size=data.size,
        operators=[
            OperatorDescription(
                uid=uid,
                name=operator.snapshot.name,
                parallelism=operator.snapshot.parallelism,
                max_parallelism=operator.snapshot.max_parallelism,
                size=operator.size,
                states=[StateDescription(name=name, type=str(kind)) for name, kind in operator.snapshot.states.items()],
                operator_state=operator.operator_state(),
            )
            for uid, operator in data.operators.items()
        ],
        sources=[
            SourceDescription(uid=uid, name=source.name, records=source.records, positions=positions[uid])
            for uid, source in data.sources.items()
        ],
    )


async def _in_time(service: Service, read: Callable[[], T]) -> T:
    """Read in another thread, for `web.timeout` at most: storage can hang."""
    try:
        async with asyncio.timeout(service.timeout_s):
            return await asyncio.to_thread(read)
    except TimeoutError:
        raise Timeout("The storage of the savepoint did not answer in time.", fix="Try again later.") from None
