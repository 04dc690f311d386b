"""Types with named fields: dataclasses, msgspec's structs, named tuples, typed dicts and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from types import MemberDescriptorType
from typing import Any

from msgspec.structs import force_setattr

from penstock.common.row import Row, RowKind, names_of, values_of
from penstock.state.serializers.containers import check_fields, unchanged
from penstock.state.serializers.kept import kept_test
from penstock.state.serializers.node import NotEncodable, TypeNode

__all__ = ["NamedTupleRecord", "ObjectRecord", "Record", "RowRecord", "TypedDictRecord"]


# A global is half the price of an attribute of an Enum class.
_INSERT = RowKind.INSERT


class Record(TypeNode):
    """Fields, each with a name and a type.

    Made empty and given its fields later, because a field may hold the record itself. Until then it counts
    as not native, which is always right, and as immutable, which every field that is not takes back.
    """

    native = False
    word = ""

    def __init__(self, cls: Any, wire_type: Any) -> None:
        self.cls = cls
        self.wire_type = wire_type
        self.classes = (cls,)
        self.names: tuple[str, ...] = ()
        self.kept: Callable[[Any], bool] = bool

    def fill(self, fields: Mapping[str, TypeNode]) -> None:
        own = self.immutable, self.hashable, self.proof
        self.names = tuple(fields)
        self.hold(*fields.values())
        self.immutable, self.hashable, self.proof = self.immutable and own[0], own[1], self.proof or own[2]

    def fits(self, value: Any) -> bool:
        try:
            return type(value) is self.cls and self.kept(value)
        except (NotEncodable, AttributeError):
            return False

    def _place(self, index: int) -> str:
        return f"field {self.names[index]!r} of {self.cls.__qualname__}"

    def title(self) -> str:
        return f"{self.word} {self.cls.__module__}.{self.cls.__qualname__}"

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        name = self.title()
        if name in inside:
            return name
        inside |= {name}
        fields = (f"{field}: {node.describe(inside)}" for field, node in zip(self.names, self.parts))
        return f"{name}({', '.join(fields)})"


class ObjectRecord(Record):
    """A dataclass or a msgspec.Struct. A subclass is refused: it would come back as the declared class."""

    def __init__(self, word: str, cls: Any, wire_type: Any, *, frozen: bool, proof: bool) -> None:
        super().__init__(cls, wire_type)
        self.word = word
        self.immutable = frozen
        self.proof = proof
        self.hashable = cls.__hash__ is not None

    def fill(self, fields: Mapping[str, TypeNode]) -> None:
        super().fill(fields)
        self.kept = kept_test(self.parts, [f"v.{name}" for name in self.names], _attributes(self.cls, self.names))

    def check(self, value: Any) -> Any:
        if type(value) is not self.cls:
            raise self.refuse(value, f"Store a {self.cls.__qualname__} itself, or declare the class it has.")
        try:
            if self.kept(value):
                return value
        except (NotEncodable, AttributeError):
            pass  # found again below, with its place
        try:
            values = [getattr(value, name) for name in self.names]
        except AttributeError as error:
            raise self.refuse(value, f"A field has no value: {error}.") from None
        checked = check_fields(self.parts, values, self._place)
        # A field may have its value in the class, as its default; then there are fewer attributes than fields.
        if unchanged(values, checked) and not getattr(value, "__dict__", {}).keys() - set(self.names):
            return value
        return self._rebuild(value, checked)

    def _rebuild(self, value: Any, values: list[Any]) -> Any:
        # Neither __init__ nor __post_init__ runs: the values were there already, only their form changes.
        if self.word == "struct":
            made = copy(value)
            for name, field in zip(self.names, values):
                force_setattr(made, name, field)
        else:
            made = self.cls.__new__(self.cls)
            for name, field in zip(self.names, values):
                object.__setattr__(made, name, field)
        return made

    def _wire(self, value: Any) -> Any:
        wires = [node.wire(getattr(value, name)) for node, name in zip(self.parts, self.names)]
        # A struct has a wire form of its own (tags, other names, arrays), which a copy of it has too.
        return self._rebuild(value, wires) if self.word == "struct" else dict(zip(self.names, wires))


def _attributes(cls: type, names: tuple[str, ...]) -> int | None:
    """How many of these fields an instance holds in its `__dict__`; None if it has none."""
    if not cls.__dictoffset__:
        return None
    return sum(not isinstance(getattr(cls, name, None), MemberDescriptorType) for name in names)


class NamedTupleRecord(Record):
    """A typing.NamedTuple, for which a plain tuple or list of the same length is taken too."""

    word = "namedtuple"

    def fill(self, fields: Mapping[str, TypeNode]) -> None:
        super().fill(fields)
        self.hashable = all(node.hashable for node in self.parts)
        self.kept = kept_test(self.parts, [f"v[{i}]" for i in range(len(self.parts))], _attributes(self.cls, ()))

    def check(self, value: Any) -> Any:
        if type(value) is not self.cls and (type(value) not in (tuple, list) or len(value) != len(self.names)):
            raise self.refuse(value, f"Store a {self.cls.__qualname__}.")
        try:
            if type(value) is self.cls and self.kept(value):
                return value
        except NotEncodable:
            pass  # found again below, with its place
        return self.cls._make(check_fields(self.parts, value, self._place))

    def _wire(self, value: Any) -> Any:
        return [node.wire(field) for node, field in zip(self.parts, value)]


class TypedDictRecord(Record):
    """A typing.TypedDict. A key it does not name is refused: it would be missing when read."""

    word = "typeddict"
    hashable = False

    def __init__(self, cls: Any, wire_type: Any, required: frozenset[str]) -> None:
        super().__init__(cls, wire_type)
        self.classes = (dict, cls)
        self.required = required
        self.immutable = False
        self.by_name: dict[str, TypeNode] = {}

    def fill(self, fields: Mapping[str, TypeNode]) -> None:
        super().fill(fields)
        self.by_name = dict(fields)

    def check(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise self.refuse(value, "Store a dict.")
        if missing := self.required - value.keys():
            raise self.refuse(value, f"It lacks {', '.join(sorted(missing))}.")
        checked = {}
        for key, item in value.items():
            node = self.by_name.get(key)
            if node is None:
                raise self.refuse(value, f"The declared type has no key {key!r}; add it there.")
            try:
                checked[key] = node.check(item)
            except NotEncodable as error:
                raise error.inside(f"key {key!r} of {self.cls.__qualname__}") from None
        return value if type(value) is dict and unchanged(value.values(), checked.values()) else checked

    def fits(self, value: Any) -> bool:
        return TypeNode.fits(self, value)

    def _wire(self, value: Any) -> Any:
        return {key: self.by_name[key].wire(item) for key, item in value.items()}

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        text = super().describe(inside)
        optional = sorted(set(self.names) - self.required)
        return f"{text} optional {', '.join(optional)}" if optional and text.endswith(")") else text


class RowRecord(TypeNode):
    """A `Row`, written as its kind and then its fields in order.

    Taken for it: a row without names, a tuple or a list, by position; a row with the declared names, in any
    order; a dict of some of the declared names, the others being None. A named row for a type without names
    is refused, for its names would be lost.
    """

    classes = (Row,)

    def __init__(
        self, names: tuple[str, ...] | None, nodes: tuple[TypeNode, ...], former: tuple[tuple[str, ...], ...] = ()
    ) -> None:
        """`former`: for each field, the names it had before."""
        self.hold(*nodes)
        self.former = former
        self.fields_native, self.fields_same = self.native, self.same
        self.native = self.same = self.immutable = False
        self.names = names
        self.wire_type = tuple[(int, *(node.wire_type for node in nodes))]  # type: ignore[misc]
        self.kept = kept_test(nodes, [f"v[{i}]" for i in range(len(nodes))])

    def check(self, value: Any) -> Row:
        values = self._in_order(value)
        if len(values) != len(self.parts):
            raise self.refuse(value, f"It has {len(values)} fields where {len(self.parts)} are declared.")
        try:
            if type(value) is Row and names_of(value) == self.names and self.kept(values):
                return value
        except NotEncodable:
            pass  # found again below, with its place
        row = Row.of(self.names, check_fields(self.parts, values, self._place))
        if type(value) is Row:
            row.set_row_kind(value.get_row_kind())
        return row

    def _in_order(self, value: Any) -> Any:
        """The fields in the declared order."""
        if type(value) is Row:
            given = names_of(value)
            if given is None or given == self.names:
                return values_of(value)
            if self.names is None:
                raise self.refuse(value, "Declare its names with Types.ROW_NAMED(names, types).")
            if sorted(given) != sorted(self.names):
                raise self.refuse(value, f"Its fields are {', '.join(given)}.")
            return value.get_fields_by_names(self.names)
        if type(value) is dict and self.names is not None:
            if unknown := value.keys() - set(self.names):
                raise self.refuse(value, f"The declared row has no field {', '.join(map(repr, unknown))}.")
            return [value.get(name) for name in self.names]
        if type(value) in (tuple, list):
            return value
        raise self.refuse(value, "Store a Row, or a tuple of its fields.")

    def _wire(self, value: Row) -> list[Any]:
        kind = value.get_row_kind()
        fields = values_of(value)
        if not self.fields_native:
            fields = [node.wire(field) for node, field in zip(self.parts, fields)]
        return [0 if kind is _INSERT else kind.value, *fields]

    def _value(self, wire: Any) -> Row:
        if self.fields_same:
            row = Row.of(self.names, wire[1:])
        else:
            row = Row.of(self.names, [node.value(field) for node, field in zip(self.parts, wire[1:])])
        if wire[0]:
            row.set_row_kind(RowKind(wire[0]))
        return row

    def _place(self, index: int) -> str:
        return f"field {index if self.names is None else repr(self.names[index])} of the Row"

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        types = [node.describe(inside) for node in self.parts]
        if self.names is not None:
            types = [f"{name}: {kind}" for name, kind in zip(self.names, types)]
        return f"row<{', '.join(types)}>"
