"""Ensures that a single driver publishes a lineage, even if several run it, including one that was presumed dead.

A driver publishes a checkpoint under the next number with put-if-absent. If two drivers try, one loses and stops. This
is not sufficient if manifests are removed, with a lineage that has ended or as garbage: a number that was taken can
become free again. Manifests are therefore removed in ascending order, after the last number has been taken. A driver
that then publishes under a free number finds that the previous manifest is gone, or that a later one exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from penstock.checkpoint.manifest import FORMAT, Fenced, Manifest, Version, fenced, latest, manifest_name, publish
from penstock.state.storage import Storage

_BEGUN = "begun"
"""Takes the place of the manifest before the first."""
_MANIFESTS = "manifests/"


def begin(storage: Storage) -> None:
    """Record that a driver has found no manifest in this lineage and will publish the first."""
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
        f"Checkpoint {manifest.id} of this job was published before and has since been removed: another driver has run "
        f"the job in the meantime (in {storage.where}). This driver stops."
    )


def followed(storage: Storage) -> tuple[Manifest, Version] | None:
    """Return the last checkpoint as `latest` does, for a process that does not run the job.

    Such a process can see a manifest that a former driver publishes under a free number and then takes back. The parent
    of such a manifest is gone, or the lineage is.
    """
    found = latest(storage)
    if found is None or found[0].parent or storage.exists(_BEGUN):
        return found
    return None


def check_owner(storage: Storage, found: Manifest | None, last: Manifest | None, token: str) -> None:
    """Raise Fenced if a driver that has run this lineage up to `last` cannot continue from the manifest found now."""
    number, known = 0 if found is None else found.id, 0 if last is None else last.id
    # One additional manifest can be its own: published, but the response was lost.
    if number < known or (found is not None and number > known and found.token != token):
        raise Fenced(
            f"This driver completed checkpoint {known} of the job but finds checkpoint {number}: another driver is "
            f"running the job (in {storage.where}). This driver stops."
        )


def close(
    storage: Storage, last: Manifest | None, version: Version | None, lineage: str, token: str
) -> tuple[Manifest, Version]:
    """Take the number after the last one to keep other drivers from continuing this lineage, or raise Fenced.

    The checkpoint that takes it changes nothing: restoring it gives the same state as the checkpoint before.
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
    """Remove the manifests of a lineage that has ended and that this driver owns, before its other objects."""
    storage.delete(_BEGUN)
    for name in storage.list(_MANIFESTS):
        storage.delete(name)


def check_unpublished(storage: Storage, number: int) -> None:
    """Raise Fenced if checkpoint `number` is published.

    A driver that was presumed dead can fail because its successor has removed files.
    """
    if storage.exists(manifest_name(number)):
        raise fenced(storage, number)


@contextmanager
def fenced_if_published(storage: Storage, number: int) -> Iterator[None]:
    """Raise Fenced instead of any error inside the block, if checkpoint `number` is published.

    A sink can fail because a later driver has already committed the epoch and continued.
    """
    try:
        yield
    except Exception:
        check_unpublished(storage, number)
        raise
