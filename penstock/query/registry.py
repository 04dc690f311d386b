"""The queryable states of a job at one checkpoint, from its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.checkpoint.manifest import Manifest
from penstock.query.errors import NotEnabled, UnknownQueryableState
from penstock.tables.snapshot import KINDS


class QueryableState(msgspec.Struct, frozen=True, kw_only=True):
    """A state that can be read from outside its job."""

    name: str
    uid: str
    operator: str
    """The name of the operator."""
    state: str
    """The name of the state within the operator."""
    kind: str
    """value, list, map, reducing or aggregating; for operator state split, union or broadcast."""
    type: str
    """The stored type, of keys and values for a map."""
    key_type: str
    """The declared type of the keys; empty if the program declares none."""
    max_parallelism: int
    ttl_ms: int | None = None

    @property
    def keyed(self) -> bool:
        """Whether it belongs to keys."""
        return self.kind in KINDS


def registered(manifest: Manifest) -> dict[str, QueryableState]:
    """Return the queryable states of a checkpoint, by name."""
    found = {}
    for name, address in manifest.queryable.items():
        operator = manifest.operators[address.uid]
        if address.state in operator.states:
            kind, _, text = operator.states[address.state].partition(" ")
        else:
            shares = operator.operator_state[address.state]
            kind, text = shares.mode, shares.schema
        form = operator.ttl.get(address.state)
        found[name] = QueryableState(
            name=name,
            uid=address.uid,
            operator=operator.name,
            state=address.state,
            kind=kind,
            type=text,
            key_type=operator.key_type,
            max_parallelism=operator.max_parallelism,
            ttl_ms=None if form is None else form.ttl_ms,
        )
    return found


def find_state(manifest: Manifest, name: Any) -> QueryableState:
    """Return the queryable state of this name. Raises UnknownQueryableState, NotEnabled."""
    return named_state(registered(manifest), name, manifest.id)


def named_state(states: Mapping[str, QueryableState], name: Any, checkpoint: int) -> QueryableState:
    """Return one of the states of a checkpoint. Raises UnknownQueryableState, NotEnabled."""
    if not states:
        raise NotEnabled(
            f"The job has no queryable state at checkpoint {checkpoint}.",
            fix="Call set_queryable on the descriptor of a state, and set queryable-state.enable to true.",
        )
    if name not in states:
        raise UnknownQueryableState(
            f"The job has no queryable state '{name}' at checkpoint {checkpoint}, only {sorted(states)}.",
            fix="Use one of these names.",
        )
    return states[name]
