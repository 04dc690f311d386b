"""The size limit for one operator's state with the Memory backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.checkpoint.bases import largest_state
from penstock.checkpoint.manifest import BaseHandle, Manifest, OperatorSnapshot
from penstock.checkpoint.redistribution import sizes
from penstock.errors import PenstockError
from penstock.state.storage import Storage

_MOST_SUGGESTED = 10 * 1024 * 1024
"""The driver's frame limit, which is the maximum for MemoryStateBackend."""


class StateTooLarge(PenstockError):
    """A state is too large for the Memory backend. Operator action: set a checkpoint directory or raise the limit."""

    retryable = False


def check_memory_limit(
    storage: Storage,
    manifest: Manifest,
    names: Mapping[str, str],
    merged: Callable[[str], list[BaseHandle]],
    limit: int,
) -> None:
    """Raise StateTooLarge if an operator's state in the last checkpoint exceeds `limit` bytes.

    `names` maps operator uids to names. `merged` returns an operator's bases as the next manifest will list them.
    """
    for uid in manifest.keyed() | manifest.operators.keys():
        _check_operator(storage, names, uid, manifest.operators.get(uid), merged(uid), limit)


def _check_operator(
    storage: Storage,
    names: Mapping[str, str],
    uid: str,
    snapshot: OperatorSnapshot | None,
    bases: list[BaseHandle],
    limit: int,
) -> None:
    held = {} if snapshot is None else sizes(snapshot.operator_state)
    keyed = sum(base.size for base in bases)
    size = keyed + sum(held.values())
    if size <= limit:
        return
    raised = f", or raise the limit: env.set_state_backend(MemoryStateBackend(max_state_size={2 * size}))"
    alternative = raised if 2 * size <= _MOST_SUGGESTED else ""
    state = largest_state(storage, bases, snapshot.states if snapshot else ())
    if 2 * keyed < size:
        state = max(held, key=lambda name: held[name])
    raise StateTooLarge(
        f"State '{state}' of operator '{names[uid]}' (uid '{uid}') is too large for the Memory backend: "
        f"the operator's state takes {size:,} bytes, but state.backend.memory.max-state-size is {limit:,}.",
        fix=f"Store checkpoints in files: set state.checkpoints.dir, e.g. to file:///path/to/checkpoints, and leave "
        f"state.backend out, or env.set_state_backend(FsStateBackend('file:///path/to/checkpoints')){alternative}.",
    )
