"""The first manifest of a lineage that begins with a savepoint: what of it the program has a place for.

State is matched by operator uid, positions by source uid. Keyed state is copied, block by block, as bases; a
parallelism or backend other than that of the savepoint makes no difference to it.
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
    """Whose a savepoint is, after a job was restored from it."""

    CLAIM = "CLAIM"
    """The job's: it removes it when it has completed a checkpoint of its own."""
    NO_CLAIM = "NO_CLAIM"
    """The user's: the job leaves it as it is."""


class OtherJob(NotRestorable):
    """Nothing in a savepoint is of this program. Operator action: see whether it is the right path, or program."""


@dataclass(frozen=True)
class RestoreSettings:
    """What a job is to begin with."""

    path: str
    allow_non_restored_state: bool = IGNORE_UNCLAIMED_STATE.default
    claim_mode: RecoveryClaimMode = RecoveryClaimMode[CLAIM_MODE.default]
    store_options: Mapping[str, Any] | None = None
    """Of the store that the path names."""

    @property
    def storage(self) -> SharedStorage:
        return savepoint_storage(self.path, self.store_options)

    @property
    def origin(self) -> str:
        """Names the path: a job that was killed and is started again with it goes on, and does not begin again."""
        return hashlib.blake2b(self.storage.where.encode(), digest_size=6).hexdigest()


def lineage_from_savepoint(
    lineages: Lineages, graph: PhysicalGraph, sources: list[str], settings: RestoreSettings
) -> str:
    """The lineage of a job that is to begin with a savepoint: one that has begun so, or a new one.

    A savepoint that does not fit is refused before: a new lineage takes the place of the one before it.
    """
    if not lineages.goes_on_from(settings.origin):
        check_savepoint(graph, sources, settings)
    return lineages.current(settings.origin)


def restore_savepoint(
    storage: Storage, graph: PhysicalGraph, sources: list[str], lineage: str, token: str, settings: RestoreSettings
) -> None:
    """Publish the first manifest of a lineage, made of a savepoint. Does nothing if the lineage has one already.

    Called before `EpochDriver.recover`, which goes on from there. `sources`: the uid of each line of Spark's offsets,
    as the program's plan will have them. If the driver dies in here, the next one begins again.
    """
    if latest(storage) is not None:
        return
    metadata = check_savepoint(graph, sources, settings)
    savepoint = settings.storage
    begin(storage)
    # The names of what is read and written are those of contents, so a repeat writes the same.
    bases = _copy_blocks(savepoint, storage, metadata, graph)
    log = put_together(_without_copied(metadata, graph), sources)
    number = metadata.checkpoint
    uids = graph.chains_by_uid().keys()
    source_uids = {chain.source_uid for chain in graph.sources()}
    manifest = Manifest(
        format=FORMAT,
        lineage=lineage,
        id=number,
        batch=metadata.batch if log else None,
        parent=b"",
        token=token,
        timestamp=metadata.clock,
        ended=False,
        operators={uid: each.snapshot for uid, each in metadata.operators.items() if uid in uids and each.has_state},
        committables=[],
        records={uid: source.records for uid, source in metadata.sources.items() if uid in source_uids},
        spark_log=log,
        log_index=dict.fromkeys(log, number),
        bases=bases,
        since_base={},
        times={uid: time for uid, time in metadata.times.items() if uid in uids | source_uids},
        sources=sources,
        claimed=(metadata.id, savepoint.where) if settings.claim_mode is RecoveryClaimMode.CLAIM else None,
    )
    publish_as_owner(storage, manifest, begun=True)


