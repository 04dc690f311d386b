"""Savepoint settings: the savepoint to restore, and the directory for new ones."""

from __future__ import annotations

from penstock.checkpoint.lineages import SharedStorage
from penstock.common.configuration import Configuration
from penstock.common.options import BadSetting, store_options
from penstock.common.options.checkpoints import (
    CLAIM_MODE,
    IGNORE_UNCLAIMED_STATE,
    RECOVERY_PATH,
    SAVEPOINTS_DIRECTORY,
)
from penstock.savepoint.format import check_savepoint_directory, savepoint_storage
from penstock.savepoint.restoring import RecoveryClaimMode, RestoreSettings


def restore_settings(configuration: Configuration) -> RestoreSettings | None:
    """Return the savepoint that the job starts from, or None if none is configured."""
    path = configuration.get(RECOVERY_PATH)
    mode = RecoveryClaimMode[configuration.get(CLAIM_MODE)]
    if not path:
        return None
    ignore = configuration.get(IGNORE_UNCLAIMED_STATE)
    return RestoreSettings(path, ignore, mode, store_options(configuration.to_dict()))


def savepoint_directory(configuration: Configuration, given: str | None = None) -> SharedStorage:
    """Return the storage for a new savepoint: `given`, or the configured directory."""
    directory = given or configuration.get(SAVEPOINTS_DIRECTORY)
    if not directory:
        key = SAVEPOINTS_DIRECTORY.key
        raise BadSetting(
            f"No directory for the savepoint was given, and {key} is not set.",
            fix=f"Pass a directory, or set {key}, e.g. to file:///var/savepoints.",
        )
    storage = savepoint_storage(directory, store_options(configuration.to_dict()))
    check_savepoint_directory(storage)
    return storage
