"""The chain of manifests as replicas use it: finds the deltas from a replica's position to the wanted version."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from penstock.checkpoint.base_runs import BaseRuns
from penstock.checkpoint.expiry import kept_by_compaction
from penstock.checkpoint.manifest import Manifest, OperatorSnapshot, Version, decode_version, encode_version, load
from penstock.checkpoint.redistribution import reported_by, share_of, to_be_shared
from penstock.checkpoint.walked_manifest import WalkedManifest
from penstock.common.options.state import TRANSFER_THREADS
from penstock.runtime.event_time import Times
from penstock.state.blocks import Blocks, first_times
from penstock.state.replica import ReplayStep, StaleAttempt
from penstock.state.shares import Share, Shares
from penstock.state.storage import MissingObject, Storage
from penstock.state.stored_types import StoredType
from penstock.state.ttl import Form

_CACHED_MANIFESTS = 600
"""More than the length of a walk to the oldest base: new replicas of all blocks walk the same manifests."""
_CACHED_DELTAS = 200_000
"""Deltas in these manifests. A delta takes about 300 bytes of memory, so that a process needs 60 MB at most."""
_COMPACT_EVERY = 128
"""Checkpoints between two compactions of a replica, if state is cleaned up by compaction."""
_manifests: dict[bytes, WalkedManifest] = {}
"""Manifests by hash, per process: a worker that continues from epoch to epoch only reads the new one."""
_CACHED_WANTED = 4
_wanted_manifests: OrderedDict[bytes, Manifest] = OrderedDict()
"""Complete manifests by hash, only those that tasks resume from."""


def stored_types(snapshot: OperatorSnapshot) -> dict[str, StoredType]:
    """Return the stored types of an operator's keyed states."""
    migrations = snapshot.migrations
    return {name: StoredType(schema, migrations.get(name, ())) for name, schema in snapshot.states.items()}


def forget_manifests() -> None:
    """Empty the caches, as in a new process."""
    _manifests.clear()
    _wanted_manifests.clear()


