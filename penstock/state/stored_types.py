"""What a state was stored as, against what it is declared as now."""

from __future__ import annotations

from typing import NamedTuple

from penstock.state.descriptors import MapStateDescriptor, StateDescriptor
from penstock.state.entries import StateTypeChanged
from penstock.state.serializers.evolving import IncompatibleType, check_key, migration
from penstock.state.serializers.migrations import WRAP, encode_migration
from penstock.state.serializers.schema_text import UnknownSchema, read_schema

__all__ = ["StoredType", "migrations_to"]

_FIX = "Declare it as it was, or give the new state another name."


class StoredType(NamedTuple):
    schema: str
    """As `StateDescriptor.schema` gave it."""
    migrations: tuple[bytes, ...] = ()
    """From the first version of the type to this one, as `encode_migration` gave them."""


def migrations_to(
    stored: StoredType, descriptor: StateDescriptor, state: str, mode: str = "", origin: str = ""
) -> tuple[bytes, ...]:
    """All migrations from the first version of a state's type to the declared one, which is the last.

    Raises StateTypeChanged where there is none; `state` names the state and its operator, `mode` how operator state is
    dealt out, `origin` the annotation that the declared type comes from.
    """
    declared = descriptor.schema()
    if stored.schema == declared:
        return stored.migrations
    try:
        step = _migration(stored.schema, descriptor)
    except IncompatibleType as none:
        said = f"{state} is stored as '{mode}{stored.schema}' but declared as '{mode}{declared}'."
        if none.places:
            said += f" In {none.where()}: {none.problem}."
        elif " now: " in none.problem:
            said += f" That is not possible: {none.problem.partition(' now: ')[2]}."
        raise StateTypeChanged(said + origin, fix=f"{none.fix} {_FIX}".strip()) from None
    return stored.migrations if step is None else (*stored.migrations, step)


def _migration(before: str, descriptor: StateDescriptor) -> bytes | None:
    """How stored values become those of the declared type; None if they are as they would be written now."""
    declared = descriptor.schema()
    kind, _, held = before.partition(" ")
    if held in ("any", "pickle") and declared.startswith(f"{kind} ") and declared.endswith(" or any"):
        # A state without a type has got a hint since, with which what is stored is still read.
        return None if held == "pickle" else encode_migration(WRAP, False)
    try:
        old, new = read_schema(before), read_schema(declared)
    except UnknownSchema:
        raise IncompatibleType((), "", "") from None
    if old.kind != new.kind or (old.or_any and not new.or_any):
        raise IncompatibleType((), "", "")
    if isinstance(descriptor, MapStateDescriptor) and old.key is not None:
        check_key(old.key, descriptor.key_serializer.node, ("the keys of the map",))
    found = migration(old.value, descriptor.serializer.node)
    return None if found is None else encode_migration(found, old.or_any)
