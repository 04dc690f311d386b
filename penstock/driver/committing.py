"""The second phase of two-phase commit: how the driver commits, recommits and aborts the output of its sinks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import msgspec

from penstock.checkpoint.manifest import Committable, Manifest, NotRestorable
from penstock.checkpoint.wal import WriteAheadLog
from penstock.runtime.sink_operators import WRITERS

_log = logging.getLogger(__name__)


class Commit(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One subtask's committable for one epoch.

    The sink's uid, lineage, epoch and subtask together identify it.
    """

    lineage: str
    epoch: int
    subtask: int
    payload: bytes
    """The committable itself, as the writer returned it from ``prepare_commit``."""
    again: bool = False
    """Whether an earlier driver might already have committed it."""


@dataclass(frozen=True, kw_only=True)
class CommitContext:
    """The operator on whose behalf the driver calls a sink. One sink object can end several streams."""

    uid: str
    """Uid of the operator."""
    wal: WriteAheadLog
    """The job's write-ahead log, kept in the checkpoint storage."""


@dataclass(frozen=True, kw_only=True)
class CommitPlan:
    """When each committable of an epoch is committed."""

    before_checkpoint: list[Committable]
    """Committed before the manifest is published. Not in the manifest."""
    unrecorded: list[Committable]
    """Committed by non-durable sinks after the manifest is published. Not in the manifest."""
    in_manifest: list[Committable]
    """Committed after the manifest is published, and again by each driver that recovers from it."""


class CommittingSink(Protocol):
    """The driver's side of a sink."""

    durable: bool
    commit_before_checkpoint: bool
    concurrent_commit: bool

    def start(self, context: CommitContext) -> None: ...
    def commit(self, commits: list[Commit], context: CommitContext) -> None: ...
    def abort(self, commits: list[Commit], context: CommitContext) -> None: ...
    def abort_uncommitted(self, epoch: int, token: str | None, context: CommitContext) -> None: ...
    def clean_up(self, lineage: str, epoch: int, states: list[bytes], context: CommitContext) -> None: ...
    def finish(self, lineage: str, states: list[bytes], context: CommitContext) -> None: ...
    def settle(self, context: CommitContext) -> None: ...
    def close(self, context: CommitContext) -> None: ...


