"""The client of queryable state for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import pyarrow as pa

from penstock.query.client import QueryableStateClient
from penstock.query.client_types import CheckpointChanges, MapPage, Read
from penstock.query.pinned import PinnedReads
from penstock.query.protocol import Description

T = TypeVar("T")
_END = object()


class AsyncQueryableStateClient:
    """``QueryableStateClient`` for asyncio: the same reads and arguments, as coroutines that block no event loop.

    Args:
        arguments: Those of ``QueryableStateClient``.
        options: Those of ``QueryableStateClient``.

    Example:
        >>> async with AsyncQueryableStateClient("localhost") as client:
        ...     total = await client.get("orders", "totals", "ann")
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._client = QueryableStateClient(*arguments, **options)

    async def _run(self, read: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._client.submit(read))

    async def jobs(self) -> list[Description]:
        """Return the jobs that the proxy knows."""
        return await self._run(self._client.jobs)

    async def describe(self, job: str) -> Description:
        """Return the readable checkpoints of a job and its queryable states.

        Args:
            job: The id of the job, or its name.
        """
        return await self._run(lambda: self._client.describe(job))

    async def get(self, job: str, state: str, key: Any, **options: Any) -> Any:
        """Return what a key has.

        Args:
            job: The id of the job, or its name.
            state: The name of the queryable state.
            key: The key.
            options: Further arguments of ``QueryableStateClient.get``.
        """
        return await self._run(lambda: self._client.get(job, state, key, **options))

    async def read(self, job: str, state: str, key: Any, **options: Any) -> Read:
        """Return what a key has, with the number of the checkpoint.

        Args:
            job: The id of the job, or its name.
            state: The name of the queryable state.
            key: The key.
            options: Further arguments of ``QueryableStateClient.get``.
        """
        return await self._run(lambda: self._client.read(job, state, key, **options))

    async def get_many(self, job: str, state: str, keys: list[Any], **options: Any) -> dict[Any, Any]:
        """Return what several keys have at one checkpoint, by key.

        Args:
            job: The id of the job, or its name.
            state: The name of the queryable state.
            keys: The keys.
            options: Further arguments of ``QueryableStateClient.get_many``.
        """
        return await self._run(lambda: self._client.get_many(job, state, keys, **options))

    async def entries(self, job: str, state: str, key: Any, **options: Any) -> MapPage:
        """Return entries of the map of a key.

        Args:
            job: The id of the job, or its name.
            state: The name of the queryable state.
            key: The key.
            options: Further arguments of ``QueryableStateClient.entries``.
        """
        return await self._run(lambda: self._client.entries(job, state, key, **options))

    async def scan(self, job: str, state: str, **options: Any) -> AsyncIterator[pa.RecordBatch]:
        """Yield the record batches of a complete state.

        Args:
            job: The id of the job, or its name.
            state: The name of the queryable state.
            options: Further arguments of ``QueryableStateClient.scan``.
        """
        reader = await self._run(lambda: self._client.scan(job, state, **options))
        async for batch in self._each(iter(reader)):
            yield batch

    async def subscribe(
        self, job: str, state: str, since: int | None = None, until: int | None = None, lineage: str = ""
    ) -> AsyncIterator[CheckpointChanges]:
        """Yield the changes of each checkpoint, in order, each once.

        Args:
            job: The id of the job, or its name.
            state: The name of the queryable state.
            since: The checkpoint whose state you have; by default the complete state comes first.
            until: The checkpoint to stop after; none by default.
            lineage: The ``lineage`` of the changes that you have; see ``QueryableStateClient.subscribe``.
        """
        async for changes in self._each(self._client.subscribe(job, state, since, until, lineage)):
            yield changes

    async def _each(self, items: Any) -> AsyncIterator[Any]:
        while (item := await self._run(lambda: next(items, _END))) is not _END:
            yield item

    @asynccontextmanager
    async def pinned(self, job: str, checkpoint: int | None = None, lease: float = 60.0) -> AsyncIterator[AsyncPinned]:
        """Return reads that all show one checkpoint.

        Args:
            job: The id of the job, or its name.
            checkpoint: The checkpoint; the newest one by default.
            lease: How many seconds the server keeps it without a read.
        """
        context = self._client.pinned(job, checkpoint, lease)
        pinned = await self._run(context.__enter__)
        try:
            yield AsyncPinned(pinned, self._run)
        finally:
            await self._run(lambda: context.__exit__(None, None, None))

    async def close(self) -> None:
        """Close the connection."""
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class AsyncPinned:
    """Reads that all show one checkpoint. ``AsyncQueryableStateClient.pinned`` returns it."""

    def __init__(self, pinned: PinnedReads, run: Callable[[Callable[[], Any]], Any]) -> None:
        self._pinned = pinned
        self._run = run
        self.checkpoint = pinned.checkpoint
        """The checkpoint that all reads show."""

    async def get(self, state: str, key: Any, **options: Any) -> Any:
        """Return what a key has.

        Args:
            state: The name of the queryable state.
            key: The key.
            options: Further arguments of ``QueryableStateClient.get``.
        """
        return await self._run(lambda: self._pinned.get(state, key, **options))

    async def get_many(self, state: str, keys: list[Any], **options: Any) -> dict[Any, Any]:
        """Return what several keys have, by key.

        Args:
            state: The name of the queryable state.
            keys: The keys.
            options: Further arguments of ``QueryableStateClient.get_many``.
        """
        found: dict[Any, Any] = await self._run(lambda: self._pinned.get_many(state, keys, **options))
        return found
