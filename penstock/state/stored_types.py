"""Compare the stored type of a state with the declared one."""

from __future__ import annotations

from typing import NamedTuple

from penstock.state.descriptors import MapStateDescriptor, StateDescriptor
from penstock.state.entries import StateTypeChanged
from penstock.state.serializers.evolving import IncompatibleType, check_key, migration
from penstock.state.serializers.migrations import WRAP, encode_migration
from penstock.state.serializers.schema_text import UnknownSchema, read_schema

__all__ = ["StoredType", "migrations_to"]

_FIX = "Declare the previous type, or give the new state another name."


class StoredType(NamedTuple):
    """The type under which a state is stored."""

    schema: str
    """As returned by `StateDescriptor.schema`."""
    migrations: tuple[bytes, ...] = ()
    """From the first version of the type to this one, as returned by `encode_migration`."""


def migrations_to(
    stored: StoredType, descriptor: StateDescriptor, state: str, mode: str = "", origin: str = ""
) -> tuple[bytes, ...]:
    """Return all migrations from the first version of a state's type to the declared one.

    Args:
        stored: The stored type.
        descriptor: The declaration.
        state: The state and its operator, for error messages.
        mode: How operator state is redistributed, for error messages.
        origin: The annotation from which the declared type was derived, for error messages.

    Raises:
        StateTypeChanged: Stored values cannot be migrated to the declared type.
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
            said += f" This change is not possible: {none.problem.partition(' now: ')[2]}."
        raise StateTypeChanged(said + origin, fix=f"{none.fix} {_FIX}".strip()) from None
    return stored.migrations if step is None else (*stored.migrations, step)


def _migration(before: str, descriptor: StateDescriptor) -> bytes | None:
    """Return the migration of stored values to the declared type, or None if values are stored the same way."""
    declared = descriptor.schema()
    kind, _, held = before.partition(" ")
    if held in ("any", "pickle") and declared.startswith(f"{kind} ") and declared.endswith(" or any"):
        # An untyped state has gained a type hint, with which stored values can still be read.
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