class Committer:
    """All sinks of a job, by operator uid. Call `join`, then `commit`, for each epoch.

    Sinks with `concurrent_commit` commit in `executor` while the tasks of the next epoch run. They finish before the
    next manifest is published, so a later driver recommits only the last epoch.
    """

    def __init__(
        self,
        sinks: dict[str, CommittingSink],
        lineage: str,
        wal: WriteAheadLog,
        at_least_once: bool = False,
        executor: Executor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sinks = sinks
        self._clock = clock
        self._at_least_once = at_least_once
        self._executor = executor
        self._under_way: tuple[Manifest, Future[None]] | None = None
        self._concurrent_cost: float | None = None
        """Seconds per record for the last epoch that was committed concurrently."""
        self._contexts = {uid: CommitContext(uid=uid, wal=wal) for uid in sinks}
        self._wal = wal
        self.lineage = lineage
        self._cleaned_up = False

    def start(self) -> None:
        """Start the sinks before anything is read, so that their configuration errors surface early."""
        for uid, sink in self._sinks.items():
            sink.start(self._contexts[uid])

    def plan(self, committables: Iterable[Committable]) -> CommitPlan:
        """Decide when to commit each of these committables."""
        plan = CommitPlan(before_checkpoint=[], unrecorded=[], in_manifest=[])
        for each in committables:
            sink = self._sinks[each.uid]
            if self._at_least_once and sink.commit_before_checkpoint:
                plan.before_checkpoint.append(each)
            elif sink.durable:
                plan.in_manifest.append(each)
            else:
                plan.unrecorded.append(each)
        return plan

    def forget(self) -> None:
        """Reset before the driver resumes from the last manifest, which is committed again.

        Output of attempts after that manifest is orphaned, so the next commit cleans it up.
        """
        with suppress(Exception):  # from the user's sink; the recommit reports it
            self.join()
        self._under_way = None
        self._cleaned_up = False

    def commit_now(self, epoch: int, committables: Iterable[Committable], again: bool = False) -> None:
        for uid, commits in self._by_sink(epoch, committables, again).items():
            sink = self._sinks.get(uid)
            if sink is None:
                raise NotRestorable(
                    f"Checkpoint {epoch} holds output of sink '{uid}', which this program does not have. "
                    f"Restore the sink, or give it its previous uid."
                )
            sink.commit(commits, self._contexts[uid])

    def commit(self, manifest: Manifest, records: int) -> None:
        """Commit a published manifest that covers `records` records, or start to commit it.

        Raises the exception of a sink that failed.
        """
        self._under_way = manifest, self._begin(manifest, records)
        self.check()

    def _begin(self, manifest: Manifest, records: int) -> Future[None]:
        concurrent = [each for each in manifest.committables if self._commits_concurrently(each)]
        done: Future[None] = Future()
        try:
            self.commit_now(
                manifest.id, [each for each in manifest.committables if not self._commits_concurrently(each)]
            )
        except Exception as error:  # the user's sink
            done.set_exception(error)
            return done
        if self._executor is not None and concurrent:
            return self._executor.submit(self._commit_concurrently, manifest.id, concurrent, records)
        done.set_result(None)
        return done

    def _commits_concurrently(self, committable: Committable) -> bool:
        return self._executor is not None and self._sinks[committable.uid].concurrent_commit

    def _commit_concurrently(self, epoch: int, committables: list[Committable], records: int) -> None:
        began = self._clock()
        self.commit_now(epoch, committables)
        if records:
            self._concurrent_cost = (self._clock() - began) / records

    def concurrent_seconds(self, manifest: Manifest, records: int) -> float | None:
        """Estimate how long committing this many records takes while the next epoch runs.

        None before the first such commit is complete.
        """
        if not any(map(self._commits_concurrently, manifest.committables)):
            return 0.0
        return None if self._concurrent_cost is None else self._concurrent_cost * records

    def join(self) -> None:
        """Wait until the commit in progress is complete.

        Raises the exception of a sink that failed, on every call until `forget`: no epoch can follow one that is not
        committed.
        """
        if self._under_way is not None:
            manifest, work = self._under_way
            work.result()
            self._under_way = None
            self._committed(manifest)

    def check(self) -> None:
        """Raise the exception of a sink that failed, if any, without waiting."""
        if self._under_way is not None and self._under_way[1].done():
            self.join()

    def abort(self, epoch: int, committables: Iterable[Committable]) -> None:
        """Abort the output that a failed attempt has prepared. The next attempt writes it again."""
        self.join()
        for uid, commits in self._by_sink(epoch, committables, False).items():
            if self._sinks[uid].durable:
                self._sinks[uid].abort(commits, self._contexts[uid])
        # Output of this attempt without a report is orphaned once another attempt is published.
        self._cleaned_up = False

    def abort_uncommitted(self, epoch: int, token: str | None) -> None:
        """Abort what attempts at epochs after `epoch` prepared: all of them, or those of the driver with `token`.

        Calls every sink, then raises the first exception.
        """
        failed: Exception | None = None
        for uid, sink in self._sinks.items():
            if sink.durable:
                try:
                    sink.abort_uncommitted(epoch, token, self._contexts[uid])
                except Exception as error:  # the user's sink
                    failed = failed or error
        if failed is not None:
            raise failed

    def _committed(self, manifest: Manifest) -> None:
        self._wal.committed(manifest.id)
        # This is the first checkpoint of this driver, or the first after a failed attempt.
        if not self._cleaned_up:
            self.clean_up(manifest)

    def clean_up(self, manifest: Manifest) -> None:
        """Remove the leftovers of attempts up to a manifest that is committed."""
        self._cleaned_up = True
        for uid, sink in self._sinks.items():
            if sink.durable:
                sink.clean_up(self.lineage, manifest.id, _states(manifest, uid), self._contexts[uid])

    def settle(self) -> None:
        for uid, sink in self._sinks.items():
            sink.settle(self._contexts[uid])

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()
        for uid, sink in self._sinks.items():
            try:
                sink.close(self._contexts[uid])
            except Exception:  # from the user's sink; the job's output stays committed, and other sinks still close
                _log.exception("Failed to close sink '%s'.", uid)

    def finish(self, manifest: Manifest) -> None:
        for uid, sink in self._sinks.items():
            if sink.durable:
                sink.finish(self.lineage, _states(manifest, uid), self._contexts[uid])

    def _by_sink(self, epoch: int, committables: Iterable[Committable], again: bool) -> dict[str, list[Commit]]:
        commits: dict[str, list[Commit]] = {}
        for each in committables:
            commits.setdefault(each.uid, []).append(
                Commit(lineage=self.lineage, epoch=epoch, subtask=each.subtask, payload=each.payload, again=again)
            )
        return commits


def _states(manifest: Manifest, uid: str) -> list[bytes]:
    snapshot = manifest.operators.get(uid)
    shares = None if snapshot is None else snapshot.operator_state.get(WRITERS)
    return [] if shares is None else [state for share in shares.by_subtask for state in share]
