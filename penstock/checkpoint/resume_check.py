"""Whether a program can go on with a checkpoint of its lineage."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.checkpoint.key_types import check_key_type
from penstock.checkpoint.manifest import Manifest, NotRestorable
from penstock.graph.physical import PhysicalGraph


def check_restorable(
    manifest: Manifest, graph: PhysicalGraph, sources: list[str], key_types: Mapping[str, object], where: str
) -> None:
    """Raise NotRestorable if it cannot. `sources`: the uid of each line of Spark's offsets, as the program has them;
    `key_types`: those that it declares, by operator uid; `where`: the lineage, for errors."""
    before, now = (list(dict.fromkeys(uids)) for uids in (manifest.sources, sources))
    if manifest.log_index and before and before != now:
        raise NotRestorable(
            f"The checkpoint in {where} has the positions of the sources {before}, in this order, and this program has "
            f"{now}. Spark knows its sources by their place.",
            fix="Change sources between a savepoint and a restore from it, which matches them by uid. Or choose "
            "another job name to start afresh.",
        )
    chains = graph.chains_by_uid()
    for uid, snapshot in manifest.operators.items():
        if uid not in chains:
            raise NotRestorable(
                f"The checkpoint in {where} holds state of operator '{snapshot.name}' (uid '{uid}'), which this "
                f"program does not have. Give its operators the uids they had, or choose another job name or "
                f"state.checkpoints.dir to start afresh."
            )
        groups = chains[uid].max_parallelism
        if snapshot.in_key_groups and groups != snapshot.max_parallelism:
            raise NotRestorable(
                f"The checkpoint in {where} has the state of operator '{snapshot.name}' (uid '{uid}') in "
                f"{snapshot.max_parallelism} key groups, this program in {groups}. The number cannot change: call "
                f"set_max_parallelism({snapshot.max_parallelism}) on the operator."
            )
        if uid in key_types and snapshot.in_key_groups:
            operator = f"'{snapshot.name}' (uid '{uid}')"
            check_key_type(key_types[uid], snapshot.key_type, operator, f"the checkpoint in {where}")
