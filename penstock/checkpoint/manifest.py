"""The manifest: one completed checkpoint. Publishing it, put-if-absent, is the moment the checkpoint is complete.

Manifests form a chain: each names the hash of its parent. A manifest holds what changed in its epoch; what came
before is found by walking the chain, so its size follows the changes, not the state.
"""

from __future__ import annotations

import hashlib

import msgspec

from penstock.errors import PenstockError
from penstock.runtime.event_time import OperatorTime
from penstock.runtime.report import DeltaHandle
from penstock.state.files import RESTORE
from penstock.state.shares import GROUPED, Shares
from penstock.state.storage import AlreadyPublished, Storage
from penstock.state.ttl import Form

FORMAT = 3
READABLE = (2, 3)
"""Before 3, no state's type had versions."""


class Fenced(PenstockError):
    """Another driver published this checkpoint first: this one was thought dead and must stop.

    Operator action: none. The other driver carries the job on; this one touched no sink.
    """

    retryable = False


class BadManifest(PenstockError):
    """A manifest cannot be used: damaged, of a newer version, or not the one its child names.

    Operator action: restore the file from a copy, or restore the job from a savepoint. Nothing was changed.
    """

    retryable = False


class NotRestorable(PenstockError):
    """A checkpoint holds what this program has no place for. Nothing was changed.

    Operator action: give the operators the uids and max parallelism they had, or start the job under another name.
    """

    retryable = False


class Committable(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    uid: str
    subtask: int
    payload: bytes


class OperatorSnapshot(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What one operator's subtasks wrote in this epoch."""

    name: str
    parallelism: int
    max_parallelism: int
    states: dict[str, str]
    """Keyed states and their types."""
    deltas: list[DeltaHandle]
    operator_state: dict[str, Shares] = {}
    """All of it, by name: it is small, and a rescale deals it out anew."""
    timers: dict[str, dict[int, int]] = {}
    """By kind and block, the time of the first timer."""
    ttl: dict[str, Form] = {}
    """How states with TTL are stored, by name."""
    migrations: dict[str, tuple[bytes, ...]] = {}
    """For keyed states whose type has changed, from each version of it to the next: see `serializers.migrations`."""
    key_type: str = ""
    """Of the keys that its state is stored by; empty where no program has said it."""

    @property
    def in_key_groups(self) -> bool:
        """Whether any of its state is stored by key group, so that their number must stay."""
        grouped = any(shares.mode == GROUPED for shares in self.operator_state.values())
        return grouped or bool(self.states or self.timers)


class BaseHandle(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """All of one block's state as of one checkpoint: where a walk down the chain may stop."""

    id: int
    """The checkpoint whose state this is."""
    name: str
    """Empty where the block was."""
    size: int


class Manifest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    format: int
    lineage: str
    id: int
    """Checkpoint id, equal to the epoch's number; ascends by one."""
    batch: int | None
    """Spark's last batch id; None before the first. An epoch that Spark does not know has that of the one before."""
    parent: bytes
    """Hash of the manifest before; empty for the first."""
    token: str
    """Fencing token of the driver that published it."""
    timestamp: int
    ended: bool
    """Whether this epoch ended the input: the job is finished."""
    operators: dict[str, OperatorSnapshot]
    committables: list[Committable]
    records: dict[str, int]
    """Records read so far, by source uid."""
    spark_log: dict[str, bytes]
    """Files of Spark's own log that appeared with this epoch, by path below its root."""
    log_index: dict[str, int]
    """Every file of Spark's log that a restart from here needs, and the manifest that holds it."""
    bases: dict[str, dict[int, BaseHandle]]
    """By operator uid and block: the bases that later manifests stand on."""
    since_base: dict[str, dict[int, int]]
    """By operator uid and block: bytes of the deltas since the block's base, where there are any."""
    times: dict[str, OperatorTime] = {}
    """Where event time stands, by operator uid."""
    sources: list[str] = []
    """For each line of Spark's `offsets`, in their order, the uid of the source it belongs to."""
    claimed: tuple[str, str] | None = None
    """The savepoint that this lineage began with and is to remove, by id and path; None when it has."""
    rescaled: dict[str, tuple[int, int]] = {}
    """By uid of a task's first operator, where a rescale is in force: the program's parallelism, and this one."""

    def state_bytes(self, uid: str) -> int:
        """Bytes stored for an operator: its bases and the deltas since."""
        return self.delta_bytes(uid) + sum(base.size for base in self.bases.get(uid, {}).values())

    def delta_bytes(self, uid: str) -> int:
        return sum(self.since_base.get(uid, {}).values())

    def keyed(self) -> set[str]:
        """The operators that have keyed state."""
        return self.bases.keys() | self.since_base.keys()


class Version(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A manifest named without doubt: number and hash. Encoded, it is the position of a replica."""

    id: int
    digest: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Manifest).decode
encode_version = msgspec.msgpack.Encoder().encode
decode_version = msgspec.msgpack.Decoder(Version).decode


def manifest_name(number: int) -> str:
    return f"manifests/{number:012d}"


_DIGEST_BYTES = 16


def digest_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def publish(storage: Storage, manifest: Manifest) -> Version:
    """Declare the checkpoint complete, or raise Fenced: then another driver has."""
    body = _encode(manifest)
    digest = digest_of(body)
    try:
        # With its hash in front: the last manifest has no child yet that would know it.
        storage.publish(manifest_name(manifest.id), digest + body)
    except AlreadyPublished:
        raise fenced(storage, manifest.id) from None
    return Version(id=manifest.id, digest=digest)


def fenced(storage: Storage, number: int) -> Fenced:
    return Fenced(
        f"Checkpoint {number} of this job is already published: another driver runs the job (in {storage.where}). "
        f"This one stops."
    )


def load(storage: Storage, number: int, digest: bytes | None = None) -> tuple[Manifest, Version]:
    """Manifest `number`, checked against the hash its child or a replica knows, where there is one."""
    name = manifest_name(number)
    data = storage.read(name)
    found, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if digest_of(body) != found:
        raise BadManifest(
            f"{name} in {storage.where}, checkpoint {number}, is damaged: it does not have the hash it was published "
            f"with.",
            fix=RESTORE,
        )
    if digest is not None and found != digest:
        raise BadManifest(
            f"{name} in {storage.where} was replaced by another: it is not the one its successor was built on.",
            fix=RESTORE,
        )
    try:
        head = msgspec.msgpack.decode(body)
        version = head[0] if isinstance(head, list) and head else None
        if version not in READABLE:
            raise BadManifest(
                f"{name} in {storage.where}, checkpoint {number}, has format {version!r}; this Penstock reads "
                f"formats {' and '.join(map(str, READABLE))}.",
                fix="Run the version that wrote it, or a newer one. Nothing was changed here.",
            )
        manifest = _decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError, MemoryError) as error:
        raise BadManifest(f"{name} in {storage.where} cannot be read: {error}", fix=RESTORE) from None
    if manifest.id != number:
        raise BadManifest(
            f"{name} in {storage.where} holds checkpoint {manifest.id}: it was renamed or copied.", fix=RESTORE
        )
    return manifest, Version(id=number, digest=found)


def latest(storage: Storage) -> tuple[Manifest, Version] | None:
    """The last completed checkpoint, with its parent link checked; None if there is none."""
    names = storage.list("manifests/")
    if not names:
        return None
    manifest, version = load(storage, int(names[-1].rsplit("/", 1)[1]))
    if manifest.parent:
        load(storage, manifest.id - 1, manifest.parent)
    return manifest, version
