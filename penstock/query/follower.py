"""Follows one lineage: keeps replicas of its queryable state at the last checkpoints.

The newest manifest is always found by listing, and its chain is walked back. Following the numbers forward could accept
a number that was swept and that a former driver has published again.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from penstock.checkpoint.fencing import followed
from penstock.checkpoint.manifest import BadManifest, Manifest, Version, load, manifest_name
from penstock.checkpoint.pins import Pin
from penstock.common.options.query import RETAINED_FOR_QUERIES
from penstock.query.division import ALL_BLOCKS, BLOCKS
from penstock.query.errors import CheckpointNotReached, NotServed
from penstock.query.local_replicas import memory_replica
from penstock.query.registry import registered
from penstock.query.replica import BlockReplica, Layer, gone, read_layer
from penstock.state.blocks import Blocks
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
_BUILT_AT_A_TIME = 4
"""Blocks that are built between two looks for a new checkpoint."""


def runs_of(max_parallelism: int) -> Blocks:
    """Return the runs of key groups that servers keep. They do not depend on the parallelism of the job.

    The number of a run is that of the block of the job that has it: a server has a block of all operators or of none.
    """
    return Blocks(max_parallelism=max_parallelism, count=min(BLOCKS, max_parallelism))


MakeReplica = Callable[[str, Storage, str, range], BlockReplica]
"""Returns an empty replica, given the backend of the job, the storage, the uid of an operator and its key groups."""


class Holding(NamedTuple):
    """What a follower has. Replaced as a whole, because readers must see the replicas of all its blocks."""

    blocks: frozenset[int] = frozenset()
    replicas: dict[str, dict[int, BlockReplica]] = {}
    """By uid, and number of the run."""

    def all(self) -> Iterator[BlockReplica]:
        """Yield every replica."""
        return (replica for replicas in self.replicas.values() for replica in replicas.values())


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
        blocks: frozenset[int] = ALL_BLOCKS,
        clock: Callable[[], float] = time.monotonic,
        make_replica: MakeReplica = memory_replica,
    ) -> None:
        """`make_replica` returns an empty replica that belongs to this follower alone."""
        self.storage = storage
        self.lineage = ""
        """The name of the lineage, if it has one."""
        self._wanted, self._dropped = blocks, frozenset[int]()
        self._retained = retained
        self._clock = clock
        self._make_replica = make_replica
        self._pin = Pin(storage, secrets.token_hex(8))
        self._renewed = self._listed = -_RENEW_S
        self._changed = threading.Condition()
        self._readable: list[Readable] = []
        self._holding = Holding()
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

    def want(self, blocks: frozenset[int], dropped: frozenset[int] = frozenset()) -> None:
        """Have these blocks, and no longer those in `dropped`. The next polls do it."""
        self._wanted, self._dropped = blocks, dropped

    def blocks(self) -> dict[int, int]:
        """Return the blocks that can be read, each with its oldest checkpoint."""
        holding = self._holding
        oldest = dict.fromkeys(sorted(holding.blocks), self.oldest)
        for replicas in holding.replicas.values():
            for block, replica in replicas.items():
                if block in oldest:
                    oldest[block] = max(oldest[block], replica.oldest)
        return oldest

    @property
    def oldest_held(self) -> int | None:
        """The oldest checkpoint that a reader keeps; None without such a reader."""
        with self._changed:
            return min(self._holds, default=None)

    def poll(self) -> bool:
        """Make newer checkpoints and more blocks readable, if there are any. Return whether there were."""
        if any(replica.lost for replica in self._holding.all()):
            return self._rebuild_lost()
        advanced = self._follow()
        # A reader can have released a checkpoint since.
        self._retire()
        try:
            return self._adapt() or advanced
        except (MissingObject, BadManifest) as error:
            _log.debug("Checkpoints of %s changed while they were read: %s", self.storage.where, error)
            return advanced

    def _rebuild_lost(self) -> bool:
        """Build all replicas again, because files of one are gone. Until then, the others can be read."""
        newest = self._readable[-1]
        try:
            return self._rebuild(newest.manifest, newest.version)
        except (MissingObject, BadManifest) as error:
            _log.debug("Checkpoints of %s changed while they were read: %s", self.storage.where, error)
            return False

    def _follow(self) -> bool:
        if not self._something_new():
            return False
        try:
            found = followed(self.storage)
            self._gone = found is None and bool(self._readable)
            if found is None:
                return False
            manifest, version = found
            if version.id <= self.newest:
                # A former driver has published it, and will take it back.
                return False
            advanced = self._catch_up(manifest, version) or self._rebuild(manifest, version)
        except (MissingObject, BadManifest) as error:
            # Swept while it was read, or taken back by a former driver. The next poll finds a later one.
            _log.debug("Checkpoints of %s changed while they were read: %s", self.storage.where, error)
            self._listed = -_LIST_EVERY_S
            return False
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
        before, holding = self._readable[-1].version, self._holding
        layers: list[tuple[BlockReplica, Layer]] = []
        added: dict[str, dict[int, BlockReplica]] = {}
        for uid, runs in self._operators(readable.manifest).items():
            kept = holding.replicas.get(uid)
            if kept is None or _has_gap(kept, before):
                added[uid] = self._built(uid, runs, readable, holding.blocks)
                continue
            if not kept:
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
        self._holding = Holding(holding.blocks, holding.replicas | added)
        self._publish([*self._readable, readable])
        return True

    def _rebuild(self, manifest: Manifest, version: Version) -> bool:
        """Read the complete state of the newest checkpoint. Readers then see no earlier one."""
        self._renewed = self._clock()
        self._pin.move(version.id)
        # Only now is it certain that its files stay.
        manifest, version = followed(self.storage) or (manifest, version)
        newest = Readable(version, manifest)
        former, wanted = self._holding, self._wanted
        operators = self._operators(manifest).items()
        self._holding = Holding(wanted, {uid: self._built(uid, runs, newest, wanted) for uid, runs in operators})
        self._publish([newest])
        self.rebuilt += 1
        for replica in former.all():
            replica.close()
        return True

    def _adapt(self) -> bool:
        """Build a few of the blocks that are wanted, and give up those that another server has."""
        have, replicas = self._holding
        given = have & self._dropped - self._wanted
        if given:
            # Reads that have begun go on with the replicas that they have.
            have -= given
            replicas = {
                uid: {run: replica for run, replica in runs.items() if run not in given}
                for uid, runs in replicas.items()
            }
            self._holding = Holding(have, replicas)
        missing = frozenset(sorted(self._wanted - have)[:_BUILT_AT_A_TIME])
        if not (missing and self._readable):
            return False
        built = self._built_back(missing)
        self._holding = Holding(have | missing, {uid: runs | built.get(uid, {}) for uid, runs in replicas.items()})
        return True

    def _built_back(self, blocks: frozenset[int]) -> dict[str, dict[int, BlockReplica]]:
        """Return replicas of blocks at as many of the readable checkpoints as the files are there for."""
        readable = self._readable
        start = 0
        while True:
            try:
                return self._built_from(readable[start:], blocks)
            except MissingObject:
                if start == len(readable) - 1:
                    raise
                start += max(1, (len(readable) - start) // 2)

    def _built_from(self, readable: list[Readable], blocks: frozenset[int]) -> dict[str, dict[int, BlockReplica]]:
        first = readable[0]
        built: dict[str, dict[int, BlockReplica]] = {}
        before = first.version
        operators = self._operators(first.manifest)
        for uid, runs in operators.items():
            built[uid] = self._built(uid, runs, first, blocks)
        for each in readable[1:]:
            for uid, runs in self._operators(each.manifest).items():
                if uid not in built or _has_gap(built[uid], before):
                    built[uid] = self._built(uid, runs, each, blocks)
                    continue
                groups = frozenset(group for replica in built[uid].values() for group in replica.groups)
                layer = read_layer(self.storage, uid, before, each.version, runs.max_parallelism, groups)
                if layer is None:
                    raise MissingObject(manifest_name(before.id), self.storage.where)
                for replica in built[uid].values():
                    replica.add(layer)
            before = each.version
        return built

    def _built(self, uid: str, runs: Blocks, at: Readable, blocks: frozenset[int]) -> dict[int, BlockReplica]:
        replicas = {}
        for run in sorted(blocks.intersection(runs.numbers)):
            replicas[run] = self._make_replica(at.manifest.backend, self.storage, uid, runs.groups(run))
            replicas[run].build(at.version)
        return replicas

    @staticmethod
    def _operators(manifest: Manifest) -> dict[str, Blocks]:
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
            if self.oldest >= keep:
                return
            self._readable = [each for each in self._readable if each.version.id >= keep]
            oldest = self.oldest
        for replica in self._holding.all():
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
        replica = self._holding.replicas.get(uid, {}).get(run)
        if replica is None:
            raise NotServed(
                f"This server does not have key group {group} of operator '{uid}'.",
                fix="Ask through the proxy, or start another server.",
            )
        return replica

    def runs(self, uid: str, blocks: Collection[int] | None = None) -> list[BlockReplica]:
        """Return the replicas of some blocks of an operator, in the order of their key groups.

        `blocks`: None for all that this server has. Raises NotServed if it does not have one of them.
        """
        holding = self._holding
        replicas = holding.replicas.get(uid, {})
        if blocks is not None:
            missing = sorted(set(blocks) - holding.blocks)
            if missing:
                raise NotServed(
                    f"This server does not have block {missing[0]} of the job.",
                    fix="Ask through the proxy, or start another server.",
                )
        return [replica for run, replica in sorted(replicas.items()) if blocks is None or run in blocks]


def _has_gap(replicas: dict[int, BlockReplica], before: Version) -> bool:
    """Return whether replicas lack checkpoints up to this one: their operator was not queryable for a while."""
    return any(replica.newest != before.id for replica in replicas.values())
