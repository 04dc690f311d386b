"""Checks whether a program can resume from a checkpoint of its lineage."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.checkpoint.key_types import check_key_type
from penstock.checkpoint.manifest import Manifest, NotRestorable
from penstock.graph.physical import PhysicalGraph


def check_restorable(
    manifest: Manifest, graph: PhysicalGraph, sources: list[str], key_types: Mapping[str, object], where: str
) -> None:
    """Raise NotRestorable if the program cannot resume from the checkpoint.

    Args:
        manifest: The checkpoint.
        graph: The program.
        sources: The uid of the source of each line of Spark's offsets, in the program.
        key_types: The program's declared key types, by operator uid.
        where: The lineage, for error messages.
    """
    before, now = (list(dict.fromkeys(uids)) for uids in (manifest.sources, sources))
    if manifest.log_index and before and before != now:
        raise NotRestorable(
            f"The checkpoint in {where} has offsets for the sources {before}, in this order, but this program has the "
            f"sources {now}. Spark identifies its sources by position.",
            fix="Take a savepoint, change the sources, and restore from the savepoint, which matches sources by uid. "
            "Or choose another job name to start from scratch.",
        )
    chains = graph.chains_by_uid()
    for uid, snapshot in manifest.operators.items():
        if uid not in chains:
            raise NotRestorable(
                f"The checkpoint in {where} holds state of operator '{snapshot.name}' (uid '{uid}'), which this "
                f"program does not have. Restore the previous uids of the operators, or choose another job name or "
                f"state.checkpoints.dir to start from scratch."
            )
        groups = chains[uid].max_parallelism
        if snapshot.in_key_groups and groups != snapshot.max_parallelism:
            raise NotRestorable(
                f"The checkpoint in {where} has the state of operator '{snapshot.name}' (uid '{uid}') in "
                f"{snapshot.max_parallelism} key groups, but this program has {groups}. The number cannot change: call "
                f"set_max_parallelism({snapshot.max_parallelism}) on the operator."
            )
        if uid in key_types and snapshot.in_key_groups:
            operator = f"'{snapshot.name}' (uid '{uid}')"
            check_key_type(key_types[uid], snapshot.key_type, operator, f"the checkpoint in {where}")
