"""Where a job resumes from, at its start and after a failure: its initial savepoint or its last checkpoint."""

from __future__ import annotations

from penstock.checkpoint.manifest import Manifest
from penstock.driver.epochs import EpochDriver
from penstock.driver.instructions import JobTraits
from penstock.savepoint.restoring import RestoreSettings, restore_savepoint


def recover(driver: EpochDriver, traits: JobTraits, restore: RestoreSettings | None) -> Manifest | None:
    """Execute a `Recover` instruction: restore the savepoint, start the sinks and resume from the last checkpoint.

    Returns the manifest of that checkpoint, if any. Call before the first epoch, and after each
    failure that the job survives. A lineage that already has a checkpoint resumes from it, not from the savepoint.
    """
    if restore is not None:
        restore_savepoint(
            driver.storage,
            driver.graph,
            driver.sources,
            driver.lineage,
            driver.token,
            restore,
            queryable=driver.settings.queryable,
            backend=driver.settings.backend.name,
        )
    driver.start_sinks()
    # A failed batch runs again in the same lineage, so that sinks find the leftovers of the failed run.
    recovers = traits.checkpointing or traits.single_epoch or restore is not None
    return driver.recover() if recovers else None
