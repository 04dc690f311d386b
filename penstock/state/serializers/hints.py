"""Convert type hints to nodes, by walking msgspec's description of the resolved hint."""

from __future__ import annotations

import datetime
import decimal
import enum
import typing
import uuid
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

from penstock.common.row import Row
from penstock.common.time import Instant
from penstock.state.serializers.array_wire import is_array_type
from penstock.state.serializers.arrays import Array
from penstock.state.serializers.containers import Mapping, Members, OneOf, Sequence, TupleOf
from penstock.state.serializers.leaves import (
    DateTime,
    Double,
    EnumMember,
    InstantLeaf,
    Literal,
    Plain,
    TimeOfDay,
    WholeNumber,
)
from penstock.state.serializers.node import TypeNode, UnsupportedType
from penstock.state.serializers.records import NamedTupleRecord, ObjectRecord, TypedDictRecord

__all__ = ["node_of_hint"]

_PICKLE = "or declare Types.PICKLED_BYTE_ARRAY()"


def node_of_hint(hint: Any) -> TypeNode:
    """Return the node of a type hint.

    Raises:
        UnsupportedType: The hint, or a part of it, is not supported.
    """
    try:
        description = inspect.type_info(hint)
    except NameError as error:
        raise UnsupportedType(
            f"{_named(hint)} has a field whose type cannot be resolved: {error}",
            "Define the classes it uses at the top level of a module, or do not postpone the annotations.",
        ) from error
    except Exception as error:  # evaluates the annotations of any class, and msgspec restricts some types
        raise _unsupported(hint, str(error)) from error
    node = _Builder(_arrays_in(hint)).build(description)
    # The hint also contains what the description lacks, such as constraints.
    node.wire_type = hint
    return node


class _Builder:
    """Walks one description. It keeps the records built so far, because a class can contain itself."""

    def __init__(self, arrays: Iterator[Any]) -> None:
        """`arrays` are the array types in the hint, in order, because the description lacks their dtypes."""
        self.records: dict[int, TypeNode] = {}
        self.arrays = arrays

    def build(self, described: inspect.Type) -> TypeNode:
        """Return the node of a description."""
        if isinstance(described, inspect.Metadata):
            return self.build(described.type)
        node = self._leaf(described) or self._container(described) or self._record(described)
        if node is None:
            raise _unsupported(getattr(described, "cls", described))
        if _constrained(described):
            node.proof, node.exact = True, None
        return node

    def _part(self, described: inspect.Type, where: str) -> TypeNode:
        try:
            return self.build(described)
        except UnsupportedType as error:
            raise error.inside(where) from None

    def _leaf(self, described: inspect.Type) -> TypeNode | None:
        if make := _LEAVES.get(type(described)):
            return make()
        if isinstance(described, inspect.EnumType):
            if issubclass(described.cls, enum.Flag):
                raise UnsupportedType(
                    f"{_named(described.cls)} is a Flag, whose members combine into unnamed values",
                    f"Declare int, {_PICKLE}.",
                )
            return EnumMember(described.cls)
        if isinstance(described, inspect.LiteralType):
            return Literal(typing.Literal[described.values], described.values)
        if isinstance(described, inspect.CustomType) and described.cls is Instant:
            return InstantLeaf()
        if isinstance(described, inspect.CustomType) and is_array_type(described.cls):
            return Array(next(self.arrays, described.cls))
        return None

    def _container(self, described: inspect.Type) -> TypeNode | None:
        if isinstance(described, inspect.ListType):
            return Sequence(list, self._part(described.item_type, "the elements of a list"))
        if isinstance(described, inspect.VarTupleType):
            return Sequence(tuple, self._part(described.item_type, "the elements of a tuple"))
        if isinstance(described, inspect.TupleType):
            parts = enumerate(described.item_types)
            return TupleOf(tuple(self._part(part, f"element {i} of a tuple") for i, part in parts))
        if isinstance(described, (inspect.SetType, inspect.FrozenSetType)):
            kind = set if isinstance(described, inspect.SetType) else frozenset
            element = _hashable(self._part(described.item_type, "the members of a set"), "the members of a set")
            return Members(kind, element)
        if isinstance(described, inspect.DictType):
            key = _hashable(self._part(described.key_type, "the keys of a dict"), "the keys of a dict")
            return Mapping(key, self._part(described.value_type, "the values of a dict"))
        if isinstance(described, inspect.UnionType):
            return OneOf(tuple(self._part(part, "a union") for part in described.types))
        return None

    def _record(self, described: inspect.Type) -> TypeNode | None:
        if id(described) in self.records:
            return self.records[id(described)]
        record: ObjectRecord | NamedTupleRecord | TypedDictRecord
        if isinstance(described, inspect.DataclassType):
            cls = typing.get_origin(described.cls) or described.cls
            params = getattr(cls, "__dataclass_params__", None)
            # Without params it is an attrs class, whose validators run when a value is decoded.
            proof = params is None or hasattr(cls, "__post_init__")
            frozen = params is not None and params.frozen
            record = ObjectRecord("dataclass", cls, described.cls, frozen=frozen, proof=proof)
        elif isinstance(described, inspect.StructType):
            cls = typing.get_origin(described.cls) or described.cls
            proof = hasattr(cls, "__post_init__")
            frozen = cls.__struct_config__.frozen
            record = ObjectRecord("struct", cls, described.cls, frozen=frozen, proof=proof)
        elif isinstance(described, inspect.NamedTupleType):
            record = NamedTupleRecord(typing.get_origin(described.cls) or described.cls, described.cls)
        elif isinstance(described, inspect.TypedDictType):
            cls = typing.get_origin(described.cls) or described.cls
            required = frozenset(field.name for field in described.fields if field.required)
            record = TypedDictRecord(cls, described.cls, required)
        else:
            return None
        self.records[id(described)] = record
        name = record.cls.__qualname__
        annotations, around = _annotations(record.cls), self.arrays
        fields = {}
        for field in described.fields:
            self.arrays = _arrays_in(annotations.get(field.name))
            fields[field.name] = self._part(field.type, f"field {field.name!r} of {name}")
        self.arrays = around
        record.fill(fields)
        return record


