"""Write savepoints from DataFrames, or by changing another savepoint."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Any, BinaryIO, Self, cast

import msgspec
import pyarrow as pa

import penstock
from penstock.checkpoint.bases import SAVED_STATE
from penstock.checkpoint.lineages import SharedStorage
from penstock.checkpoint.manifest import OperatorSnapshot, StateAddress
from penstock.common.wall_clock import now_ms
from penstock.errors import PenstockError
from penstock.savepoint.format import (
    FORMAT,
    METADATA,
    Metadata,
    SavedBlock,
    SavedOperator,
    SavepointError,
    dispose_savepoint,
    publish_metadata,
    savepoint_storage,
)
from penstock.savepoint.positions import Positions
from penstock.state.blocks import Blocks, blocks_for
from penstock.state.entries import HEADER, state_id
from penstock.state.files import GroupChanges, merge_changes, write_changes
from penstock.state.key_groups import check_parallelism, key_group_of
from penstock.state.overlay import TIMER_KINDS
from penstock.state.shares import GROUPED
from penstock.state.spill import Run
from penstock.state.storage import StorageError
from penstock.state.ttl_cleanup import cursor_name
from penstock.state.ttl_registry import numbers_of
from penstock.state.ttl_timers import EXPIRY_KINDS
from penstock.tables.bootstrap import KeyedBootstrap, StateBootstrap
from penstock.tables.contents import KeyedContent
from penstock.tables.layouts import timer_of
from penstock.tables.rewriting import Change, KeyedRewrite, rewritten_shares
from penstock.tables.savepoint import Savepoint
from penstock.tables.snapshot import TIMERS
from penstock.tables.sources import SavedBlocks

_TIMERS = {state_id(f"_timers {kind}"): kind for kind in (*TIMER_KINDS, *EXPIRY_KINDS.values())}
_PORTION = 10_000


class BadSavepointWrite(PenstockError):
    """The savepoint cannot be written. Nothing was written.

    Operator action: follow the message; the target directory is unchanged.
    """


class _Kept:
    """An operator of the base savepoint."""

    def __init__(self, saved: SavedOperator) -> None:
        self.saved = saved
        self.max_parallelism = saved.snapshot.max_parallelism
        self.changes: dict[tuple[str, str], list[Change]] = {}
        """The functions to apply, by state and kind of frame."""


class SavepointWriter:
    """Builds and writes a savepoint.

    Start with ``new_savepoint`` or ``from_existing_savepoint``, add changes, then call ``write``. Nothing is
    written before that.
    """

    def __init__(self, base: Savepoint | None, max_parallelism: int) -> None:
        self._base = base
        self._max_parallelism = max_parallelism
        self._kept: dict[str, _Kept] = {}
        self._new: dict[str, tuple[KeyedBootstrap | StateBootstrap, str]] = {}
        self._renamed: dict[str, str] = {}
        """New uids by the uids in the base."""
        if base is not None:
            self._kept = {uid: _Kept(saved) for uid, saved in base.metadata.operators.items()}

    @classmethod
    def new_savepoint(cls, max_parallelism: int = 128) -> SavepointWriter:
        """Start an empty savepoint.

        Args:
            max_parallelism: The max parallelism of the job that will start from the savepoint; 128 unless it sets one.
        """
        check_parallelism(1, max_parallelism)
        return cls(None, max_parallelism)

    @classmethod
    def from_existing_savepoint(
        cls, savepoint: Savepoint | str | os.PathLike[str], store_options: Mapping[str, Any] | None = None
    ) -> SavepointWriter:
        """Start from the contents of a savepoint, which itself stays unchanged."""
        if not isinstance(savepoint, Savepoint):
            savepoint = Savepoint.load(savepoint, store_options)
        groups = [each.snapshot.max_parallelism for each in savepoint.operators.values() if each.keyed]
        return cls(savepoint, groups[0] if groups else 128)

    def with_operator(self, uid: str, bootstrap: KeyedBootstrap | StateBootstrap, name: str = "Bootstrapped") -> Self:
        """Add an operator with this state. ``name`` is for display."""
        if uid in self._kept or uid in self._new:
            raise BadSavepointWrite(
                f"The savepoint already has an operator with uid '{uid}'.",
                fix=f"Call remove_operator('{uid}') first to replace its state.",
            )
        self._new[uid] = bootstrap, name
        return self

    def remove_operator(self, uid: str) -> Self:
        """Remove an operator and all its state."""
        if self._new.pop(uid, None) is None:
            self._operator(uid)
            del self._kept[uid]
        return self

    def change_operator_identifier(self, uid: str, new_uid: str) -> Self:
        """Move the state of an operator, or the position of a source, to a new uid."""
        sources = {} if self._base is None else self._base.metadata.sources
        taken = new_uid in self._kept or new_uid in self._new or new_uid in {self._now(each) for each in sources}
        if taken:
            raise BadSavepointWrite(f"The uid '{new_uid}' is already in use.", fix="Remove that operator first.")
        if uid in self._new:
            self._new[new_uid] = self._new.pop(uid)
            return self
        origin = next((old for old, now in self._renamed.items() if now == uid), uid)
        if uid not in self._kept and origin not in sources:
            self._operator(uid)
        if uid in self._kept:
            self._kept = {new_uid if each == uid else each: kept for each, kept in self._kept.items()}
        self._renamed[origin] = new_uid
        return self

    def change_max_parallelism(self, max_parallelism: int) -> Self:
        """Repartition all keyed state into this many key groups: the max parallelism of the job that will use it."""
        check_parallelism(1, max_parallelism)
        self._max_parallelism = max_parallelism
        for kept in self._kept.values():
            kept.max_parallelism = max_parallelism
        return self

    def transform_state(self, uid: str, state: str, function: Change, frame: str = "pandas") -> Self:
        """Change a state with a function that receives its table and returns one with the same columns.

        The function can change, add and remove rows. Unchanged rows keep their stored bytes. The complete table is
        held in memory.

        Args:
            uid: The operator's uid.
            state: The state's name.
            function: The function that maps the old table to the new one.
            frame: The type of the table: "pandas" or "arrow".
        """
        kept = self._operator(uid)
        assert self._base is not None
        if frame not in ("pandas", "arrow"):
            raise BadSavepointWrite(f"frame must be 'pandas' or 'arrow', not {frame!r}.")
        if any(name == state and other != frame for name, other in kept.changes):
            raise BadSavepointWrite(
                f"State '{state}' of operator '{kept.saved.snapshot.name}' (uid '{uid}') is transformed both as pandas "
                f"and as Arrow.",
                fix="Use the same frame for all transformations of a state.",
            )
        # Raises an error now if the state does not exist.
        Savepoint(self._base.storage, self._base.metadata).state(self._old_uid(uid), state)
        kept.changes.setdefault((state, frame), []).append(function)
        return self

    def write(self, path: str | os.PathLike[str], store_options: Mapping[str, Any] | None = None) -> str:
        """Write the savepoint to a directory, which must not contain one.

        Returns:
            The savepoint's path, for ``penstock run -s``.
        """
        target = savepoint_storage(os.fspath(path), store_options)
        if target.exists(METADATA) or target.list(f"{SAVED_STATE}/"):
            raise BadSavepointWrite(f"{target.where} already contains a savepoint.", fix="Choose another directory.")
        now = now_ms()
        try:
            operators = {uid: self._write_kept(uid, kept, target, now) for uid, kept in self._kept.items()}
            for uid, (bootstrap, name) in self._new.items():
                operators[uid] = self._write_new(uid, bootstrap, name, target)
            publish_metadata(target, self._metadata(operators, now))
        except Exception:
            with suppress(StorageError, SavepointError):
                dispose_savepoint(target)
            raise
        return target.where

    # -- operators -----------------------------------------------------------------------------------------------------

    def _write_new(
        self, uid: str, bootstrap: KeyedBootstrap | StateBootstrap, name: str, target: SharedStorage
    ) -> SavedOperator:
        snapshot, changes = bootstrap.run(uid, name, self._max_parallelism, self._number)
        laid = blocks_for(snapshot.parallelism, self._max_parallelism)
        blocks, timers = _write_blocks(target, changes, laid)
        return SavedOperator(
            snapshot=msgspec.structs.replace(snapshot, timers=timers),
            derived_uid=False,
            blocks=blocks,
            block_count=laid.count,
        )

    def _write_kept(self, uid: str, kept: _Kept, target: SharedStorage, now: int) -> SavedOperator:
        assert self._base is not None
        saved = kept.saved
        snapshot = saved.snapshot
        regrouped = saved.keyed and kept.max_parallelism != snapshot.max_parallelism
        if regrouped and any(shares.mode == GROUPED for shares in snapshot.operator_state.values()):
            raise BadSavepointWrite(
                f"Operator '{snapshot.name}' (uid '{uid}') has raw keyed state, whose keys are unknown to Penstock, so "
                f"its key groups cannot be changed.",
                fix="Keep its max parallelism, or call remove_operator.",
            )
        source = SavedBlocks(self._base.storage, saved)
        rewrites: dict[str, list[tuple[bytes, bytes]]] = {}
        shares = dict(snapshot.operator_state)
        for (state, frame), functions in kept.changes.items():
            described = f"State '{state}' of operator '{snapshot.name}' (uid '{uid}')"
            table = self._base.state(self._old_uid(uid), state)
            if isinstance(table.content, KeyedContent):
                rewrite = KeyedRewrite(table.content, state, described, self._number, kept.max_parallelism, now)
                rewrites[state] = rewrite.entries(functions, frame)
            else:
                shares[state] = rewritten_shares(cast(Any, table.content), functions, frame, described)
        if not rewrites and not regrouped:
            for block in saved.blocks:
                data = source.checked(block)
                target.write_file(saved.blocks[block].name, cast(BinaryIO, pa.BufferReader(data)))
            return msgspec.structs.replace(saved, snapshot=msgspec.structs.replace(snapshot, operator_state=shares))
        run = Run()
        try:
            dropped = _dropped(snapshot, rewrites)
            for block in source.blocks():
                for change in source.groups(block):
                    _put(run, _regrouped(change.entries, dropped, kept.max_parallelism if regrouped else None))
            for entries in rewrites.values():
                _put(run, iter(entries))
            parallelism = min(snapshot.parallelism, kept.max_parallelism)
            laid = blocks_for(parallelism, kept.max_parallelism)
            blocks, timers = _write_blocks(target, run.changes(), laid)
        finally:
            run.close()
        changed = msgspec.structs.replace(
            snapshot,
            parallelism=parallelism,
            max_parallelism=kept.max_parallelism,
            operator_state=shares,
            timers=timers,
        )
        return SavedOperator(snapshot=changed, derived_uid=saved.derived_uid, blocks=blocks, block_count=laid.count)

    # -- the rest ------------------------------------------------------------------------------------------------------

    @property
    def _number(self) -> int:
        return 1 if self._base is None else self._base.metadata.checkpoint

    def _now(self, uid: str) -> str:
        return self._renamed.get(uid, uid)

    def _old_uid(self, uid: str) -> str:
        return next((old for old, now in self._renamed.items() if now == uid), uid)

    def _operator(self, uid: str) -> _Kept:
        kept = self._kept.get(uid)
        if kept is None:
            where = "A new savepoint" if self._base is None else f"The savepoint in {self._base.path}"
            raise BadSavepointWrite(f"{where} has no operator with uid '{uid}', only {sorted(self._kept)}.")
        return kept

    def _metadata(self, operators: dict[str, SavedOperator], now: int) -> Metadata:
        identity = uuid.uuid4().hex[:12]
        base = None if self._base is None else self._base.metadata
        if base is None:
            return Metadata(
                format=FORMAT,
                penstock=penstock.__version__,
                id=identity,
                job="bootstrap",
                created=now,
                clock=now,
                lineage="",
                checkpoint=1,
                batch=None,
                operators=operators,
                sources={},
                positions=Positions(),
                times={},
            )
        gone = base.operators.keys() - {self._old_uid(uid) for uid in self._kept}
        return msgspec.structs.replace(
            base,
            penstock=penstock.__version__,
            id=identity,
            created=now,
            operators=operators,
            sources={self._now(uid): source for uid, source in base.sources.items()},
            positions=Positions(
                batches=base.positions.batches,
                lines={self._now(uid): lines for uid, lines in base.positions.lines.items()},
            ),
            times={self._now(uid): each for uid, each in base.times.items() if uid not in gone},
            queryable={
                name: StateAddress(uid=self._now(at.uid), state=at.state)
                for name, at in base.queryable.items()
                if self._now(at.uid) in self._kept
            },
        )


def _dropped(snapshot: OperatorSnapshot, rewrites: Mapping[str, Any]) -> set[int]:
    """Return the ids of states whose entries are rewritten or no longer valid."""
    numbers = {state_id(cursor_name(name)) for name in snapshot.ttl}
    for name in rewrites:
        if name == TIMERS and name not in snapshot.states:
            numbers |= {state_id(f"_timers {kind}") for kind in TIMER_KINDS}
        else:
            numbers |= numbers_of(name)
    return numbers


def _regrouped(
    entries: list[tuple[bytes, bytes | None]], dropped: set[int], max_parallelism: int | None
) -> Iterator[tuple[bytes, bytes]]:
    for full, data in entries:
        number = int.from_bytes(full[2:6], "big")
        if number in dropped or data is None:
            continue
        if max_parallelism is not None:
            if number in _TIMERS:
                key = timer_of(full)[1]
            else:
                key = full[HEADER.size : HEADER.size + int.from_bytes(full[6 : HEADER.size], "big")]
            full = key_group_of(key, max_parallelism).to_bytes(2, "big") + full[2:]
        yield full, data


def _put(run: Run, entries: Iterator[tuple[bytes, bytes]]) -> None:
    portion: list[tuple[bytes, bytes | None]] = []
    for entry in entries:
        portion.append(entry)
        if len(portion) == _PORTION:
            run.put([GroupChanges(0, [], portion)])
            portion = []
    if portion:
        run.put([GroupChanges(0, [], portion)])


def _write_blocks(
    target: SharedStorage, changes: Iterable[GroupChanges], laid: Blocks
) -> tuple[dict[int, SavedBlock], dict[str, dict[int, int]]]:
    """Write block files, one key group at a time. Return the blocks, and the first timers by kind and block."""
    timers: dict[str, dict[int, int]] = {}
    blocks: dict[int, SavedBlock] = {}
    whole = (merge_changes([change], as_base=True) for change in changes)
    for block, groups in groupby(whole, key=lambda change: laid.of(change.group)):
        with tempfile.TemporaryFile(prefix="penstock-block-") as file:
            written = write_changes(_noting_timers(groups, block, timers), file)
            if written.entries:
                name = f"{SAVED_STATE}/{written.digest}.arrow"
                file.seek(0)
                target.write_file(name, file)
                blocks[block] = SavedBlock(name=name, size=written.size)
    return blocks, timers


def _noting_timers(
    groups: Iterable[GroupChanges], block: int, timers: dict[str, dict[int, int]]
) -> Iterator[GroupChanges]:
    for change in groups:
        for full, _ in change.entries:
            kind = _TIMERS.get(int.from_bytes(full[2:6], "big"))
            if kind is not None:
                least = timers.setdefault(kind, {})
                moment = timer_of(full)[0]
                least[block] = min(moment, least.get(block, moment))
        if change.entries:
            yield change
