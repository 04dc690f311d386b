"""Types with named fields: dataclasses, msgspec structs, named tuples, typed dicts and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from types import MemberDescriptorType
from typing import Any

from msgspec.structs import force_setattr

from penstock.common.row import Row, RowKind, default_field_names, names_of, values_of
from penstock.state.serializers.containers import check_fields, unchanged
from penstock.state.serializers.kept import kept_test
from penstock.state.serializers.node import NotEncodable, TypeNode

__all__ = ["NamedTupleRecord", "ObjectRecord", "Record", "RowRecord", "TypedDictRecord"]


# A global costs half as much as an attribute of an Enum class.
_INSERT = RowKind.INSERT


class Record(TypeNode):
    """Fields with a name and a type each.

    Created empty and filled later, because a field can contain the record itself. Until then it counts as not native,
    which is always correct, and as immutable, which any mutable field revokes.
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
        """Set the fields."""
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
        """Return the kind and qualified name of the class."""
        return f"{self.word} {self.cls.__module__}.{self.cls.__qualname__}"

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        name = self.title()
        if name in inside:
            return name
        inside |= {name}
        fields = (f"{field}: {node.describe(inside)}" for field, node in zip(self.names, self.parts))
        return f"{name}({', '.join(fields)})"


class ObjectRecord(Record):
    """A dataclass or a msgspec.Struct. Subclasses are rejected: they would be decoded to the declared class."""

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
            raise self.refuse(value, f"Store an instance of exactly {self.cls.__qualname__}, or declare its class.")
        try:
            if self.kept(value):
                return value
        except (NotEncodable, AttributeError):
            pass  # reported below, with its location
        try:
            values = [getattr(value, name) for name in self.names]
        except AttributeError as error:
            raise self.refuse(value, f"A field has no value: {error}.") from None
        checked = check_fields(self.parts, values, self._place)
        # A field's value can be in the class, as its default; then there are fewer attributes than fields.
        if unchanged(values, checked) and not getattr(value, "__dict__", {}).keys() - set(self.names):
            return value
        return self._rebuild(value, checked)

    def _rebuild(self, value: Any, values: list[Any]) -> Any:
        # Neither __init__ nor __post_init__ runs: the values existed already, and only their form changes.
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
        # A copy of a struct keeps its custom wire form (tags, renamed fields, arrays).
        return self._rebuild(value, wires) if self.word == "struct" else dict(zip(self.names, wires))


def _attributes(cls: type, names: tuple[str, ...]) -> int | None:
    """Return how many of these fields an instance has in its `__dict__`, or None if it has no `__dict__`."""
    if not cls.__dictoffset__:
        return None
    return sum(not isinstance(getattr(cls, name, None), MemberDescriptorType) for name in names)


class NamedTupleRecord(Record):
    """A typing.NamedTuple. It also accepts a plain tuple or list of the same length."""

    word = "namedtuple"

    def fill(self, fields: Mapping[str, TypeNode]) -> None:
        super().fill(fields)
        self.hashable = all(node.hashable for node in self.parts)
        self.kept = kept_test(self.parts, [f"v[{i}]" for i in range(len(self.parts))], _attributes(self.cls, ()))

    def check(self, value: Any) -> Any:
        if type(value) is not self.cls and (type(value) not in (tuple, list) or len(value) != len(self.names)):
            raise self.refuse(value, f"Store an instance of {self.cls.__qualname__}.")
        try:
            if type(value) is self.cls and self.kept(value):
                return value
        except NotEncodable:
            pass  # reported below, with its location
        return self.cls._make(check_fields(self.parts, value, self._place))

    def _wire(self, value: Any) -> Any:
        return [node.wire(field) for node, field in zip(self.parts, value)]


class TypedDictRecord(Record):
    """A typing.TypedDict. Undeclared keys are rejected: they would be missing after decoding."""

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
                raise self.refuse(value, f"The declared type has no key {key!r}; declare it.")
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
    """A `Row`, encoded as its kind followed by its fields in order.

    It also accepts, by position, a row without names, a tuple or a list; a row with the declared names in any order;
    and a dict with some of the declared names, in which case the other fields become None. If the type has no
    names, the fields of its rows are f0, f1, and so on; a row with other names is rejected, because they would be lost.
    """

    classes = (Row,)

    def __init__(
        self, names: tuple[str, ...] | None, nodes: tuple[TypeNode, ...], former: tuple[tuple[str, ...], ...] = ()
    ) -> None:
        """`former` contains the former names of each field."""
        self.hold(*nodes)
        self.former = former
        self.fields_native, self.fields_same = self.native, self.same
        self.native = self.same = self.immutable = False
        self.names = names
        self.given = default_field_names(len(nodes)) if names is None else names
        """The names of the fields of each row."""
        self.wire_type = tuple[(int, *(node.wire_type for node in nodes))]  # type: ignore[misc]
        self.kept = kept_test(nodes, [f"v[{i}]" for i in range(len(nodes))])

    def check(self, value: Any) -> Row:
        values = self._in_order(value)
        if len(values) != len(self.parts):
            raise self.refuse(value, f"Wrong number of fields: expected {len(self.parts)}, got {len(values)}.")
        try:
            if type(value) is Row and self.kept(values):
                if (given := names_of(value)) == self.given:
                    return value
                if given is None:
                    return Row.of(self.given, values.copy(), value.get_row_kind())
        except NotEncodable:
            pass  # reported below, with its location
        row = Row.of(self.given, check_fields(self.parts, values, self._place))
        if type(value) is Row:
            row.set_row_kind(value.get_row_kind())
        return row

    def _in_order(self, value: Any) -> Any:
        """Return the fields in the declared order."""
        if type(value) is Row:
            given = names_of(value)
            if given is None or given == self.given:
                return values_of(value)
            if sorted(given) != sorted(self.given):
                declare = "Declare its names with Types.ROW_NAMED(names, types)."
                raise self.refuse(value, declare if self.names is None else f"Its fields are {', '.join(given)}.")
            return value.get_fields_by_names(self.given)
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
            row = Row.of(self.given, wire[1:])
        else:
            row = Row.of(self.given, [node.value(field) for node, field in zip(self.parts, wire[1:])])
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
