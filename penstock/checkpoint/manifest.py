"""The manifest of one completed checkpoint. Publishing it with put-if-absent completes the checkpoint.

Manifests form a chain: each one holds the hash of its parent. A manifest holds the changes of its epoch, and earlier
changes are found by walking the chain, so its size depends on the changes and not on the state.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from penstock.common.options.program import MOST_KEY_GROUPS
from penstock.errors import PenstockError
from penstock.runtime.event_time import OperatorTime
from penstock.runtime.report import DeltaHandle
from penstock.state.blocks import Blocks
from penstock.state.files import RESTORE
from penstock.state.shares import GROUPED, Shares
from penstock.state.storage import AlreadyPublished, Storage
from penstock.state.ttl import Form

FORMAT = 4
READABLE = (2, 3, 4)
"""Before format 3, types of states had no versions. Before format 4, every operator had the same blocks, and bases were
listed by block."""


class Fenced(PenstockError):
    """Another driver published this checkpoint first: this driver was presumed dead and must stop.

    Operator action: none. The other driver continues the job; this one touched no sink.
    """

    retryable = False


class BadManifest(PenstockError):
    """A manifest is unusable: damaged, written by a newer version, or not the one that its child refers to.

    Operator action: restore the file from a copy, or restore the job from a savepoint. Nothing was changed.
    """

    retryable = False


class NotRestorable(PenstockError):
    """A checkpoint does not match this program. Nothing was changed.

    Operator action: restore the operators' previous uids and max parallelism, or start the job under another name.
    """

    retryable = False


class Committable(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    uid: str
    subtask: int
    payload: bytes


class OperatorSnapshot(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The snapshot of one operator's subtasks in this epoch."""

    name: str
    parallelism: int
    max_parallelism: int
    states: dict[str, str]
    """Keyed states and their types."""
    deltas: list[DeltaHandle]
    operator_state: dict[str, Shares] = {}
    """All operator state by name. It is small, and a rescale redistributes it."""
    timers: dict[str, dict[int, int]] = {}
    """The time of the earliest timer, by kind and block."""
    ttl: dict[str, Form] = {}
    """How states with TTL are stored, by name."""
    migrations: dict[str, tuple[bytes, ...]] = {}
    """The steps from each version of a state's type to the next, for states with a changed type; see
    `serializers.migrations`."""
    key_type: str = ""
    """Type of the keys of its state; empty if no program has declared it."""

    @property
    def in_key_groups(self) -> bool:
        """Whether any of its state is stored by key group, which fixes the max parallelism."""
        grouped = any(shares.mode == GROUPED for shares in self.operator_state.values())
        return grouped or bool(self.states or self.timers)


