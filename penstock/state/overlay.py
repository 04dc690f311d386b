"""The overlay: everything one operator subtask reads and writes in one epoch, on top of its replicas.

It contains the keyed states (`penstock.state.keyed`) and the current key. At the end of an epoch, `changes()` returns
the delta. If the overlay exceeds its memory limit, it spills to local disk (`penstock.state.spill`), always between
two records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from penstock.common.options.state import OVERLAY_MEMORY
from penstock.errors import PenstockError
from penstock.state.blocks import Blocks, blocks_for
from penstock.state.descriptors import StateDescriptor, ValueStateDescriptor
from penstock.state.engines.base import Reader
from penstock.state.entries import StateError, entry_key, key_hash, state_id, stored_keys
from penstock.state.files import GroupChanges
from penstock.state.keyed import KeyedState
from penstock.state.keyed_kinds import STATES
from penstock.state.keyed_values import DefaultedValue
from penstock.state.namespaced import Leftovers, Namespaced
from penstock.state.spill import Run
from penstock.state.stored_types import StoredType, migrations_to
from penstock.state.timers import Timers
from penstock.state.ttl import timed_name
from penstock.state.ttl_registry import TimedStates, numbers_of
from penstock.state.weight import Gauge


class Replicated(Protocol):
    """The committed state below an overlay, by key group."""

    def reader(self, group: int) -> Reader | None:
        """Return a reader of a key group, or None if nothing was ever committed."""


class Nothing:
    """The committed state before the first checkpoint."""

    def reader(self, group: int) -> Reader | None:
        return None


class Holder(Protocol):
    """An operator that buffers data in memory that ends up in the overlay's states."""

    def weight(self) -> int:
        """Return the approximate size of the buffered data in bytes."""

    def flush(self) -> None:
        """Write all buffered data to the states and timers."""


OVERLAY_BYTES = OVERLAY_MEMORY.default
"""Default size at which an overlay spills. Spilling temporarily takes about twice as much memory."""

_PART = struct.Struct(">I")

TIMER_KINDS = ("EVENT_TIME", "PROCESSING_TIME")


class StoredTypes:
    """The stored types of an operator's states.

    Args:
        stored: Stored type by state name.
        operator: The operator, for error messages.
        origin: The annotation from which a declared type was derived, for error messages.
    """

    def __init__(self, stored: Mapping[str, StoredType], operator: str, origin: str = "") -> None:
        self.stored = stored
        self._operator = operator
        self._origin = origin

    def fit(self, name: str, state: KeyedState) -> None:
        """Let a state migrate its stored values to the declared type."""
        stored = self.stored.get(name)
        if stored is None:
            state.evolve(())
        else:
            state.evolve(
                migrations_to(stored, state.descriptor, f"State '{name}' of {self._operator}", origin=self._origin)
            )


