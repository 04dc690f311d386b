"""Reads of one checkpoint, which the server keeps for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.query.client_types import MapPage

if TYPE_CHECKING:
    from penstock.query.client import QueryableStateClient


class PinnedReads:
    """Reads that all show one checkpoint. ``QueryableStateClient.pinned`` returns it."""

    def __init__(self, client: QueryableStateClient, job: str, checkpoint: int, lease: str, seconds: float) -> None:
        self._client = client
        self._job = job
        self.checkpoint = checkpoint
        """The checkpoint that all reads show."""
        self.lease = lease
        """The lease, which the server keeps the checkpoint for."""
        self._seconds = seconds
        self._renewed = time.monotonic()

    def get(self, state: str, key: Any, **options: Any) -> Any:
        """Return what a key has; see ``QueryableStateClient.get``.

        Args:
            state: The name of the queryable state.
            key: The key.
            options: Further arguments of ``QueryableStateClient.get``.
        """
        return self._renewed_client().get(self._job, state, key, checkpoint=self.checkpoint, **options)

    def get_many(self, state: str, keys: list[Any], **options: Any) -> dict[Any, Any]:
        """Return what several keys have; see ``QueryableStateClient.get_many``.

        Args:
            state: The name of the queryable state.
            keys: The keys.
            options: Further arguments of ``QueryableStateClient.get_many``.
        """
        return self._renewed_client().get_many(self._job, state, keys, checkpoint=self.checkpoint, **options)

    def entries(self, state: str, key: Any, **options: Any) -> MapPage:
        """Return entries of a map; see ``QueryableStateClient.entries``.

        Args:
            state: The name of the queryable state.
            key: The key.
            options: Further arguments of ``QueryableStateClient.entries``.
        """
        return self._renewed_client().entries(self._job, state, key, checkpoint=self.checkpoint, **options)

    def scan(self, state: str, **options: Any) -> pa.RecordBatchReader:
        """Return a complete state; see ``QueryableStateClient.scan``.

        Args:
            state: The name of the queryable state.
            options: Further arguments of ``QueryableStateClient.scan``.
        """
        return self._renewed_client().scan(self._job, state, checkpoint=self.checkpoint, **options)

    def _renewed_client(self) -> QueryableStateClient:
        now = time.monotonic()
        if now - self._renewed > self._seconds / 3:
            self.lease = self._client.renew(self._job, self.lease, self._seconds)
            self._renewed = now
        return self._client