class BaseHandle(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """The complete state of a run of key groups at one checkpoint, where a walk down the chain can stop.

    The run is that of a block at the time of the merge, or what later bases have left of it. The file can therefore
    contain other key groups, which count no longer.
    """

    id: int
    """The checkpoint of this state."""
    name: str
    """Empty if the key groups were empty."""
    size: int
    """Bytes of these key groups; an estimate if the file contains others."""
    end: int = 0
    """The key group after the last one. The first one is its key in `Manifest.bases`."""


class StateAddress(msgspec.Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """One keyed state of an operator."""

    uid: str
    state: str


class Manifest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    format: int
    lineage: str
    id: int
    """Checkpoint id, equal to the epoch's number; increases by one."""
    batch: int | None
    """Spark's last batch id; None before the first. An epoch unknown to Spark repeats the id of the previous one."""
    parent: bytes
    """Hash of the previous manifest; empty for the first."""
    token: str
    """Fencing token of the driver that published it."""
    timestamp: int
    ended: bool
    """Whether the input ended in this epoch, which finishes the job."""
    operators: dict[str, OperatorSnapshot]
    committables: list[Committable]
    records: dict[str, int]
    """Records read so far, by source uid."""
    spark_log: dict[str, bytes]
    """Files of Spark's own log that were added in this epoch, by path below its root."""
    log_index: dict[str, int]
    """Every file of Spark's log that a restart from here needs, with the manifest that holds it."""
    bases: dict[str, dict[int, BaseHandle]]
    """The bases that later manifests build on, by operator uid and first key group. They do not overlap."""
    since_base: dict[str, dict[int, int]]
    """Bytes of the deltas since the block's base, by operator uid and block; blocks without deltas are left out."""
    times: dict[str, OperatorTime] = {}
    """Event-time progress, by operator uid."""
    sources: list[str] = []
    """The uid of the source of each line of Spark's `offsets`, in their order."""
    claimed: tuple[str, str] | None = None
    """The claimed savepoint that this lineage started from and must remove, by id and path; None once removed."""
    rescaled: dict[str, tuple[int, int]] = {}
    """The rescales in force, by uid of a task's first operator: the program's parallelism, and the current one."""
    blocks: dict[str, Blocks] = {}
    """The blocks of keyed operators in this epoch, by uid: those of its deltas, timers and `since_base`."""
    queryable: dict[str, StateAddress] = {}
    """The states that can be read from outside the job, by the name under which they are."""
    backend: str = ""
    """The state backend of the job, which its state servers use too. Empty in manifests of earlier versions."""

    def state_bytes(self, uid: str) -> int:
        """Return the bytes stored for an operator: its bases and the deltas since."""
        return self.delta_bytes(uid) + sum(base.size for base in self.bases.get(uid, {}).values())

    def operator_state_bytes(self) -> int:
        """Return the bytes of all operator state, which every manifest contains."""
        states = (shares for each in self.operators.values() for shares in each.operator_state.values())
        return sum(len(element) for shares in states for elements in shares.by_subtask for element in elements)

    def delta_bytes(self, uid: str) -> int:
        return sum(self.since_base.get(uid, {}).values())

    def keyed(self) -> set[str]:
        """Return the uids of operators with keyed state."""
        return self.bases.keys() | self.since_base.keys()


class Version(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Uniquely identifies a manifest by number and hash. Encoded, it is the position of a replica."""

    id: int
    digest: bytes


class _Head(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The part of a manifest that stays the same in every format."""

    format: Any = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Manifest).decode
_decode_head = msgspec.msgpack.Decoder(_Head).decode
encode_version = msgspec.msgpack.Encoder().encode
decode_version = msgspec.msgpack.Decoder(Version).decode


def manifest_name(number: int) -> str:
    return f"manifests/{number:012d}"


_DIGEST_BYTES = 16


def digest_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def publish(storage: Storage, manifest: Manifest) -> Version:
    """Complete the checkpoint, or raise Fenced if another driver already has."""
    body = _encode(manifest)
    digest = digest_of(body)
    try:
        # Prefixed with its hash: the last manifest has no child yet that could verify it.
        storage.publish(manifest_name(manifest.id), digest + body)
    except AlreadyPublished:
        raise fenced(storage, manifest.id) from None
    return Version(id=manifest.id, digest=digest)


def fenced(storage: Storage, number: int) -> Fenced:
    return Fenced(
        f"Checkpoint {number} of this job is already published: another driver is running the job "
        f"(in {storage.where}). This driver stops."
    )


def load(storage: Storage, number: int, digest: bytes | None = None) -> tuple[Manifest, Version]:
    """Return manifest `number`, verified against the hash that its child or a replica holds, if given."""
    name = manifest_name(number)
    data = storage.read(name)
    found, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if digest_of(body) != found:
        raise BadManifest(
            f"{name} in {storage.where}, checkpoint {number}, is damaged: its hash differs from the one it was "
            f"published with.",
            fix=RESTORE,
        )
    if digest is not None and found != digest:
        raise BadManifest(
            f"{name} in {storage.where} was replaced by another manifest: its successor refers to a different one.",
            fix=RESTORE,
        )
    try:
        version = _format_of(body)
        if version not in READABLE:
            raise BadManifest(
                f"{name} in {storage.where}, checkpoint {number}, has format {version!r}; this version of Penstock "
                f"reads formats {READABLE[0]} to {FORMAT}.",
                fix="Run the version that wrote it, or a newer one. Nothing was changed.",
            )
        manifest = _decode(body)
        if version < 4:
            manifest = _with_blocks(manifest)
    except (msgspec.DecodeError, ValueError, RecursionError, MemoryError) as error:
        raise BadManifest(f"{name} in {storage.where} cannot be read: {error}", fix=RESTORE) from None
    if manifest.id != number:
        raise BadManifest(
            f"{name} in {storage.where} holds checkpoint {manifest.id}: it was renamed or copied.", fix=RESTORE
        )
    return manifest, Version(id=number, digest=found)


def _format_of(body: bytes) -> Any:
    """Return the format of a manifest without decoding the rest, or None if it is something else."""
    try:
        return _decode_head(body).format
    except msgspec.ValidationError:
        return None


def _with_blocks(manifest: Manifest) -> Manifest:
    """Return a manifest of an earlier format in the current one."""
    known = {uid: each.max_parallelism for uid, each in manifest.operators.items()}
    keyed = manifest.keyed() | {uid for uid, each in manifest.operators.items() if each.deltas or each.timers}
    blocks: dict[str, Blocks] = {}
    bases: dict[str, dict[int, BaseHandle]] = {}
    since_base: dict[str, dict[int, int]] = {}
    for uid in sorted(keyed):
        if not known.get(uid):
            # An operator that has neither states nor timers any more, and so no entries.
            bases[uid] = {0: BaseHandle(id=manifest.id, name="", size=0, end=MOST_KEY_GROUPS)}
            continue
        laid = blocks[uid] = Blocks.before_format_4(known[uid])
        bases[uid] = {
            laid.groups(block).start: msgspec.structs.replace(base, end=laid.groups(block).stop)
            for block, base in sorted(manifest.bases.get(uid, {}).items())
        }
        since_base[uid] = manifest.since_base.get(uid, {})
    return msgspec.structs.replace(manifest, format=FORMAT, blocks=blocks, bases=bases, since_base=since_base)


def latest(storage: Storage) -> tuple[Manifest, Version] | None:
    """Return the last completed checkpoint, after verifying its parent link; None if the job has no checkpoint."""
    names = storage.list("manifests/")
    if not names:
        return None
    manifest, version = load(storage, int(names[-1].rsplit("/", 1)[1]))
    if manifest.parent:
        load(storage, manifest.id - 1, manifest.parent)
    return manifest, version
