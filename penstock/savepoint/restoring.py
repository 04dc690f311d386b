"""Restores a savepoint: builds the first manifest of a lineage from the parts that match the program.

State is matched by operator uid, positions by source uid. Keyed state is copied block by block into bases, so it is
independent of the parallelism and backend of the savepoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from penstock.checkpoint.bases import SAVED_STATE, base_folder
from penstock.checkpoint.fencing import begin, publish_as_owner
from penstock.checkpoint.key_types import check_key_type, declared_key_types
from penstock.checkpoint.lineages import Lineages, SharedStorage
from penstock.checkpoint.manifest import FORMAT, BaseHandle, Manifest, NotRestorable, latest
from penstock.common.options.checkpoints import CLAIM_MODE, IGNORE_UNCLAIMED_STATE
from penstock.graph.physical import PhysicalGraph
from penstock.runtime.plan import Chain
from penstock.savepoint.format import (
    Metadata,
    SavedBlock,
    load_savepoint,
    savepoint_storage,
)
from penstock.savepoint.positions import Line, Positions, put_together
from penstock.state.storage import Storage

_THREADS = 4
_ALLOW = f"--allow-non-restored-state, or {IGNORE_UNCLAIMED_STATE.key}: true"


class RecoveryClaimMode(Enum):
    """Who owns the savepoint after a job was restored from it."""

    CLAIM = "CLAIM"
    """The job owns it and removes it after completing its own first checkpoint."""
    NO_CLAIM = "NO_CLAIM"
    """The user owns it. The job leaves it unchanged."""


class OtherJob(NotRestorable):
    """Nothing in a savepoint matches this program. Operator action: check the path and the program."""


@dataclass(frozen=True)
class RestoreSettings:
    """The savepoint that a job starts from, and how to restore it."""

    path: str
    allow_non_restored_state: bool = IGNORE_UNCLAIMED_STATE.default
    claim_mode: RecoveryClaimMode = RecoveryClaimMode[CLAIM_MODE.default]
    store_options: Mapping[str, Any] | None = None
    """Options of the store at `path`."""

    @property
    def storage(self) -> SharedStorage:
        return savepoint_storage(self.path, self.store_options)

    @property
    def origin(self) -> str:
        """Identifies the path. A job that was killed and is started again with it resumes instead of starting over."""
        return hashlib.blake2b(self.storage.where.encode(), digest_size=6).hexdigest()


def lineage_from_savepoint(
    lineages: Lineages, graph: PhysicalGraph, sources: list[str], settings: RestoreSettings
) -> str:
    """Return the lineage of a job that starts from a savepoint: an existing one with this origin, or a new one.

    A savepoint that does not fit is refused first, because a new lineage replaces the previous one.
    """
    if not lineages.goes_on_from(settings.origin):
        check_savepoint(graph, sources, settings)
    return lineages.current(settings.origin)


def restore_savepoint(
    storage: Storage,
    graph: PhysicalGraph,
    sources: list[str],
    lineage: str,
    token: str,
    settings: RestoreSettings,
    queryable: bool = False,
    backend: str = "",
) -> None:
    """Publish the first manifest of a lineage, built from a savepoint. Does nothing if the lineage has a manifest.

    Call before `EpochDriver.recover`, which resumes from it. `sources`: the source uid for each line of Spark's
    offsets in the program's plan. If the driver dies in here, the next one starts over. `queryable`: whether states can
    be read from outside the job; those of the savepoint can be read at once. `backend`: the state backend of the job.
    """
    if latest(storage) is not None:
        return
    metadata = check_savepoint(graph, sources, settings)
    savepoint = settings.storage
    begin(storage)
    # Files are named by content, so a repetition writes the same files.
    bases = _copy_blocks(savepoint, storage, metadata, graph)
    log = put_together(_without_copied(metadata, graph), sources)
    number = metadata.checkpoint
    uids = graph.chains_by_uid().keys()
    source_uids = {chain.source_uid for chain in graph.sources()}
    operators = {uid: each.snapshot for uid, each in metadata.operators.items() if uid in uids and each.has_state}
    manifest = Manifest(
        format=FORMAT,
        lineage=lineage,
        id=number,
        batch=metadata.batch if log else None,
        parent=b"",
        token=token,
        timestamp=metadata.clock,
        ended=False,
        operators=operators,
        committables=[],
        records={uid: source.records for uid, source in metadata.sources.items() if uid in source_uids},
        spark_log=log,
        log_index=dict.fromkeys(log, number),
        bases=bases,
        since_base={},
        times={uid: time for uid, time in metadata.times.items() if uid in uids | source_uids},
        sources=sources,
        claimed=(metadata.id, savepoint.where) if settings.claim_mode is RecoveryClaimMode.CLAIM else None,
        blocks={uid: each.all_blocks for uid, each in metadata.operators.items() if uid in uids and each.keyed},
        # The first epoch replaces these names by those that the program declares.
        queryable={name: at for name, at in metadata.queryable.items() if queryable and at.uid in operators},
        backend=backend,
    )
    publish_as_owner(storage, manifest, begun=True)


def check_savepoint(graph: PhysicalGraph, sources: list[str], settings: RestoreSettings) -> Metadata:
    """Return the metadata of the savepoint. Raises if it is invalid, incomplete or does not fit. Reads no state."""
    savepoint = settings.storage
    metadata = load_savepoint(savepoint)
    if not settings.allow_non_restored_state:
        _check_all_restorable(metadata, graph, savepoint.where)
    _check_restorable(metadata, graph, sources, savepoint.where)
    there = set(savepoint.list(f"{SAVED_STATE}/"))
    for block in sorted(metadata.blocks(), key=lambda block: block.name):
        if block.name not in there:
            raise block.missing(savepoint.where)
    return metadata


def _check_all_restorable(metadata: Metadata, graph: PhysicalGraph, where: str) -> None:
    """Raise if the savepoint holds state or positions that the program cannot restore."""
    chains = graph.chains_by_uid()
    source_uids = {chain.source_uid for chain in graph.sources()}
    stateful = {uid: each for uid, each in metadata.operators.items() if each.has_state}
    read = {uid: each for uid, each in metadata.sources.items() if each.records or _lines(metadata, uid)}
    missing = [uid for uid in stateful if uid not in chains]
    gone = [uid for uid in read if uid not in source_uids]
    problems = []
    for uid in missing:
        saved = stateful[uid]
        problems.append(
            f"operator '{saved.snapshot.name}' (uid '{uid}'{_derived(saved.derived_uid)}) with its "
            f"{_quoted(saved.state_names())}"
        )
    problems += [
        f"source '{read[uid].name}' (uid '{uid}'{_derived(read[uid].derived_uid)}) with its position after "
        f"{read[uid].records:,} records"
        for uid in gone
    ]
    if not problems:
        return
    if len(missing) == len(stateful) and len(gone) == len(read):
        raise OtherJob(
            f"Nothing in the savepoint in {where} matches this program. It was made from job '{metadata.job}' and "
            f"has the uids {_quoted(sorted([*stateful, *read]))}; this program has "
            f"{_quoted(sorted([*chains, *filter(None, source_uids)]))}.",
            fix=f"Check that the path and the program belong together, and give operators their previous uids. To "
            f"start without the state: {_ALLOW}.",
        )
    raise NotRestorable(
        f"The savepoint in {where} holds state that this program has no operator for: {'; '.join(problems)}.",
        fix=f"Give operators their previous uids. To drop that state: {_ALLOW}.",
    )


def _check_restorable(metadata: Metadata, graph: PhysicalGraph, sources: list[str], where: str) -> None:
    """Raise if matching state or positions are incompatible with the program."""
    key_types = declared_key_types(graph)
    for uid, chain in graph.chains_by_uid().items():
        saved = metadata.operators.get(uid)
        if saved is None or not saved.keyed:
            continue
        groups = saved.snapshot.max_parallelism
        if _is_keyed(chain, uid) and chain.max_parallelism != groups:
            raise NotRestorable(
                f"The savepoint in {where} has the state of operator '{saved.snapshot.name}' (uid '{uid}') in {groups} "
                f"key groups, but this program uses {chain.max_parallelism}. State is stored by key group, so their "
                f"number cannot change.",
                fix=f"Call set_max_parallelism({groups}) on the operator or the environment.",
            )
        if uid in key_types:
            operator = f"'{saved.snapshot.name}' (uid '{uid}')"
            check_key_type(key_types[uid], saved.snapshot.key_type, operator, f"the savepoint in {where}")
        if not _is_keyed(chain, uid):
            raise NotRestorable(
                f"The savepoint in {where} has keyed state ({_quoted(saved.state_names())}) of operator "
                f"'{saved.snapshot.name}' (uid '{uid}'), but in this program the operator with that uid is not keyed.",
                fix="Give this uid to the operator that should restore the state, and another uid to this operator.",
            )
    for chain in graph.sources():
        source = metadata.sources.get(chain.source_uid or "")
        if source is None or not source.records:
            continue
        what = f"source '{source.name}' (uid '{chain.source_uid}') of the savepoint in {where}"
        if (source.reader, source.copied) != (chain.reader, chain.copied):
            raise NotRestorable(
                f"The {what} is of another kind in this program, so its position cannot be used.",
                fix=f"Give the new source a new uid. To drop the position: {_ALLOW}.",
            )
        if source.copied and chain.reader != "chunks":
            raise NotRestorable(
                f"Of the {what}, a batch DataFrame, {source.records:,} rows were read. Which ones is unknown, because "
                f"Spark can return them in a different order each time.",
                fix="Read it as a stream with spark.readStream, or let the job finish instead of making a savepoint.",
            )
    for uid in dict.fromkeys(sources):
        before, now = len(_lines(metadata, uid)), sources.count(uid)
        if before and before != now:
            raise NotRestorable(
                f"Spark read source '{uid}' of the savepoint in {where} as {before} sources and now reads it as {now}, "
                f"so positions cannot be matched.",
                fix="Leave this source unchanged, and add the new input as a separate source with its own uid.",
            )


def _without_copied(metadata: Metadata, graph: PhysicalGraph | None = None) -> Positions:
    """Return the positions without those of copied sources.

    The new lineage copies the unread records of such a source again. A copy holds pickles, so a position from the
    savepoint must never lead Spark to another file.
    """
    copied = {uid for uid, source in metadata.sources.items() if source.copied}
    if graph is not None:
        copied |= {chain.source_uid for chain in graph.sources() if chain.copied and chain.source_uid is not None}
    positions = metadata.positions
    return Positions(
        batches=positions.batches, lines={uid: lines for uid, lines in positions.lines.items() if uid not in copied}
    )


def _copy_blocks(
    savepoint: SharedStorage, storage: Storage, metadata: Metadata, graph: PhysicalGraph
) -> dict[str, dict[int, BaseHandle]]:
    """Copy the blocks of the graph's operators and return them as bases. Key groups without a base are empty."""
    bases: dict[str, dict[int, BaseHandle]] = {}
    copies: dict[str, SavedBlock] = {}
    for uid in metadata.operators.keys() & graph.chains_by_uid().keys():
        saved = metadata.operators[uid]
        for number, block in sorted(saved.blocks.items()):
            name = f"{base_folder(metadata.checkpoint)}/{block.checksum}.arrow"
            groups = saved.all_blocks.groups(number)
            bases.setdefault(uid, {})[groups.start] = BaseHandle(
                id=metadata.checkpoint, name=name, size=block.size, end=groups.stop
            )
            copies[name] = block
    with ThreadPoolExecutor(_THREADS) as pool:
        for _ in pool.map(lambda each: _copy(savepoint, each[1], storage, each[0]), copies.items()):
            pass
    return bases


def _copy(savepoint: SharedStorage, block: SavedBlock, storage: Storage, name: str) -> None:
    data = savepoint.view(block.name)
    block.check(data, savepoint.where)
    storage.write_file(name, pa.BufferReader(data))


def _is_keyed(chain: Chain, uid: str) -> bool:
    return any(operator.keyed for operator in chain.operators if operator.uid == uid)


def _lines(metadata: Metadata, uid: str) -> list[Line]:
    lines = _without_copied(metadata).lines.get(uid, [])
    return lines if any(line.position for line in lines) else []


def _derived(derived: bool) -> str:
    return ", derived from the program's structure" if derived else ""


def _quoted(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
