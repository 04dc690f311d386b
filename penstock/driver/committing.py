"""The second phase of two-phase commit: what the driver tells its sinks, once, again, or never."""

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
from penstock.driver.snapshots import in_order
from penstock.runtime.report import Report
from penstock.runtime.sink_operators import WRITERS

_log = logging.getLogger(__name__)


class Commit(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One subtask's committable of one epoch. The sink's uid, lineage, epoch and subtask together identify it."""

    lineage: str
    epoch: int
    subtask: int
    payload: bytes
    again: bool = False
    """Whether a driver before this one may have committed it already."""


@dataclass(frozen=True, kw_only=True)
class CommitContext:
    """The operator that the driver calls a sink for: one sink object can end several streams."""

    uid: str
    wal: WriteAheadLog
    """The job's write-ahead log, with the storage of its checkpoints."""


@dataclass(frozen=True, kw_only=True)
class CommitPlan:
    """When each committable of an epoch is committed."""

    before_checkpoint: list[Committable]
    """Before the manifest is published. Not in the manifest."""
    unrecorded: list[Committable]
    """After the manifest is published, by sinks that are not durable. Not in the manifest."""
    in_manifest: list[Committable]
    """After the manifest is published, and again by each driver that recovers from it."""


class CommittingSink(Protocol):
    """The driver's half of a sink."""

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
    """All sinks of a job, by operator uid. Order of calls for each epoch: `join`, `commit`.

    Sinks that can commit in `executor`, while the tasks of the next epoch run, and are done before its manifest is
    published: a driver that comes after this one commits the last one again, and no other.
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
        """Seconds per record of the last epoch that was committed concurrently with another one."""
        self._contexts = {uid: CommitContext(uid=uid, wal=wal) for uid in sinks}
        self._wal = wal
        self.lineage = lineage
        self._cleaned_up = False

    def start(self) -> None:
        """Let sinks say what is wrong with them while nothing has been read."""
        for uid, sink in self._sinks.items():
            sink.start(self._contexts[uid])

    def plan(self, reports: Iterable[Report]) -> CommitPlan:
        """Decide when the committables in these reports are committed."""
        plan = CommitPlan(before_checkpoint=[], unrecorded=[], in_manifest=[])
        for each in committables_of(reports):
            sink = self._sinks[each.uid]
            if self._at_least_once and sink.commit_before_checkpoint:
                plan.before_checkpoint.append(each)
            elif sink.durable:
                plan.in_manifest.append(each)
            else:
                plan.unrecorded.append(each)
        return plan

    def forget(self) -> None:
        """The driver goes on from the last manifest, which is committed again: what its attempts since left behind is
        nobody's."""
        with suppress(Exception):  # the user's sink, which is asked again
            self.join()
        self._under_way = None
        self._cleaned_up = False

    def commit_now(self, epoch: int, committables: Iterable[Committable], again: bool = False) -> None:
        for uid, commits in self._by_sink(epoch, committables, again).items():
            sink = self._sinks.get(uid)
            if sink is None:
                raise NotRestorable(
                    f"Checkpoint {epoch} holds output of sink '{uid}', which this program does not have. "
                    f"Give the sink the uid it had."
                )
            sink.commit(commits, self._contexts[uid])

    def commit(self, manifest: Manifest, records: int) -> None:
        """The manifest of so many records is published: commit what it holds, or begin to. Raises what a sink failed
        with."""
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
        """How long sinks commit this many records while the next epoch runs; None before any such commit is over."""
        if not any(map(self._commits_concurrently, manifest.committables)):
            return 0.0
        return None if self._concurrent_cost is None else self._concurrent_cost * records

    def join(self) -> None:
        """Wait until nothing is being committed any more. Raises what a sink failed with, and again to whoever comes
        until it is forgotten: no epoch may follow one that is not committed."""
        if self._under_way is not None:
            manifest, work = self._under_way
            work.result()
            self._under_way = None
            self._committed(manifest)

    def check(self) -> None:
        """Raise what a sink failed with, if one did, and do not wait."""
        if self._under_way is not None and self._under_way[1].done():
            self.join()

    def abort(self, epoch: int, reports: Iterable[Report]) -> None:
        """The attempt whose reports these are has failed. The next one writes anew."""
        self.join()
        for uid, commits in self._by_sink(epoch, committables_of(reports), False).items():
            if self._sinks[uid].durable:
                self._sinks[uid].abort(commits, self._contexts[uid])
        # What of that attempt is not known here is nobody's as soon as another one is published.
        self._cleaned_up = False

    def abort_uncommitted(self, epoch: int, token: str | None) -> None:
        """Nothing that attempts at later epochs prepared will be committed; where a token is given, attempts of that
        driver. All sinks are asked; raises what the first one failed with."""
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
        # The first checkpoint of this driver's own, or the first after a failed attempt.
        if not self._cleaned_up:
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
            except Exception:  # the user's; what the job did stays done, and the other sinks are to be closed too
                _log.exception("The sink '%s' could not be closed.", uid)

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


def committables_of(reports: Iterable[Report]) -> list[Committable]:
    """In the order of subtasks, whatever order the reports came in."""
    return [
        Committable(uid=part.uid, subtask=report.subtask, payload=part.committable)
        for report in in_order(reports)
        for part in report.operators
        if part.committable is not None
    ]


def _states(manifest: Manifest, uid: str) -> list[bytes]:
    snapshot = manifest.operators.get(uid)
    shares = None if snapshot is None else snapshot.operator_state.get(WRITERS)
    return [] if shares is None else [state for share in shares.by_subtask for state in share]
