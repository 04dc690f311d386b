"""A driver's open lineage: its storage, Spark's log, copies of inputs, credits and the epoch driver."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.checkpoint.housekeeping import merge_here
from penstock.checkpoint.lineages import Lineages, SharedStorage, new_lineage
from penstock.checkpoint.manifest import Manifest, Version, load
from penstock.connectors.guarantees import throttled_sources
from penstock.driver.epoch_steps import MeasuredEpoch
from penstock.driver.epochs import EpochDriver
from penstock.driver.flow_control import FlowControl
from penstock.driver.recovery import recover
from penstock.driver.slots import Slots
from penstock.runtime.probe import crash_probe
from penstock.savepoint.format import savepoint_storage
from penstock.savepoint.restoring import lineage_from_savepoint
from penstock.savepoint.saving import make_savepoint
from penstock.spark.bases import SparkMerge
from penstock.spark.credit_files import CreditFiles
from penstock.spark.engine import SparkEngine
from penstock.spark.inputs import inputs_of
from penstock.spark.job_spec import JobSpec
from penstock.spark.log import SparkLog
from penstock.spark.sources import sources_in_log
from penstock.state.backends import remove_replicas
from penstock.state.driver_storage import DriverStorage
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import Storage, StorageError

_logger = logging.getLogger("penstock")


class OpenLineage:
    """Call `recover` once per start of the query, then run epochs with `driver`, and finally call `close` or `end`."""

    def __init__(
        self,
        spark: SparkSession,
        spec: JobSpec,
        engine: SparkEngine,
        job: str,
        workdir: Path,
        slots: Slots,
        wait: Callable[[float], object],
        observe: Callable[[MeasuredEpoch], None],
    ) -> None:
        """`job` is the job ID, `workdir` the driver's scratch directory; `wait` waits some seconds.

        `observe` is called with each completed epoch.
        """
        self._spark, self._spec, self._workdir = spark, spec, workdir
        probe = crash_probe("driver", lambda: self.driver.number)
        self._lineages = None if spec.checkpoint_root is None else Lineages(spec.checkpoint_root, probe)
        self._bases = SparkMerge(spark, job)
        self._saving = SparkMerge(spark, f"{job}-savepoint")
        sources = sources_in_log(spec.logical, spec.physical)
        self._storage, lineage = self._open(sources)
        self.inputs = inputs_of(self._storage, workdir / "inputs", self._master())
        self.log = SparkLog(workdir / "spark", self.inputs.own)
        held = throttled_sources(spec.logical) if spec.flow is not None else []
        self.credits = CreditFiles(workdir / "credits", held)
        self.driver = EpochDriver(
            spec.physical,
            self._storage,
            spec.settings,
            engine.execute,
            spec.logical.sinks(),
            probe,
            prepare=engine.prepare,
            lineage=lineage,
            wait=wait,
            merge=merge_here if self._storage.in_memory else self._bases,
            open_savepoint=partial(savepoint_storage, options=spec.store_options),
            single_epoch=spec.single_epoch,
            stores_manifests=spec.checkpointing or not spec.single_epoch,
            executor=ThreadPoolExecutor(1, "penstock-commits"),
            await_tasks=engine.await_tasks,
            flow=FlowControl(spec.flow, held, self.credits) if spec.flow is not None and held else None,
            slots=slots,
            parallelism=spec.parallelism,
            observe=observe,
            source_lines=sources,
        )

    def _open(self, sources: list[str]) -> tuple[Storage, str]:
        spec = self._spec
        if self._lineages is None:
            lineage = new_lineage()
            if not spec.checkpointing and self._master().startswith("local"):
                # Executors are on this host, so its disk limits the state, not the driver's memory.
                root = self._workdir / "state" / lineage
                root.mkdir(parents=True)
                return LocalStorage(root, synced=False), lineage
            return DriverStorage(self._driver_host()), lineage
        if not spec.checkpointing:
            # No driver will resume it, so it is not registered.
            lineage = new_lineage()
        elif spec.restore is None:
            lineage = self._lineages.current()
        else:
            lineage = lineage_from_savepoint(self._lineages, spec.physical, sources, spec.restore)
        return self._lineages.storage_of(lineage), lineage

    def _driver_host(self) -> str:
        """Return the loopback address, or an address that executors can reach if the user chose a cluster."""
        if self._master().startswith("local"):
            return "127.0.0.1"
        return str(self._spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))

    def _master(self) -> str:
        return str(self._spark.sparkContext.master)

    def recover(self) -> Manifest | None:
        """Restore the savepoint or resume from the last checkpoint. Return that checkpoint, or None."""
        last = recover(self.driver, self._spec.traits, self._spec.restore)
        if not self._spec.single_epoch:
            self.log.rewrite(last, lambda number: load(self._storage, number)[0])
        return last

    def save(self, directory: SharedStorage, manifest: Manifest, version: Version) -> str:
        """Make a savepoint of a pinned checkpoint and return its path."""
        return make_savepoint(
            directory,
            self._spec.name,
            self.driver.graph,
            self._storage,
            manifest,
            version,
            self._spec.logical.derived_uids(),
            merge_here if self._storage.in_memory else self._saving,
        )

    def close(self) -> None:
        """Close the lineage but keep it for the next run of the program."""
        self.credits.close()
        self._bases.cancel()
        self._saving.cancel()
        self.driver.stop()
        self._storage.close()

    def end(self, retain: bool) -> None:
        """End the lineage, which no run of the program will resume: remove it, or mark and retain it."""
        self.close()
        remove_replicas(self._spec.settings.backend, self.driver.lineage)
        if self._lineages is None:
            shutil.rmtree(self._workdir / "state" / self.driver.lineage, ignore_errors=True)
            return
        try:
            self._lineages.end(self.driver.lineage, last=self.driver.next_number - 1, retain=retain)
        except StorageError as error:
            # Completed work stays valid; the next run of the program cleans up.
            _logger.warning("Could not remove the checkpoints of job '%s': %s", self._spec.name, error)
