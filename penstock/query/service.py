"""Answers requests from the replicas of this process. Knows nothing of the network."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.common.options.query import MAX_RESULT, SCAN_TIMEOUT, SERVER_THREADS
from penstock.query.errors import BadRequest, CheckpointGone, ResultTooLarge, UnknownJob
from penstock.query.followed_job import FollowedJob
from penstock.query.follower import Follower, Readable
from penstock.query.limits import Turns, check_result
from penstock.query.protocol import (
    CHECKPOINT,
    KIND,
    LINEAGE,
    LONGEST_LEASE_MS,
    RESET,
    TIMESTAMP,
    TYPE,
    AnyRequest,
    Changes,
    Describe,
    Description,
    Entries,
    Found,
    FoundEntries,
    FoundMany,
    Get,
    GetMany,
    Held,
    Hold,
    ReadRequest,
    Release,
    Request,
    Scan,
    encode,
)
from penstock.query.reads import Reads

_CHANGES = pa.schema([pa.field("changes", pa.binary())])
_ATTEMPTS = 5
"""For a read of the newest checkpoint that the replicas leave behind while it is read."""


class QueryService:
    """The state of some jobs. Used by any number of threads."""

    def __init__(
        self,
        jobs: Mapping[str, FollowedJob],
        threads: int = SERVER_THREADS.default,
        max_result: int = MAX_RESULT.default,
        scan_timeout_ms: int = SCAN_TIMEOUT.default,
    ) -> None:
        """`jobs`: by id. The owner can change them."""
        self._jobs = jobs
        self._turns = Turns(threads)
        self._max_result = max_result
        self._scan_timeout_s = scan_timeout_ms / 1000

    def answer(self, request: AnyRequest) -> bytes:
        """Return the encoded answer to a request for something other than a stream. Raises QueryError."""
        if not isinstance(request, Request):
            answer = encode([job.description() for job in list(self._jobs.values())])
        elif isinstance(request, Describe):
            answer = encode(self._described(request))
        elif isinstance(request, Hold):
            job = self.job(request.job)
            if request.checkpoint is None and not request.lease:
                self._await(job, request)
            lease_ms = min(request.lease_ms, LONGEST_LEASE_MS)
            readable, lineage, lease = job.hold(request.checkpoint, lease_ms, request.lease)
            answer = encode(Held(checkpoint=readable.version.id, lineage=lineage, lease=lease))
        elif isinstance(request, Release):
            self.job(request.job).release(request.lease)
            answer = b""
        elif isinstance(request, (Get, GetMany, Entries)):
            with self._turns.turn():
                answer = self._read(request)
        else:
            raise BadRequest("A stream is not an action.", fix="Use a client of the version of the server.")
        check_result(len(answer), self._max_result)
        return answer

    def stream(self, request: Scan | Changes) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the answer to a request as a stream. Raises QueryError, as does the stream."""
        with self._turns.turn():
            if isinstance(request, Scan):
                return self._scan(request)
            return self._changes(request)

    def job(self, named: str) -> FollowedJob:
        """Return the job with an id or name. Raises UnknownJob."""
        found = self._jobs.get(named) or next((job for job in self._jobs.values() if job.name == named), None)
        if found is None:
            known = sorted(f"{job.name} ({job.id})" for job in self._jobs.values())
            raise UnknownJob(
                f"No job '{named}' is served here, only {', '.join(known) or 'none'}.",
                fix="Check its id with penstock list, and whether it runs with queryable-state.enable.",
            )
        return found

    def describe(self, job: FollowedJob) -> Description:
        """Return the readable checkpoints and the states of a job.

        Raises NotServed for a job without a checkpoint.
        """
        job.reading()
        return job.description()

    def _described(self, request: Describe) -> Description:
        job = self.job(request.job)
        self._await(job, request)
        return self.describe(job)

    def _await(self, job: FollowedJob, request: Describe | Hold) -> None:
        """Wait until the newest checkpoint is the one that the client has seen, or a later one."""
        job.check_newest(request.seen_in)
        follower, _ = job.reading()
        follower.at(None, request.least_in(follower.lineage), time.monotonic() + request.deadline_ms / 1000)

    def _read(self, request: ReadRequest) -> bytes:
        for attempt in range(_ATTEMPTS):
            job = self.job(request.job)
            job.check_newest(request.seen_in)
            follower, reads = job.reading()
            readable = _readable(follower, request)
            try:
                return encode(self._answer(request, readable, reads, follower.lineage))
            except CheckpointGone:
                if request.checkpoint is not None or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _answer(self, request: ReadRequest, readable: Readable, reads: Reads, lineage: str) -> Any:
        number = readable.version.id
        state = reads.state(readable, request.state).state
        if isinstance(request, Get):
            found = reads.get(readable, request.state, request.key, request.window)
            return Found(checkpoint=number, lineage=lineage, kind=state.kind, type=state.type, parts=found)
        if isinstance(request, GetMany):
            many = reads.get_many(readable, request.state, request.keys, request.window, self._check)
            return FoundMany(checkpoint=number, lineage=lineage, kind=state.kind, type=state.type, parts=many)
        assert isinstance(request, Entries)
        page = reads.entries(readable, request.state, request.key, request.wanted, request.window)
        return FoundEntries(
            checkpoint=number,
            lineage=lineage,
            kind=state.kind,
            type=state.type,
            parts=page.parts,
            cursor=page.cursor,
        )

    def _check(self, size: int) -> None:
        check_result(size, self._max_result)

    def _scan(self, request: Scan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        job = self.job(request.job)
        job.check_newest(request.seen_in)
        follower, reads = job.reading()
        # Held until the stream ends, or until the generator is dropped.
        readable = follower.keep(_readable(follower, request).version.id)
        try:
            schema, batches = reads.scan(readable, request.state, request.keys_as_text, request.keys, request.blocks)
        except BaseException:
            follower.release(readable.version.id)
            raise
        kept = _until_released(follower, readable.version.id, self._timed(batches))
        next(kept)
        number, timestamp = str(readable.version.id), str(readable.manifest.timestamp)
        metadata = {**(schema.metadata or {}), CHECKPOINT: number, LINEAGE: follower.lineage, TIMESTAMP: timestamp}
        return schema.with_metadata(metadata), kept

    def _timed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        until = time.monotonic() + self._scan_timeout_s
        for batch in batches:
            if time.monotonic() > until:
                raise ResultTooLarge(
                    f"The scan was aborted after {self._scan_timeout_s:g} s.",
                    fix="Read faster, scan less, or raise queryable-state.scan-timeout.",
                )
            yield batch

    def _changes(self, request: Changes) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        job = self.job(request.job)
        job.check_newest(request.seen_in)
        follower, reads = job.reading()
        # A number of another lineage says nothing about this one.
        since = request.since if request.seen_in in ("", follower.lineage) else None
        if since is not None:
            follower.at(at_least=since + 1, deadline=time.monotonic() + request.deadline_ms / 1000)
        found = reads.changes(request.state, since, request.checkpoint, request.blocks)
        state = reads.state(follower.at(), request.state).state
        metadata = {
            CHECKPOINT: str(found.checkpoint),
            LINEAGE: follower.lineage,
            RESET: str(int(found.reset)),
            KIND: state.kind,
            TYPE: state.type,
        }
        batches = (pa.record_batch([pa.array([encode(rows)], pa.binary())], schema=_CHANGES) for rows in found.changes)
        return _CHANGES.with_metadata(metadata), self._timed(batches)


def _readable(follower: Follower, request: ReadRequest) -> Readable:
    if request.lineage not in ("", follower.lineage):
        raise CheckpointGone(
            f"Checkpoint {request.checkpoint} belongs to a former run of the job, before it started from a savepoint "
            f"or from scratch.",
            fix="Read the newest checkpoint, or pin it.",
        )
    deadline = time.monotonic() + request.deadline_ms / 1000
    return follower.at(request.checkpoint, request.least_in(follower.lineage), deadline)


def _until_released(follower: Follower, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    """Yield None, then the batches, and release the checkpoint at the end."""
    try:
        yield None
        yield from batches
    finally:
        follower.release(number)
