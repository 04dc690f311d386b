"""Where a job goes on from, at its start and after a failure: the savepoint that it begins with, or its checkpoint."""

from __future__ import annotations

from penstock.checkpoint.manifest import Manifest
from penstock.driver.epochs import EpochDriver
from penstock.driver.instructions import JobTraits
from penstock.savepoint.restoring import RestoreSettings, restore_savepoint


def recover(driver: EpochDriver, traits: JobTraits, restore: RestoreSettings | None) -> Manifest | None:
    """Execute a `Recover`: restore the savepoint, start the sinks, and go on from the last checkpoint, None for none.

    Called before the first epoch, and after any failure that the job is to survive. A lineage that has a checkpoint
    already goes on from that and not from the savepoint.
    """
    if restore is not None:
        restore_savepoint(driver.storage, driver.graph, driver.sources, driver.lineage, driver.token, restore)
    driver.start_sinks()
    # A batch is run again in the same lineage after a failure, so that sinks find what that left.
    recovers = traits.checkpointing or traits.single_epoch or restore is not None
    return driver.recover() if recovers else None
