"""Convert `TypeInformation` to nodes."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

from penstock.common.renamed_from import former_names
from penstock.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    LocalTimeTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from penstock.state.serializers.containers import Mapping, Nullable, Sequence, TupleOf
from penstock.state.serializers.hints import node_of_hint
from penstock.state.serializers.leaves import (
    BigInt,
    Char,
    DateTime,
    Double,
    Float,
    InstantLeaf,
    Pickled,
    Plain,
    TimeOfDay,
    WholeNumber,
)
from penstock.state.serializers.node import TypeNode, UnsupportedType
from penstock.state.serializers.records import RowRecord

__all__ = ["node_of"]


def node_of(spec: Any) -> TypeNode:
    """Return the node of a TypeInformation or a type hint.

    Raises:
        UnsupportedType: The type is not supported.
    """
    if not isinstance(spec, TypeInformation):
        return node_of_hint(spec)
    if isinstance(spec, BasicTypeInfo):
        return _BASIC[spec.get_basic_type()]()
    if isinstance(spec, DateTypeInfo):
        return Plain(datetime.date, "date")
    if isinstance(spec, TimeTypeInfo):
        return TimeOfDay()
    if isinstance(spec, TimestampTypeInfo):
        return DateTime()
    if isinstance(spec, LocalTimeTypeInfo):
        return node_of(_LOCAL_TIME[spec.get_time_type()])
    if isinstance(spec, ExternalTypeInfo):
        return node_of(spec.get_type_info())
    if isinstance(spec, PickledBytesTypeInfo):
        return Pickled()
    if isinstance(spec, PrimitiveArrayTypeInfo):
        if spec.get_element_type() == Types.BYTE():
            return Plain(bytes, "bytes")
        return Sequence(list, node_of(spec.get_element_type()))
    if isinstance(spec, (ListTypeInfo, ObjectArrayTypeInfo, BasicArrayTypeInfo)):
        return Sequence(list, Nullable(_part(spec.get_element_type(), "the elements of a list")))
    if isinstance(spec, MapTypeInfo):
        key = _part(spec.get_key_type(), "the keys of a map")
        if not key.hashable:
            raise UnsupportedType(f"Type {key.describe()} is not hashable", "Declare a tuple.", "the keys of a map")
        return Mapping(key, Nullable(_part(spec.get_value_type(), "the values of a map")))
    if isinstance(spec, TupleTypeInfo):
        types = enumerate(spec.get_field_types())
        return TupleOf(tuple(_part(kind, f"element {i} of a tuple") for i, kind in types), rows=True)
    if isinstance(spec, RowTypeInfo):
        names = spec.get_field_names()
        fields = zip(names, spec.get_field_types())
        nodes = tuple(Nullable(_part(kind, f"field {name!r} of a row")) for name, kind in fields)
        former = tuple(map(former_names, spec.get_field_types()))
        return RowRecord(tuple(names) if spec.is_named() else None, nodes, former)
    raise UnsupportedType(f"{spec!r} cannot be stored", "Use a type from Types.")


def _part(spec: Any, where: str) -> TypeNode:
    try:
        return node_of(spec)
    except UnsupportedType as error:
        raise error.inside(where) from None


_LOCAL_TIME = {
    LocalTimeTypeInfo.TimeType.LOCAL_DATE: Types.SQL_DATE(),
    LocalTimeTypeInfo.TimeType.LOCAL_TIME: Types.SQL_TIME(),
    LocalTimeTypeInfo.TimeType.LOCAL_DATE_TIME: Types.SQL_TIMESTAMP(),
}

_BASIC: dict[BasicType, Callable[[], TypeNode]] = {
    BasicType.STRING: lambda: Plain(str, "string"),
    BasicType.BYTE: lambda: WholeNumber("byte", 8),
    BasicType.BOOLEAN: lambda: Plain(bool, "boolean"),
    BasicType.SHORT: lambda: WholeNumber("short", 16),
    BasicType.INT: lambda: WholeNumber("int", 32),
    BasicType.LONG: lambda: WholeNumber("long", 64),
    BasicType.FLOAT: Float,
    BasicType.DOUBLE: Double,
    BasicType.CHAR: Char,
    BasicType.BIG_INT: BigInt,
    BasicType.BIG_DEC: lambda: Plain(decimal.Decimal, "decimal"),
    BasicType.INSTANT: InstantLeaf,
}
