"""One driver per lineage. Several may run it, one that was thought dead among them; only one can publish.

A checkpoint is published under the next number, put-if-absent: of two drivers one loses, and stops. That alone is not
enough where manifests are removed, with a lineage that has ended or as garbage: then a number may be free again that
was taken once. So what is removed goes in ascending order, after the last number was taken; whoever then publishes
under a free number finds that the manifest before it is gone, or that there is a later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from penstock.checkpoint.manifest import FORMAT, Fenced, Manifest, Version, fenced, manifest_name, publish
from penstock.state.storage import Storage

_BEGUN = "begun"
"""Stands in for the manifest before the first."""
_MANIFESTS = "manifests/"


def begin(storage: Storage) -> None:
    """A driver has found no manifest in this lineage, and will publish the first."""
    storage.write(_BEGUN, b"")


def publish_as_owner(storage: Storage, manifest: Manifest, begun: bool) -> Version:
    """Publish the next manifest, or raise Fenced. `begun`: whether this driver has called `begin`."""
    version = publish(storage, manifest)
    name = manifest_name(manifest.id)
    names = storage.list(_MANIFESTS)
    if manifest.parent:
        follows = manifest_name(manifest.id - 1) in names
    else:
        follows = not begun or storage.exists(_BEGUN)
    if follows and names[-1] == name:
        return version
    storage.delete(name)
    raise Fenced(
        f"Checkpoint {manifest.id} of this job was published before, and is gone: another driver has run the job "
        f"meanwhile (in {storage.where}). This one stops."
    )


def check_owner(storage: Storage, found: Manifest | None, last: Manifest | None, token: str) -> None:
    """Whether a driver that has run this lineage up to `last` may go on from what it finds there now."""
    number, known = 0 if found is None else found.id, 0 if last is None else last.id
    # One manifest more may be its own: published, but the answer was lost.
    if number < known or (found is not None and number > known and found.token != token):
        raise Fenced(
            f"This driver has completed checkpoint {known} of the job, and finds checkpoint {number}: another driver "
            f"runs the job (in {storage.where}). This one stops."
        )


def close(
    storage: Storage, last: Manifest | None, version: Version | None, lineage: str, token: str
) -> tuple[Manifest, Version]:
    """Take the number after the last one, so that no other driver goes on with this lineage, or raise Fenced.

    It is taken by a checkpoint that changes nothing: what is restored from it is what was restored before.
    """
    if last is None or version is None:
        closing = Manifest(
            format=FORMAT,
            lineage=lineage,
            id=1,
            batch=None,
            parent=b"",
            token=token,
            timestamp=0,
            ended=False,
            operators={},
            committables=[],
            records={},
            spark_log={},
            log_index={},
            bases={},
            since_base={},
        )
    else:
        closing = msgspec.structs.replace(
            last,
            id=last.id + 1,
            parent=version.digest,
            token=token,
            operators={uid: msgspec.structs.replace(each, deltas=[]) for uid, each in last.operators.items()},
            committables=[],
            spark_log={},
        )
    return closing, publish_as_owner(storage, closing, begun=False)


def remove_manifests(storage: Storage) -> None:
    """The lineage has ended and is ours. What else it holds may then go in any order."""
    storage.delete(_BEGUN)
    for name in storage.list(_MANIFESTS):
        storage.delete(name)


def check_unpublished(storage: Storage, number: int) -> None:
    """Raise Fenced if checkpoint `number` is published.

    A driver that was thought dead may fail for lack of files that its successor has removed.
    """
    if storage.exists(manifest_name(number)):
        raise fenced(storage, number)


@contextmanager
def fenced_if_published(storage: Storage, number: int) -> Iterator[None]:
    """Raise Fenced in place of what failed within, if checkpoint `number` is published.

    A sink may fail because the driver that came after this one has committed the epoch, and gone on.
    """
    try:
        yield
    except Exception:
        check_unpublished(storage, number)
        raise
