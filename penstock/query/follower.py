"""Follows one lineage: keeps replicas of its queryable state at the last checkpoints.

The newest manifest is always found by listing, and its chain is walked back. Following the numbers forward could accept
a number that was swept and that a former driver has published again.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from penstock.checkpoint.fencing import followed
from penstock.checkpoint.manifest import BadManifest, Manifest, Version, load, manifest_name
from penstock.checkpoint.pins import Pin
from penstock.common.options.query import RETAINED_FOR_QUERIES
from penstock.query.errors import CheckpointNotReached, NotServed
from penstock.query.registry import registered
from penstock.query.replica import BlockReplica, Layer, gone, read_layer
from penstock.state.blocks import FEWEST, Blocks
from penstock.state.engines.base import Engine
from penstock.state.engines.memory import MemoryEngine
from penstock.state.storage import MissingObject, Storage

_log = logging.getLogger(__name__)

_LIST_EVERY_S = 1.0
"""Between two listings of a lineage whose next number does not appear: after a gap, it never does."""
_RENEW_S = 5.0
"""How often the pin in the storage moves on. Every number in between stays readable."""
_LONGEST_WALK = 1000
"""Checkpoints to catch up with one by one. Beyond, the replicas are built again."""
_MOST_HELD = 1000
"""Checkpoints that a hold keeps readable beyond the retained ones. Each takes the memory of its changes."""


class Share(NamedTuple):
    """The part of the key groups that a server has: every `servers`-th run, from `first` on."""

    first: int = 0
    servers: int = 1

    def has(self, run: int) -> bool:
        """Return whether the server has the run of key groups of this number."""
        return run % self.servers == self.first


def runs_of(max_parallelism: int) -> Blocks:
    """Return the runs of key groups that servers keep. They do not depend on the parallelism of the job."""
    return Blocks(max_parallelism=max_parallelism, count=min(FEWEST, max_parallelism))


class Readable(NamedTuple):
    """A checkpoint that can be read."""

    version: Version
    manifest: Manifest


class Follower:
    """The readable checkpoints of one lineage. One thread calls `poll`; any thread reads."""

    def __init__(
        self,
        storage: Storage,
        retained: int = RETAINED_FOR_QUERIES.default,
        share: Share | None = None,
        clock: Callable[[], float] = time.monotonic,
        open_engine: Callable[[str, range], Engine] = lambda uid, groups: MemoryEngine(),
    ) -> None:
        """`open_engine` opens a replica that belongs to this follower alone."""
        self.storage = storage
        self.share = share or Share()
        self._retained = retained
        self._clock = clock
        self._open_engine = open_engine
        self._pin = Pin(storage, secrets.token_hex(8))
        self._renewed = self._listed = -_RENEW_S
        self._changed = threading.Condition()
        self._readable: list[Readable] = []
        self._replicas: dict[str, dict[int, BlockReplica]] = {}
        """By uid, and number of the run."""
        self._holds: dict[int, int] = {}
        self._gone = self._closed = False
        self.rebuilt = 0
        """How often the replicas were built from bases."""

    @property
    def newest(self) -> int:
        """The newest readable checkpoint, or 0."""
        readable = self._readable
        return readable[-1].version.id if readable else 0

    @property
    def oldest(self) -> int:
        """The oldest readable checkpoint, or 0."""
        readable = self._readable
        return readable[0].version.id if readable else 0

    @property
    def ended(self) -> bool:
        """Whether no further checkpoint is expected: the job has finished, or its checkpoints are gone."""
        readable = self._readable
        return self._gone or self._closed or bool(readable and readable[-1].manifest.ended)

    # -- following -------------------------------------------------------------------------------------------------

    def poll(self) -> bool:
        """Make newer checkpoints readable, if there are any. Return whether there were."""
        if not self._something_new():
            return False
        try:
            found = followed(self.storage)
            self._gone = found is None and bool(self._readable)
            if found is None:
                return False
            manifest, version = found
            if not manifest.parent and not manifest.queryable:
                # Made from a savepoint. Only the tasks of the first epoch tell which states are queryable.
                return False
            if version.id <= self.newest:
                # A former driver has published it, and will take it back.
                return False
            advanced = self._catch_up(manifest, version) or self._rebuild(manifest, version)
        except (MissingObject, BadManifest) as error:
            # Swept while it was read, or taken back by a former driver. The next poll finds a later one.
            _log.debug("Checkpoints of %s changed while they were read: %s", self.storage.where, error)
            self._listed = -_LIST_EVERY_S
            return False
        self._retire()
        return advanced

    def _something_new(self) -> bool:
        now = self._clock()
        if now - self._listed >= _LIST_EVERY_S or self.storage.exists(manifest_name(self.newest + 1)):
            self._listed = now
            return True
        return False

    def renew_pin(self) -> None:
        """Move the pin on, from time to time. A write to the storage can take long, so another thread calls it."""
        now = self._clock()
        if self.newest and now - self._renewed >= _RENEW_S:
            self._renewed = now
            self._pin.move(self.newest)

    def _catch_up(self, manifest: Manifest, version: Version) -> bool:
        """Add each checkpoint up to this one. Return False if that is impossible, so that replicas must be rebuilt."""
        if not self._readable:
            return False
        known = self._readable[-1].version
        if version.id - known.id > _LONGEST_WALK:
            return False
        waiting = [Readable(version, manifest)]
        while waiting[-1].version.id > known.id + 1:
            child = waiting[-1].manifest
            try:
                parent, parents = load(self.storage, child.id - 1, child.parent)
            except MissingObject:
                return False
            waiting.append(Readable(parents, parent))
        if waiting[-1].manifest.parent != known.digest:
            return False
        while waiting:
            if not self._advance(waiting.pop()):
                return False
            self._retire()
        return True

    def _advance(self, readable: Readable) -> bool:
        """Add one checkpoint, for all replicas or none."""
        before = self._readable[-1].version
        layers: list[tuple[BlockReplica, Layer]] = []
        added: dict[str, dict[int, BlockReplica]] = {}
        for uid, runs in self._wanted(readable.manifest).items():
            kept = self._replicas.get(uid)
            if kept is None:
                added[uid] = self._built(uid, runs, readable.version)
                continue
            own = frozenset(group for replica in kept.values() for group in replica.groups)
            wanted = None if len(own) == runs.max_parallelism else own
            try:
                layer = read_layer(self.storage, uid, before, readable.version, runs.max_parallelism, wanted)
            except MissingObject:
                return False
            if layer is None:
                return False
            layers += [(replica, layer) for replica in kept.values()]
        for replica, layer in layers:
            replica.add(layer)
        self._replicas = self._replicas | added
        self._publish([*self._readable, readable])
        return True

    def _rebuild(self, manifest: Manifest, version: Version) -> bool:
        """Read the complete state of the newest checkpoint. Readers then see no earlier one."""
        self._renewed = self._clock()
        self._pin.move(version.id)
        # Only now is it certain that its files stay.
        manifest, version = followed(self.storage) or (manifest, version)
        former = self._replicas
        wanted = self._wanted(manifest)
        self._replicas = {uid: self._built(uid, runs, version) for uid, runs in wanted.items()}
        self._publish([Readable(version, manifest)])
        self.rebuilt += 1
        for replica in (each for replicas in former.values() for each in replicas.values()):
            replica.close()
        return True

    def _built(self, uid: str, runs: Blocks, version: Version) -> dict[int, BlockReplica]:
        replicas = {}
        for run in filter(self.share.has, runs.numbers):
            groups = runs.groups(run)
            replicas[run] = BlockReplica(self.storage, uid, groups, self._open_engine(uid, groups))
            replicas[run].build(version)
        return replicas

    @staticmethod
    def _wanted(manifest: Manifest) -> dict[str, Blocks]:
        """Return the runs of the operators whose keyed state is queryable."""
        states = registered(manifest).values()
        return {state.uid: runs_of(state.max_parallelism) for state in states if state.keyed}

    def _publish(self, readable: list[Readable]) -> None:
        with self._changed:
            self._readable = readable
            self._changed.notify_all()

    def _retire(self) -> None:
        with self._changed:
            newest = self.newest
            keep = min([newest - self._retained + 1, *(max(held, newest - _MOST_HELD) for held in self._holds)])
            self._readable = [each for each in self._readable if each.version.id >= keep]
            oldest = self.oldest
        for replica in (each for replicas in self._replicas.values() for each in replicas.values()):
            replica.retire(oldest)

    def close(self) -> None:
        """Release the pin."""
        self._pin.release()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # -- reading ---------------------------------------------------------------------------------------------------

    def at(self, number: int | None = None, at_least: int = 0, deadline: float | None = None) -> Readable:
        """Return a checkpoint: the one with a number, or the newest one.

        Args:
            number: The number; None for the newest.
            at_least: The number that the newest one must have reached.
            deadline: How long to wait for it, by the follower's clock; None to fail at once.

        Raises:
            CheckpointNotReached, CheckpointGone, NotServed.
        """
        least = max(at_least, number or 0, 1)
        with self._changed:
            while self.newest < least and not self.ended:
                remaining = 0.0 if deadline is None else deadline - self._clock()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            readable = self._readable
        if not readable:
            raise NotServed(
                f"The job has no completed checkpoint in {self.storage.where} yet.", fix="Try again in a moment."
            )
        newest = readable[-1]
        if newest.version.id < least:
            ended = ", and the job has ended" if self.ended else ""
            raise CheckpointNotReached(
                f"Checkpoint {least} is not complete: the newest one is {newest.version.id}{ended}.",
                fix="Ask for an earlier one." if self.ended else "Wait longer, or ask for an earlier one.",
            )
        if number is None:
            return newest
        for each in readable:
            if each.version.id == number:
                return each
        raise gone(number, readable[0].version.id)

    @contextmanager
    def hold(self, number: int) -> Iterator[Readable]:
        """Keep a checkpoint readable while the block runs, unless it falls too far behind. Raises CheckpointGone."""
        readable = self.keep(number)
        try:
            yield readable
        finally:
            self.release(number)

    def keep(self, number: int | None = None) -> Readable:
        """Return a checkpoint, the newest by default, which stays readable until `release` is called as often.

        Raises CheckpointNotReached, CheckpointGone, NotServed.
        """
        with self._changed:
            readable = self.at(number)
            held = readable.version.id
            self._holds[held] = self._holds.get(held, 0) + 1
            return readable

    def release(self, number: int) -> None:
        """Undo one call of `keep`."""
        with self._changed:
            self._holds[number] -= 1
            if not self._holds[number]:
                del self._holds[number]

    def replica(self, uid: str, group: int, max_parallelism: int) -> BlockReplica:
        """Return the replica of a key group. Raises NotServed if another server has it."""
        run = runs_of(max_parallelism).of(group)
        replica = self._replicas.get(uid, {}).get(run)
        if replica is None:
            raise NotServed(
                f"This server does not have key group {group} of operator '{uid}'.",
                fix="Ask through the proxy, or start another server.",
            )
        return replica

    def runs(self, uid: str) -> list[BlockReplica]:
        """Return the replicas of an operator that this server has, in the order of their key groups."""
        return [replica for _, replica in sorted(self._replicas.get(uid, {}).items())]