_LEAVES: dict[type, typing.Callable[[], TypeNode]] = {
    inspect.NoneType: lambda: Plain(type(None), "none"),
    inspect.BoolType: lambda: Plain(bool, "boolean"),
    inspect.IntType: lambda: WholeNumber("long", 64),
    inspect.FloatType: Double,
    inspect.StrType: lambda: Plain(str, "string"),
    inspect.BytesType: lambda: Plain(bytes, "bytes"),
    inspect.DateTimeType: DateTime,
    inspect.DateType: lambda: Plain(datetime.date, "date"),
    inspect.TimeType: TimeOfDay,
    inspect.TimeDeltaType: lambda: Plain(datetime.timedelta, "duration"),
    inspect.DecimalType: lambda: Plain(decimal.Decimal, "decimal"),
    inspect.UUIDType: lambda: Plain(uuid.UUID, "uuid"),
}


def _arrays_in(hint: Any) -> Iterator[Any]:
    """Yield the NumPy array types within a hint, in order."""
    if is_array_type(hint):
        yield hint
        return
    for argument in typing.get_args(hint):
        yield from _arrays_in(argument)


def _annotations(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception:  # names that only msgspec resolves, in a class inside a function
        return dict(getattr(cls, "__annotations__", {}))


def _constrained(described: inspect.Type) -> bool:
    """Return whether msgspec.Meta restricts the values beyond their type."""
    names = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
    return any(getattr(described, name, None) is not None for name in names)


def _hashable(node: TypeNode, where: str) -> TypeNode:
    if node.hashable:
        return node
    raise UnsupportedType(f"Type {node.describe()} is not hashable", "Declare a tuple or a frozen class.", where)


def _named(hint: Any) -> str:
    if isinstance(hint, type) and not hasattr(hint, "__args__"):
        return hint.__qualname__ if hint.__module__ == "builtins" else f"{hint.__module__}.{hint.__qualname__}"
    return repr(hint)


def _unsupported(hint: Any, reason: str = "") -> UnsupportedType:
    problem = f"{_named(hint)} cannot be stored" + (f": {reason}" if reason else "")
    if isinstance(hint, inspect.AnyType) or hint is Any or hint is object:
        return UnsupportedType(
            "A type that allows any value cannot be stored", f"Declare the contents, e.g. list[int], {_PICKLE}."
        )
    if isinstance(hint, (inspect.ByteArrayType, inspect.MemoryViewType)):
        return UnsupportedType("A bytearray or memoryview cannot be stored", "Declare bytes.")
    if hint is Row:
        return UnsupportedType(problem, "Declare its fields: Types.ROW_NAMED([names], [types]).")
    if getattr(hint, "__qualname__", "").startswith("Types."):
        return UnsupportedType(problem, f"Call it: {hint.__qualname__}(...).")
    if isinstance(hint, type) and hint.__module__ == "numpy":
        return UnsupportedType(problem, "Declare the Python type: int, float, bool, str or bytes.")
    return UnsupportedType(problem, f"Make it a dataclass with annotated fields, {_PICKLE}.")
