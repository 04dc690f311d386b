"""Encodes the answers of views, and reuses the bytes as long as the snapshot is the same object.

Many clients poll the same few answers. Encoding one takes about a millisecond for a large job; returning the cached
bytes takes microseconds. An answer contains the current time and durations, so it is reused for a second at most.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from penstock.cluster.gateway import Gateway
from penstock.common.json_text import to_json
from penstock.driver.job_snapshot import JobSnapshot
from penstock.rest.views import View

_REUSE_S = 1.0
_MAX_ENTRIES = 1000
_OVERVIEW = "/jobs/overview"

encode = to_json


class _Cached(NamedTuple):
    snapshot: JobSnapshot
    until: float
    body: bytes


class ViewCache:
    """The answers of the views of one service."""

    def __init__(self, gateway: Gateway, views: Mapping[str, View]) -> None:
        self._gateway = gateway
        self._views = views
        self._of_jobs: dict[tuple[str, ...], _Cached] = {}
        self._in_overview: dict[str, _Cached] = {}

    def body(self, path: str, parameters: Mapping[str, str], query: bytes) -> bytes:
        """Return the encoded answer of a view. Raises UnknownJob, NotFound, BadQuery."""
        job = parameters.get("jobid")
        if job is not None:
            return self._of_job(path, job, parameters, query)
        if path == _OVERVIEW:
            return self._overview()
        return encode(self._views[path](self._gateway.jobs(), parameters, query_of(query)))

    def _of_job(self, path: str, job: str, parameters: Mapping[str, str], query: bytes) -> bytes:
        snapshot = self._gateway.job(job)
        view = self._views[path]
        if query or len(parameters) > 1:
            return encode(view(snapshot, parameters, query_of(query)))
        key = (path, job)
        now = time.monotonic()
        cached = self._of_jobs.get(key)
        if cached is None or cached.snapshot is not snapshot or cached.until <= now:
            if len(self._of_jobs) >= _MAX_ENTRIES:
                self._of_jobs.clear()
            cached = self._of_jobs[key] = _Cached(snapshot, now + _REUSE_S, encode(view(snapshot, parameters, {})))
        return cached.body

    def _overview(self) -> bytes:
        """Join the parts of all jobs. Each job has its own part, since some job changes at almost every request."""
        now = time.monotonic()
        before, self._in_overview = self._in_overview, {}
        view = self._views[_OVERVIEW]
        for snapshot in self._gateway.jobs():
            cached = before.get(snapshot.id)
            if cached is None or cached.snapshot is not snapshot or cached.until <= now:
                (details,) = view([snapshot], {}, {}).jobs
                cached = _Cached(snapshot, now + _REUSE_S, encode(details))
            self._in_overview[snapshot.id] = cached
        return b'{"jobs":[' + b",".join([cached.body for cached in self._in_overview.values()]) + b"]}"


def query_of(query: bytes) -> dict[str, str]:
    """Return the query of a request by name. Values of a repeated name are joined with commas."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("utf-8", "replace"), keep_blank_values=True):
        found[name] = f"{found[name]},{value}" if name in found else value
    return found
