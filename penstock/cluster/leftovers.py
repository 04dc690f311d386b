"""Removes the checkpoints of jobs that ended and whose process died before it had removed them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock.checkpoint.fencing import remove_manifests
from penstock.checkpoint.lineages import SharedStorage
from penstock.cluster.records import JobView
from penstock.common.options import store_options
from penstock.errors import PenstockError
from penstock.state.local_storage import LocalStorage
from penstock.state.object_storage import ObjectStorage

_logger = logging.getLogger("penstock")


def remove_leftovers(job: JobView, settings: Mapping[str, str]) -> None:
    """Remove everything below the checkpoint directory of an ended job, unless its checkpoints are retained.

    The directory belongs to this job alone. Call once no process of the job is alive. `settings` are those of the
    service; a store that only the program has credentials for is left alone, with a warning.
    """
    verdict, location = job.verdict, job.lineage
    if verdict is None or not verdict.removes_checkpoints or not location:
        return
    if location.rpartition("/")[2] != job.submission.id:
        # Jobs of a cluster keep their checkpoints in a directory with their id. Any other one is not theirs alone.
        _logger.error(
            "The checkpoints of job %s are not removed: %s does not end with its id.", job.submission.id, location
        )
        return
    try:
        root = _storage(location, {**settings, **job.submission.configuration})
        names = root.list("")
        for lineage in {name.split("/")[0] for name in names if "/" in name} - {"lineages"}:
            # In this order: the remaining objects are harmless without manifests, but not the other way round.
            remove_manifests(root.below(lineage))
            root.delete_below(lineage)
            _logger.info("Removed the checkpoints that job %s left in %s.", job.submission.id, location)
        root.delete_below("lineages")
        if isinstance(root, LocalStorage) and root.root.is_dir() and not any(root.root.iterdir()):
            root.root.rmdir()
    except (PenstockError, OSError) as error:
        _logger.warning("Cannot remove the checkpoints of job %s in %s: %s", job.submission.id, location, error)


def _storage(location: str, settings: Mapping[str, str]) -> SharedStorage:
    # The location is that of a storage: a plain path, in which # and ? have no meaning, or the URI of an object store.
    return ObjectStorage(location, store_options(settings)) if "://" in location else LocalStorage(location)
