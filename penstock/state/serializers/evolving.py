"""Plan the migration of values from the type of a stored state to the declared one, if it is possible.

A migration is data, not code, and is stored with the state, so later programs need not know what a class looked like in
between or which defaults it had. The migration is None if values are encoded as before; otherwise it is a list that
starts with its kind (`migrations.py` executes it).
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import typing
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from msgspec import NODEFAULT, inspect

from penstock.common.renamed_from import former_names
from penstock.errors import PenstockError
from penstock.state.serializers import codec
from penstock.state.serializers.arrays import Array, array_widens
from penstock.state.serializers.containers import Mapping, Members, Nullable, OneOf, Sequence, TupleOf
from penstock.state.serializers.leaves import EnumMember, Literal
from penstock.state.serializers.node import TypeNode
from penstock.state.serializers.records import ObjectRecord, Record, RowRecord, TypedDictRecord
from penstock.state.serializers.schema_text import RECORDS, Described

__all__ = ["IncompatibleType", "Migration", "migration"]

Migration = Any
"""None, or a list that msgpack can encode."""

_WHOLE = ("byte", "short", "int", "long", "bigint")
_WIDER = {(narrow, wide) for at, narrow in enumerate(_WHOLE) for wide in _WHOLE[at:]} | {
    ("float", "double"),
    ("char", "string"),
    ("pickle", "any"),
}
"""Pairs of types such that values of the first are already encoded like values of the second."""
_TO_DOUBLE = _WHOLE[:4]


@dataclass
class IncompatibleType(Exception):
    """A type change to which stored values cannot be migrated."""

    places: tuple[str, ...]
    """The path from the state inwards."""
    problem: str
    fix: str

    def where(self) -> str:
        """Return the path from the innermost part outwards, for messages."""
        return ", ".join(reversed(self.places))


def migration(old: Described, node: TypeNode) -> Migration:
    """Return the migration of values from `old` to a declared type.

    Raises:
        IncompatibleType: The change is not supported.
    """
    return _Planner().migration(old, node, ())


class _Planner:
    def __init__(self) -> None:
        self._around: dict[str, Described] = {}
        """Stored classes being compared, by title; nested occurrences contain only the name."""
        self._begun: dict[tuple[str, int], int] = {}
        """Pairs of stored and declared class being compared, and their numbers."""
        self._count = 0

    def migration(self, old: Described, node: TypeNode, places: tuple[str, ...]) -> Migration:
        """Return the migration from `old` to `node`, which are located at `places`."""
        if old.text == node.describe():
            return None
        if old.kind in RECORDS and old.names is None and old.title in self._around:
            old = self._around[old.title]
        inner, allows_none = _without_none(node)
        if old.kind == "optional" or allows_none:
            if not allows_none:
                raise _changed(old, node, places, "it does not allow a stored None. Declare it with `| None`")
            stored = old.parts[0] if old.kind == "optional" else old
            if stored.kind == "none":
                return None
            if inner is not None and stored.kind != "union":
                found = self.migration(stored, inner, places)
                return None if found is None else ["optional", found]
        if isinstance(node, (OneOf, Nullable)):
            return self._into_union(old, node, places)
        for kinds, plan in _PLANS:
            if isinstance(node, kinds):
                return plan(self, old, node, places)
        pair = old.kind, node.describe()
        if pair in _WIDER:
            return None
        if pair[1] == "double" and pair[0] in _TO_DOUBLE:
            return ["double"]
        raise _changed(old, node, places)

    def _into_union(self, old: Described, node: TypeNode, places: tuple[str, ...]) -> Migration:
        """Check that all members are still in the union: it is unknown to which changed member a value would belong."""
        within = node.node if isinstance(node, Nullable) else node
        taken = {part.describe() for part in within.parts} | ({"none"} if within is not node else set())
        members = old.parts if old.kind in ("union", "optional") else (old,)
        members = tuple(part for each in members for part in (each.parts if each.kind == "union" else (each,)))
        for member in members:
            if member.text not in taken:
                raise _changed(old, node, places, f"it lacks {member.text}, and members of a union cannot change")
        return None

    def _enum(self, old: Described, node: TypeNode, places: tuple[str, ...]) -> Migration:
        """Match members by name. They are stored by value, and a value can belong to a different member now."""
        assert isinstance(node, EnumMember)
        if old.kind != "enum":
            raise _changed(old, node, places)
        values = _stored_members(old)
        now = _members_by_any_name(node.wire_type, values)
        if gone := [name for name in values if name not in now]:
            names = ", ".join(f"'{name}'" for name in gone)
            raise _changed(
                old,
                node,
                places,
                f"it lacks {names}, which stored values can contain. If you renamed a member, declare it: "
                f'NEW_NAME: Annotated[Any, RenamedFrom("{gone[0]}")] = VALUE',
            )
        pairs = [[value, now[name].value] for name, value in values.items()]
        return None if all(before == after for before, after in pairs) else ["member", pairs]

    def _literal(self, old: Described, node: TypeNode, places: tuple[str, ...]) -> Migration:
        assert isinstance(node, Literal)
        if old.kind != "literal":
            raise _changed(old, node, places)
        now = set(map(repr, node.values))
        if gone := [constant for constant in old.constants if constant not in now]:
            problem = f"stored values can be {', '.join(gone)}. Add values, but do not remove any"
            raise _changed(old, node, places, problem)
        return None

    def _array(self, old: Described, node: TypeNode, places: tuple[str, ...]) -> Migration:
        assert isinstance(node, Array)
        if old.kind != "array":
            raise _changed(old, node, places)
        if not array_widens(old.title, node):
            raise _changed(old, node, places, "stored arrays can only change to a dtype to which NumPy casts safely")
        return None

    def _sequence(self, old: Described, node: TypeNode, places: tuple[str, ...]) -> Migration:
        assert isinstance(node, (Sequence, Members))
        kind = node.kind.__name__
        if old.kind != kind or old.any_length != (node.kind is tuple):
            raise _changed(old, node, places)
        found = self.migration(old.parts[0], node.element, (*places, f"the elements of the {kind}"))
        return None if found is None else ["each", found]

    def _mapping(self, old: Described, node: TypeNode, places: tuple[str, ...]) -> Migration:
        assert isinstance(node, Mapping)
        if old.kind != "map":
            raise _changed(old, node, places)
        check_key(old.parts[0], node.key, (*places, "the keys of the dict"))
        found = self.migration(old.parts[1], node.item, (*places, "the values of the dict"))
        if found is not None and _named_within(old.parts[0]):
            raise _changed(
                old, node, places, "its keys are of a class with fields, so the type of its values cannot change"
            )
        return None if found is None else ["values", found]

    def _positions(self, old: Described, node: TypeNode, places: tuple[str, ...]) -> Migration:
        if old.kind != "tuple" or old.any_length:
            raise _changed(old, node, places)
        if len(old.parts) != len(node.parts):
            raise _changed(
                old, node, places, "a tuple's elements have no names, so none can be added or removed. Use a NamedTuple"
            )
        pairs = enumerate(zip(old.parts, node.parts))
        found = [self.migration(was, now, (*places, f"element {i} of the tuple")) for i, (was, now) in pairs]
        return None if not any(found) else ["places", found]

    def _record(self, old: Described, node: TypeNode, places: tuple[str, ...]) -> Migration:
        assert isinstance(node, Record)
        if old.kind != node.word:
            raise _changed(old, node, places)
        if old.names is None:
            # Stored by a version that recorded only the class name.
            if old.title != node.title().partition(" ")[2]:
                raise _changed(old, node, places)
            return None
        names = set(old.names)
        former = _former(node.cls)
        sources = {name: _source_of(name, former.get(name, ()), names, node.names) for name in node.names}
        if old.title != node.title().partition(" ")[2] and names and not any(sources.values()):
            raise _changed(old, node, places, "it is a different class, with no field in common")
        if isinstance(node, ObjectRecord) and _own_form(node.cls) and old.names != node.names:
            raise _changed(
                old, node, places, "a struct with tags, array encoding or renamed fields must keep its fields"
            )
        begun = self._begun.get((old.title, id(node)))
        if begun is not None:
            return ["again", begun]
        number = self._begun[old.title, id(node)] = self._count
        self._count += 1
        around = self._around.get(old.title)
        self._around[old.title] = old
        found = self._fields(old, node, sources, places, number)
        if around is None:
            del self._around[old.title]
        else:
            self._around[old.title] = around
        del self._begun[old.title, id(node)]
        return found

    def _fields(
        self, old: Described, node: Record, sources: dict[str, str | None], places: tuple[str, ...], number: int
    ) -> Migration:
        assert old.names is not None
        by_name = dict(zip(old.names, old.parts))
        defaults: dict[str, Any] | None = None
        in_order = node.word == "namedtuple"
        fields: list[Any] = []
        same = tuple(sources.values()) == old.names if in_order else set(sources.values()) == set(old.names)
        for name, part in zip(node.names, node.parts):
            place = (*places, f"field '{name}' of {node.cls.__qualname__}")
            source = sources[name]
            if source is None:
                same = False
                if isinstance(node, TypedDictRecord) and name not in node.required:
                    continue
                if defaults is None:
                    defaults = _defaults(node)
                fields.append([name, None, _default(defaults, name, part, place)])
                continue
            if isinstance(node, TypedDictRecord) and source in old.optional and name in node.required:
                raise IncompatibleType(place, "it was optional and is now required", "Declare it as NotRequired.")
            found = self.migration(by_name[source], part, place)
            same = same and source == name and found in (None, ["again", number])
            fields.append([name, old.names.index(source) if in_order else source, found])
        if same:
            return None
        return ["array" if in_order else "fields", number, 0, fields]

    def _row(self, old: Described, node: TypeNode, places: tuple[str, ...]) -> Migration:
        assert isinstance(node, RowRecord)
        if old.kind != "row" or (old.names is None) != (node.names is None):
            raise _changed(old, node, places)
        before = old.names or tuple(map(str, range(len(old.parts))))
        now = node.names or tuple(map(str, range(len(node.parts))))
        former = dict(zip(now, node.former))
        fields: list[Any] = []
        for name, part in zip(now, node.parts):
            source = _source_of(name, former.get(name, ()), set(before), now)
            if source is None:
                fields.append([name, None, codec.encode(None)])
            else:
                at = before.index(source)
                fields.append([name, at, self.migration(old.parts[at], part, (*places, f"field '{name}' of the Row"))])
        if len(before) == len(now) and all(at == i and found is None for i, (_, at, found) in enumerate(fields)):
            return None
        return ["array", -1, 1, fields]


_PLANS: list[tuple[Any, typing.Callable[[_Planner, Described, Any, tuple[str, ...]], Migration]]] = [
    (EnumMember, _Planner._enum),
    (Literal, _Planner._literal),
    (Array, _Planner._array),
    ((Sequence, Members), _Planner._sequence),
    (Mapping, _Planner._mapping),
    (TupleOf, _Planner._positions),
    (Record, _Planner._record),
    (RowRecord, _Planner._row),
]


def check_key(old: Described, node: TypeNode, places: tuple[str, ...]) -> None:
    """Check that a change leaves the encoded keys of a map unchanged: entries are looked up by their bytes."""
    if old.text == node.describe() or (old.kind, node.describe()) in _WIDER:
        return
    if not isinstance(node, EnumMember) or _Planner().migration(old, node, places) is not None:
        raise _changed(old, node, places, "entries are looked up by the bytes of their keys, which would change")


def _stored_members(old: Described) -> dict[str, Any]:
    """Return the values of a stored enum by member name."""
    try:
        return dict(zip(old.names or (), map(ast.literal_eval, old.constants)))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise IncompatibleType((), "", "") from None


def _members_by_any_name(cls: type[enum.Enum], stored: Container[str]) -> dict[str, enum.Enum]:
    """Return the members by their names, aliases and former names."""
    # An alias in a class that was pickled by value is only an attribute.
    names = [name for name, value in vars(cls).items() if isinstance(value, cls)]
    found: dict[str, enum.Enum] = {**{name: getattr(cls, name) for name in names}, **cls.__members__}
    for name, former in _former(cls).items():
        source = _source_of(name, former, stored, tuple(found))
        if name in found and source is not None:
            found.setdefault(source, found[name])
    return found


def _changed(old: Described, node: TypeNode, places: tuple[str, ...], why: str = "") -> IncompatibleType:
    problem = f"it was '{old.text}' and is declared as '{node.describe()}' now"
    why, _, fix = why.partition(". ")
    return IncompatibleType(places, f"{problem}: {why}" if why else problem, f"{fix}." if fix else "")


def _without_none(node: TypeNode) -> tuple[TypeNode | None, bool]:
    """Return the only type other than None, if there is exactly one, and whether None is allowed."""
    if isinstance(node, Nullable):
        return _without_none(node.node)[0], True
    if isinstance(node, OneOf):
        others = [part for part in node.parts if part.describe() != "none"]
        if len(others) < len(node.parts):
            return (others[0] if len(others) == 1 else None), True
    return node, False


def _source_of(name: str, former: tuple[str, ...], stored: Container[str], declared: tuple[str, ...]) -> str | None:
    """Return the stored field that corresponds to a declared one, or None if it is new."""
    if name in stored:
        return name
    return next((before for before in former if before in stored and before not in declared), None)


def _former(cls: type) -> dict[str, tuple[str, ...]]:
    """Return the former names of each field or member."""
    try:
        annotations = typing.get_type_hints(cls, include_extras=True)
    except Exception:  # names that only msgspec resolves, in a class inside a function
        annotations = getattr(cls, "__annotations__", {})
    return {name: former_names(annotation) for name, annotation in annotations.items()}


def _own_form(cls: Any) -> bool:
    config = getattr(cls, "__struct_config__", None)
    return config is not None and (
        config.array_like or config.tag is not None or cls.__struct_encode_fields__ != cls.__struct_fields__
    )


def _defaults(node: Record) -> dict[str, Any]:
    """Return the default values of the fields that have one."""
    if node.word == "namedtuple":
        return dict(node.cls._field_defaults)
    if node.word == "typeddict":
        return {}
    fields: Any
    if dataclasses.is_dataclass(node.cls):
        fields = dataclasses.fields(node.cls)
    else:
        # A struct, or an attrs class.
        fields = inspect.type_info(node.cls).fields  # type: ignore[attr-defined]
    defaults = {}
    for field in fields:
        # Compare by class: the sentinel of a class in the job's script was pickled by value and is another object.
        if not isinstance(field.default, _NONE_GIVEN):
            defaults[field.name] = field.default
        elif not isinstance(field.default_factory, _NONE_GIVEN):
            defaults[field.name] = field.default_factory()
    return defaults


_NONE_GIVEN = (type(dataclasses.MISSING), type(NODEFAULT))


def _default(defaults: dict[str, Any], name: str, part: TypeNode, places: tuple[str, ...]) -> bytes:
    """Return the encoded default of a new field."""
    if name not in defaults:
        raise IncompatibleType(
            places,
            f"it is new, of type '{part.describe()}', and has no default",
            "Give it a default, or RenamedFrom(...) if it had another name.",
        )
    try:
        return codec.encode(part.wire(part.check(defaults[name])))
    except PenstockError as error:
        raise IncompatibleType(
            places, f"it is new, and its default does not match its type: {error.statement()}", error.fix
        ) from None


def _named_within(old: Described) -> bool:
    """Return whether values are decoded to dicts if their class is unknown; dicts cannot be keys."""
    return old.kind in ("dataclass", "struct", "typeddict") or any(map(_named_within, old.parts))