def check_savepoint(graph: PhysicalGraph, sources: list[str], settings: RestoreSettings) -> Metadata:
    """Refuse a savepoint that is none, is not complete, or does not fit the program. Reads no state."""
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
    """Everything that the savepoint holds must have a place."""
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
            f"None of what the savepoint in {where} holds is of this program. It was made of job '{metadata.job}' and "
            f"has the uids {_quoted(sorted([*stateful, *read]))}; this program has "
            f"{_quoted(sorted([*chains, *filter(None, source_uids)]))}.",
            fix=f"See that path and program belong together, and give operators the uids they had. To start without "
            f"the state: {_ALLOW}.",
        )
    raise NotRestorable(
        f"The savepoint in {where} holds state that this program has no operator for: {'; '.join(problems)}.",
        fix=f"Give operators the uids they had. To drop that state: {_ALLOW}.",
    )


def _check_restorable(metadata: Metadata, graph: PhysicalGraph, sources: list[str], where: str) -> None:
    """What is matched must fit."""
    key_types = declared_key_types(graph)
    for uid, chain in graph.chains_by_uid().items():
        saved = metadata.operators.get(uid)
        if saved is None or not saved.keyed:
            continue
        groups = saved.snapshot.max_parallelism
        if _is_keyed(chain, uid) and chain.max_parallelism != groups:
            raise NotRestorable(
                f"The savepoint in {where} has the state of operator '{saved.snapshot.name}' (uid '{uid}') in {groups} "
                f"key groups, this program in {chain.max_parallelism}. A key's group follows from their number, and "
                f"state is stored by group, so the number stays what it was when the state began.",
                fix=f"Call set_max_parallelism({groups}) on the operator or the environment.",
            )
        if uid in key_types:
            operator = f"'{saved.snapshot.name}' (uid '{uid}')"
            check_key_type(key_types[uid], saved.snapshot.key_type, operator, f"the savepoint in {where}")
        if not _is_keyed(chain, uid):
            raise NotRestorable(
                f"The savepoint in {where} has keyed state ({_quoted(saved.state_names())}) of operator "
                f"'{saved.snapshot.name}' (uid '{uid}'), and in this program the operator with that uid is not keyed.",
                fix="Give the operator that is to have the state this uid, and the other one another.",
            )
    for chain in graph.sources():
        source = metadata.sources.get(chain.source_uid or "")
        if source is None or not source.records:
            continue
        what = f"source '{source.name}' (uid '{chain.source_uid}') of the savepoint in {where}"
        if (source.reader, source.copied) != (chain.reader, chain.copied):
            raise NotRestorable(
                f"The {what} is of another kind in this program, to which its position means nothing.",
                fix=f"Give the new source a uid of its own. To leave the position behind: {_ALLOW}.",
            )
        if source.copied and chain.reader != "chunks":
            raise NotRestorable(
                f"Of the {what}, a batch DataFrame, {source.records:,} rows were read, and nobody can tell which: "
                f"Spark may give them in another order each time.",
                fix="Read it as a stream, with spark.readStream, or let the job finish instead of saving it.",
            )
    for uid in dict.fromkeys(sources):
        before, now = len(_lines(metadata, uid)), sources.count(uid)
        if before and before != now:
            raise NotRestorable(
                f"Spark read source '{uid}' of the savepoint in {where} as {before}, and reads it now as {now}: which "
                f"position belongs to which cannot be told.",
                fix="Leave the source as it was, and give what is added a source and uid of its own.",
            )


def _without_copied(metadata: Metadata, graph: PhysicalGraph | None = None) -> Positions:
    """Of what the job streams a copy of, the new lineage makes another, of the records that were not read yet.

    A copy holds pickles: where the program makes one, no position of a savepoint must lead Spark to another file.
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
    """The bases of the graph's operators, in their new place. Blocks without one are empty."""
    bases: dict[str, dict[int, BaseHandle]] = {}
    copies: dict[str, SavedBlock] = {}
    for uid in metadata.operators.keys() & graph.chains_by_uid().keys():
        for number, block in metadata.operators[uid].blocks.items():
            name = f"{base_folder(metadata.checkpoint)}/{block.checksum}.arrow"
            bases.setdefault(uid, {})[number] = BaseHandle(id=metadata.checkpoint, name=name, size=block.size)
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
    return ", derived from the shape of the program" if derived else ""


def _quoted(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