class ManifestChain:
    """Created per task; reads manifests and deltas from storage as replicas need them."""

    def __init__(self, storage: Storage, wanted: Version | None, threads: int = TRANSFER_THREADS.default) -> None:
        """`threads` is the number of files fetched concurrently from remote storage."""
        self._storage = storage
        self._wanted = wanted
        self._threads = threads
        self._files: dict[str, tuple[str, bytes | pa.Buffer]] = {}

    @property
    def wanted(self) -> bytes | None:
        return None if self._wanted is None else encode_version(self._wanted)

    def schemas(self, uid: str) -> dict[str, str]:
        snapshot = self._snapshot(uid)
        return {} if snapshot is None else snapshot.states

    def types(self, uid: str) -> dict[str, StoredType]:
        snapshot = self._snapshot(uid)
        return {} if snapshot is None else stored_types(snapshot)

    def operator_state(self, uid: str, subtask: int, parallelism: int, max_parallelism: int) -> dict[str, Share]:
        return {
            name: share_of(shares, subtask, parallelism, max_parallelism)
            for name, shares in self._operator_states(uid).items()
        }

    def holds(self, uid: str, subtask: int, parallelism: int, reported: dict[str, Share]) -> bool:
        stored = self._operator_states(uid)
        return stored.keys() == reported.keys() and all(
            share.mode == stored[name].mode
            and share.schema == stored[name].schema
            and share.migrations == stored[name].migrations
            and share.elements == reported_by(stored[name], subtask, parallelism)
            and not to_be_shared(stored[name])
            for name, share in reported.items()
        )

    def _operator_states(self, uid: str) -> dict[str, Shares]:
        snapshot = self._snapshot(uid)
        return {} if snapshot is None else snapshot.operator_state

    def timers(self, uid: str, blocks: Blocks) -> dict[str, dict[int, int]]:
        snapshot = self._snapshot(uid)
        if snapshot is None or not snapshot.timers:
            return {}
        assert self._wanted is not None
        stored = self._complete(self._wanted).blocks[uid]
        return {kind: first_times(least, stored, blocks) for kind, least in snapshot.timers.items()}

    def forms(self, uid: str) -> dict[str, Form]:
        snapshot = self._snapshot(uid)
        return {} if snapshot is None else snapshot.ttl

    def _snapshot(self, uid: str) -> OperatorSnapshot | None:
        return None if self._wanted is None else self._complete(self._wanted).operators.get(uid)

    def times(self) -> Times:
        return {} if self._wanted is None else self._complete(self._wanted).times

    def keep(self, uid: str, block: int) -> Callable[[bytes, bytes], bool] | None:
        wanted = self._wanted
        # Blocks take turns, so few are compacted in one epoch.
        if wanted is None or wanted.id % _COMPACT_EVERY != block % _COMPACT_EVERY:
            return None
        return kept_by_compaction(self._complete(wanted), uid)

    def steps(self, uid: str, groups: range, position: bytes | None) -> list[ReplayStep] | None:
        wanted = self._wanted
        assert wanted is not None
        current = None if position is None else decode_version(position)
        if current is not None and current.id > wanted.id:
            raise StaleAttempt(
                f"The replica of operator '{uid}' is at checkpoint {current.id}, but this task needs checkpoint "
                f"{wanted.id}: a newer attempt of the job is running."
            )
        last = self._complete(wanted)
        stored = last.blocks.get(uid)
        if stored is None or groups.start >= stored.max_parallelism:
            # Nothing was ever stored. An operator without state can change its max parallelism.
            return [] if current in (None, wanted) else None
        groups = range(groups.start, min(groups.stop, stored.max_parallelism))
        parts = BaseRuns(last.bases.get(uid, {})).parts(groups)
        based = max((base.id for _, base in parts if base is not None), default=0)
        if current is not None and current.id < based:
            return None
        steps: list[_Step] = []
        version = wanted
        while True:
            if current is not None and version.id <= current.id:
                if version != current:
                    return None
                break
            # Deltas change only the parts whose base is older.
            changed = [part for part, base in parts if base is None or base.id < version.id]
            if not changed:
                break
            manifest = self._walked(version)
            steps += reversed(_deltas(manifest, uid, changed))
            if not manifest.parent:
                if current is not None:
                    return None
                break
            version = Version(id=version.id - 1, digest=manifest.parent)
        for part, base in parts:
            if current is None and base is not None and base.name:
                steps.append(_Step(base.name, f"the base of checkpoint {base.id} for operator '{uid}'", part))
        steps.reverse()
        return self._fetched(steps)

    def _fetched(self, steps: list[_Step]) -> list[ReplayStep]:
        def fetch(step: _Step) -> ReplayStep:
            if step.inline is not None:
                return ReplayStep(step.name, step.inline, step.groups)
            named, data = self._read(step.name, step.whose)
            return ReplayStep(named, data, step.groups)

        files = {step.name for step in steps if step.inline is None}
        if self._storage.far and len(files) > 1 and self._threads > 1:
            with ThreadPoolExecutor(min(self._threads, len(files))) as pool:
                return list(pool.map(fetch, steps))
        return list(map(fetch, steps))

    def _complete(self, wanted: Version) -> Manifest:
        """Return the manifest that the task resumes from."""
        manifest = _wanted_manifests.get(wanted.digest)
        if manifest is None:
            manifest, _ = load(self._storage, wanted.id, wanted.digest)
            _wanted_manifests[wanted.digest] = manifest
            if len(_wanted_manifests) > _CACHED_WANTED:
                _wanted_manifests.popitem(last=False)
            _cache(wanted.digest, manifest)
        return manifest

    def _walked(self, version: Version) -> WalkedManifest:
        manifest = _manifests.get(version.digest)
        if manifest is None:
            manifest = _cache(version.digest, load(self._storage, version.id, version.digest)[0])
        return manifest

    def _read(self, name: str, whose: str) -> tuple[str, bytes | pa.Buffer]:
        """Return a file and its name for error messages."""
        file = self._files.get(name)
        if file is None:
            try:
                data = self._storage.view(name)
            except MissingObject:
                raise MissingObject(name, self._storage.where, whose) from None
            file = self._files[name] = f"'{name}', {whose}, in {self._storage.where}", data
        return file


class _Step(NamedTuple):
    """A delta or base before it is read."""

    name: str
    whose: str
    groups: Container[int]
    inline: bytes | None = None


def _deltas(manifest: WalkedManifest, uid: str, changed: list[range]) -> list[_Step]:
    """Return the deltas of a checkpoint that might change these key groups of an operator, in order."""
    found = manifest.deltas(uid, changed)
    if not found:
        return []
    groups: Container[int] = changed[0] if len(changed) == 1 else frozenset(chain.from_iterable(changed))
    whose = f"the delta of checkpoint {manifest.id} for operator '{uid}'"
    return [_Step(delta.name, whose, groups, delta.inline) for delta in found]


def _cache(digest: bytes, manifest: Manifest) -> WalkedManifest:
    """Cache what a walk needs of a manifest. The copy makes it safe to call from several threads."""
    walked = _manifests[digest] = WalkedManifest(manifest)
    cached = _manifests.copy()
    deltas = sum(each.count for each in cached.values())
    while len(cached) > _CACHED_MANIFESTS or deltas > _CACHED_DELTAS:
        # A walk begins with the newest manifest, so the newest ones stay. Those of a lineage that has ended go first.
        oldest = min(cached, key=lambda each: (cached[each].lineage == walked.lineage, cached[each].id))
        deltas -= cached.pop(oldest).count
        _manifests.pop(oldest, None)
    return walked
