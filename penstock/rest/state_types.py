"""Answers of the endpoints for queryable state."""

from __future__ import annotations

from typing import Any

import msgspec


class StateTable(msgspec.Struct, kw_only=True, frozen=True):
    """A queryable state."""

    name: str
    uid: str
    operator: str
    state: str
    """Its name within the operator."""
    kind: str
    """value, list, map, reducing or aggregating; for operator state split, union or broadcast."""
    type: str
    key_type: str
    """Empty if the program declares none."""
    ttl_ms: int | None


class StateTables(msgspec.Struct, kw_only=True, frozen=True):
    """The queryable states of a job, and the checkpoints that can be read."""

    job: str
    oldest: int
    newest: int
    ended: bool
    states: list[StateTable]


class StateColumn(msgspec.Struct, kw_only=True, frozen=True):
    """A column of the rows of a state, with its type in Arrow."""

    name: str
    type: str


class StateSchema(msgspec.Struct, kw_only=True, frozen=True):
    """A queryable state and the columns of its rows."""

    checkpoint: int
    state: StateTable
    columns: list[StateColumn]


class StateRows(msgspec.Struct, kw_only=True, frozen=True):
    """A page of the rows of a state."""

    checkpoint: int
    rows: list[dict[str, Any]]
    cursor: str | None
    """Null after the last row."""


class StateValue(msgspec.Struct, kw_only=True, frozen=True):
    """What a key has."""

    checkpoint: int
    value: Any
    """A value, a list, or for a map a list of entries like those of StateEntries."""


class StateMapEntry(msgspec.Struct, kw_only=True, frozen=True):
    """An entry of a map."""

    key: Any
    value: Any


class StateEntries(msgspec.Struct, kw_only=True, frozen=True):
    """A page of the entries of a map, in the order of their keys."""

    checkpoint: int
    entries: list[StateMapEntry]
    cursor: str | None
    """Null after the last entry."""
