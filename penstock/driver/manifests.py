"""Builds the manifest of an epoch from the reports of its tasks and the previous manifest."""

from __future__ import annotations

from penstock.checkpoint.housekeeping import Housekeeping
from penstock.checkpoint.key_types import declared_key_types, key_type_text
from penstock.checkpoint.manifest import FORMAT, BaseHandle, Committable, Manifest, Version
from penstock.driver.epoch_settings import Settings
from penstock.driver.epoch_steps import TriggeredEpoch
from penstock.driver.event_time import times_after
from penstock.driver.queryable import queryable_states
from penstock.driver.report_totals import ReportTotals
from penstock.driver.rescaling import Scale, remembered
from penstock.driver.snapshots import operator_snapshots, records_since
from penstock.graph.physical import PhysicalGraph
from penstock.state.blocks import bytes_by_block


class ManifestMaker:
    """Builds the manifests of one driver. `program` is the program's graph before any rescale."""

    def __init__(
        self, program: PhysicalGraph, housekeeping: Housekeeping, token: str, sources: list[str], settings: Settings
    ) -> None:
        self._queryable = settings.queryable
        self._backend = settings.backend.name
        self._program = program
        self._housekeeping = housekeeping
        self._token = token
        self._sources = sources
        self.names = {operator.uid: operator.name for chain in program.chains for operator in chain.operators}
        self._locations = {operator.uid: operator.location for chain in program.chains for operator in chain.operators}
        self.key_types = declared_key_types(program)

    def make(
        self,
        epoch: TriggeredEpoch,
        totals: ReportTotals,
        committables: list[Committable],
        *,
        last: Manifest | None,
        version: Version | None,
        lineage: str,
        scale: Scale,
        claimed: tuple[str, str] | None,
    ) -> Manifest:
        """`totals` are those of all reports. `last` is the previous checkpoint and `version` its version; `scale` is
        the one the epoch ran with."""
        graph = self._program.rescaled(scale)
        bases, since_base = ({}, {}) if last is None else self._carried_on(last, epoch)
        totals.add_to(since_base)
        log_index = epoch.log_index
        if log_index is None:
            log_index = {} if last is None else last.log_index

        def key_type_of(uid: str) -> str:
            return self._key_type_of(uid, last)

        operators = operator_snapshots(last, graph, self.names, key_type_of, totals)
        return Manifest(
            format=FORMAT,
            lineage=lineage,
            id=epoch.number,
            batch=epoch.batch,
            parent=b"" if version is None else version.digest,
            token=self._token,
            timestamp=epoch.timestamp,
            ended=epoch.ends_input,
            operators=operators,
            committables=committables,
            records=records_since(last, graph, totals),
            spark_log=epoch.spark_log,
            log_index=log_index,
            bases=bases,
            since_base=since_base,
            times=times_after({} if last is None else last.times, graph, totals, epoch.timestamp, epoch.jumped),
            sources=self._sources,
            claimed=claimed,
            rescaled=remembered(self._program, scale),
            blocks=({} if last is None else last.blocks) | epoch.blocks,
            queryable=queryable_states(last, operators, totals, self._queryable, self._locations),
            backend=self._backend,
        )

    def _carried_on(
        self, last: Manifest, epoch: TriggeredEpoch
    ) -> tuple[dict[str, dict[int, BaseHandle]], dict[str, dict[int, int]]]:
        """Return the bases after `last`, and the bytes of the deltas since, for the blocks of this epoch."""
        bases, since_base = self._housekeeping.bases(last), self._housekeeping.since_base(last)
        for uid, blocks in epoch.blocks.items():
            before = last.blocks.get(uid)
            if before is not None and before.max_parallelism == blocks.max_parallelism:
                since_base[uid] = bytes_by_block(since_base.get(uid, {}), before, blocks)
            else:
                # It had no state.
                bases[uid] = {0: BaseHandle(id=last.id, name="", size=0, end=blocks.max_parallelism)}
                since_base[uid] = {}
        return bases, since_base

    def _key_type_of(self, uid: str, last: Manifest | None) -> str:
        """Return the declared key type, or the one stored by an earlier version of the program."""
        if uid in self.key_types:
            return key_type_text(self.key_types[uid])
        before = None if last is None else last.operators.get(uid)
        return "" if before is None else before.key_type