class Overlay:
    """All keyed states of one operator subtask.

    Order of calls: `register` while functions open; then per epoch `begin`, records and `grown`, `processed`,
    `changes`. Operators assign `key` before each record and timer, and None if no key is current; states read it. The
    assignment costs 7 ns, a method call would cost 30.
    """

    suffix = 0
    """Number of bytes at the end of `key` that are not part of the key: see Namespaced."""

    def __init__(self, max_parallelism: int) -> None:
        self.key: bytes | None = None
        self.epoch = 0
        self.max_parallelism = max_parallelism
        self.blocks = blocks_for(1, max_parallelism)
        """The blocks of the epoch."""
        self._replicas: Replicated = Nothing()
        self._states: dict[str, KeyedState] = {}
        self._types: StoredTypes | None = None
        self._holders: list[Holder] = []
        self._least: Mapping[str, dict[int, int]] = {}
        self._groups = range(0)
        self._gauge = Gauge(OVERLAY_BYTES)
        self._run: Run | None = None
        self._readers: dict[int, Reader] = {}
        self.part = b""
        """Index of the part of the epoch since the last spill; empty for the first part."""
        self.timers = {kind: Timers(self, kind) for kind in TIMER_KINDS}
        self._leftovers: list[Leftovers] = []
        self.ttl = TimedStates(self)
        self.records = 0
        """Number of records in the epoch, as passed to `processed`."""

    def begin(
        self,
        epoch: int,
        replicas: Replicated,
        least: Mapping[str, dict[int, int]] = MappingProxyType({}),
        groups: range = range(0),
        limit: int = OVERLAY_BYTES,
        blocks: Blocks | None = None,
    ) -> None:
        """Drop everything from the last epoch and read from `replicas`.

        Args:
            epoch: The epoch that starts.
            replicas: The committed state.
            least: The earliest timers, as returned by `least()`.
            groups: The key groups of this subtask.
            limit: Memory in bytes above which the overlay spills.
            blocks: The blocks of the operator in this epoch; as before by default.
        """
        self.epoch = epoch
        self.blocks = blocks or self.blocks
        self.key = None
        self._replicas = replicas
        self._least, self._groups = least, groups
        self._gauge = Gauge(limit)
        self._forget_run()
        self.ttl.begin()
        for state in self._states.values():
            state.reset()
        for kind, timers in self.timers.items():
            timers.begin(least.get(kind, {}), groups)
        for leftovers in self._leftovers:
            leftovers.reset()

    def processed(self, records: int) -> None:
        """Note that the epoch has processed all its records, and how many; afterwards no key is current."""
        self.key = None
        self.records = records

    def release(self) -> None:
        """Release an epoch's data; the states stay registered."""
        self.begin(0, Nothing())

    def register(self, descriptor: StateDescriptor, scope: Namespaced | None = None) -> Any:
        """Return the state of this name: the same object for the same descriptor, an error for another type."""
        name = descriptor.name if scope is None else f"{scope.name} {descriptor.name}"
        known = self._states.get(name)
        if known is not None:
            if known.descriptor is not descriptor and known.descriptor.schema() != descriptor.schema():
                raise StateError(
                    f"State '{descriptor.name}' is registered twice with different types: "
                    f"{known.descriptor.schema()} and {descriptor.schema()}. Give one of them another name."
                )
            if known.descriptor.ttl_config != descriptor.ttl_config:
                raise StateError(
                    f"State '{descriptor.name}' is registered twice with different times to live: "
                    f"{known.descriptor.ttl_config} and {descriptor.ttl_config}. Give one of them another name."
                )
            if known.descriptor.queryable_name != descriptor.queryable_name:
                raise StateError(
                    f"State '{descriptor.name}' is registered twice, as queryable "
                    f"{known.descriptor.queryable_name!r} and {descriptor.queryable_name!r}.",
                    fix="Call set_queryable with the same name on both descriptors.",
                )
            return known
        if any(numbers_of(name) & numbers_of(other) for other in self._states):
            raise StateError(
                f"The name '{descriptor.name}' collides with another state of this operator; choose another name."
            )
        state = self._make(descriptor, name, scope)
        self._states[name] = state
        if self._types is not None:
            self._types.fit(name, state)
        return state

    def _make(self, descriptor: StateDescriptor, name: str, scope: Namespaced | None) -> KeyedState:
        if scope is not None and descriptor.ttl_config is not None:
            raise StateError(
                f"State '{descriptor.name}' of a {scope.name} has a time to live, but it always lives as long as the "
                f"{scope.name}.",
                fix="Remove enable_time_to_live, or use the state of the key: global_state().",
            )
        timed = self.ttl.make(descriptor, name) if scope is None else None
        if timed is not None:
            return timed
        kind = STATES[type(descriptor)]
        if isinstance(descriptor, ValueStateDescriptor) and descriptor.default_value is not None:
            kind = DefaultedValue
        return kind(self if scope is None else scope, descriptor, state_id(name))  # type: ignore[no-any-return]

    @property
    def states(self) -> Mapping[str, KeyedState]:
        """The registered states, by name."""
        return self._states

    def is_stored(self, state: str) -> bool:
        """Return whether the last checkpoint contains a state of this name, from any version of the program."""
        return self._types is not None and state in self._types.stored

    def stored_schema(self, state: str) -> str | None:
        """Return the schema text of a state in the last checkpoint, or None if the checkpoint does not contain it."""
        stored = None if self._types is None else self._types.stored.get(state)
        return None if stored is None else stored.schema

    def unclaimed(self, scope: str) -> list[str]:
        """Return the names of stored states in this scope that the program has not registered so far."""
        stored = {} if self._types is None else self._types.stored
        return [name for name in stored if name.startswith(f"{scope} ") and name not in self._states]

    def add_timers(self, kind: str, timers: Timers) -> None:
        """Add timers other than those of the operator's functions to the same snapshots."""
        timers.begin(self._least.get(kind, {}), self._groups)
        self.timers[kind] = timers

    def add_leftovers(self, leftovers: Leftovers) -> None:
        """Add entries to remove to the same snapshots as the changes of the states."""
        self._leftovers.append(leftovers)

    def fit_types(self, types: StoredTypes) -> None:
        """Let the states read values of their stored types, or raise StateTypeChanged.

        Call it once the functions are open, before each epoch. States that are registered later are fitted then.
        """
        self._types = types
        for name, state in self._states.items():
            types.fit(name, state)

    def schemas(self) -> dict[str, str]:
        """Return the declared schema of each registered state."""
        return {name: state.descriptor.schema() for name, state in sorted(self._states.items())}

    def queryable(self) -> dict[str, str]:
        """Return the names under which states can be read from outside the job, by name of the state."""
        return {
            name: state.descriptor.queryable_name
            for name, state in sorted(self._states.items())
            if state.descriptor.queryable_name is not None
        }

    def unused(self) -> list[str]:
        """Return the stored states that are not registered."""
        return [] if self._types is None else sorted(self._types.stored.keys() - self._states.keys())

    def types(self) -> dict[str, StoredType]:
        """Return the types for the checkpoint report, including those of stored states that are not registered: their
        entries still exist."""
        types = {} if self._types is None else dict(self._types.stored)
        types.update(
            (name, StoredType(state.descriptor.schema(), state.migrations)) for name, state in self._states.items()
        )
        return dict(sorted(types.items()))

    def current_key(self, state: str) -> bytes:
        """Return the current key, or raise StateError if no key is current."""
        key = self.key
        if key is None:
            raise StateError(
                f"State '{state}' was used without a current key: keyed state can be read and written only "
                f"while a record is processed, not in open() or close()."
            )
        return key

    def hold(self, holder: Holder) -> None:
        """Count an operator's buffer towards the memory limit, and flush it before the overlay spills."""
        self._holders.append(holder)

    def reader(self, group: int) -> Reader | None:
        """Return a reader of a key group, including spilled changes, or None if it is empty."""
        if self._run is None:
            return self._replicas.reader(group)
        reader = self._readers.get(group)
        if reader is None:
            reader = self._readers[group] = self._run.above(self._replicas.reader(group))
        return reader

    def grown(self, size: int, records: int) -> None:
        """Note how many bytes and records were processed, and spill if necessary. Call it between records."""
        if self._gauge.note(size, records) and self._gauge.is_full(self._weight()):
            # Often much of it was only read.
            for state in self._states.values():
                state.forget()
            if self._gauge.is_full(2 * self._weight()):
                self.spill()

    def _weight(self) -> int:
        states, timers = self._states.values(), self.timers.values()
        holders: list[KeyedState | Timers | Leftovers | Holder]
        holders = [*states, *timers, *self._leftovers, *self._holders]
        return sum(holder.weight() for holder in holders)

    def spill(self) -> None:
        """Write the epoch's changes so far to local disk, and free the memory."""
        key = self.key
        for holder in self._holders:
            holder.flush()
        self.key = key
        if self._run is None:
            self._run = Run()
        # One at a time, because draining a state doubles its memory.
        for state in self._states.values():
            changes = self._drain([state])
            state.reset()
            self._run.put(changes)
        for leftovers in self._leftovers:
            self._run.put(self._drain([leftovers]))
            leftovers.reset()
        for timers in self.timers.values():
            changes = self._drain([timers])
            timers.restart()
            self._run.put(changes)
        self._readers.clear()
        self.part = _PART.pack(_PART.unpack(self.part or bytes(4))[0] + 1)
        self._gauge.reset()

    def _forget_run(self) -> None:
        self._readers.clear()
        self.part = b""
        if self._run is not None:
            self._run.close()
            self._run = None

    def least(self) -> dict[str, dict[int, int]]:
        """Return the time of the first timer at the end of the epoch, by kind and block. Call it after `changes`."""
        return {kind: least for kind, timers in self.timers.items() if (least := timers.least())}

    def keys(self, state: str, groups: Iterable[int]) -> Iterator[bytes]:
        """Yield every key of these key groups that has this state now, each once, sorted by (group, key)."""
        if self._run is not None:
            self.spill()
        changed: dict[int, dict[bytes, bool]] = {}
        for key, is_set in self._states[state].written():
            changed.setdefault(key_hash(key) % self.max_parallelism, {})[key] = is_set
        # Entries with a time to live are stored under another name; older ones keep the original name.
        names = [state, timed_name(state)] if state in self.ttl.forms() else [state]
        for group in groups:
            reader = self.reader(group)
            stored = [] if reader is None else [key for name in names for key in stored_keys(reader, group, name)]
            keys = dict.fromkeys(stored, True)
            keys |= changed.get(group, {})
            yield from sorted(key for key, is_set in keys.items() if is_set)

    def changes(self) -> Iterable[GroupChanges]:
        """Return the epoch's changes to committed state, sorted by key group. After a spill they are read lazily."""
        self.ttl.clean_up(self._groups)
        if self._run is None:
            return self._drain([*self._states.values(), *self._leftovers, *self.timers.values()])
        self.spill()
        return self._run.changes() if self._run.holds_anything() else []

    def _drain(self, parts: Sequence[KeyedState | Timers | Leftovers]) -> list[GroupChanges]:
        groups: dict[int, GroupChanges] = {}
        for part in parts:
            try:
                part.drain(groups)
            except PenstockError as error:
                if not isinstance(part, KeyedState):
                    raise
                name = next(name for name, state in self._states.items() if state is part)
                raise StateError(f"State '{name}': {error}") from None
        result = [groups[group] for group in sorted(groups)]
        for change in result:
            change.cleared.sort()
            change.entries.sort(key=entry_key)
        return result
