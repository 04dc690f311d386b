"""Convert a record type to an Arrow schema, for columnar files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from msgspec import inspect

from penstock.common.fields import columns_of
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
    TypeSpec,
    _ElementsTypeInfo,
)
from penstock.errors import PenstockError

_DECIMAL = pa.decimal128(38, 18)
_BASIC = {
    BasicType.STRING: pa.string(),
    BasicType.CHAR: pa.string(),
    BasicType.BYTE: pa.int8(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.BIG_DEC: _DECIMAL,
}
_PLAIN = {
    inspect.StrType: pa.string(),
    inspect.IntType: pa.int64(),
    inspect.FloatType: pa.float64(),
    inspect.BoolType: pa.bool_(),
    inspect.BytesType: pa.binary(),
    inspect.DateTimeType: pa.timestamp("us"),
    inspect.DateType: pa.date32(),
    inspect.TimeType: pa.time64("us"),
    inspect.DecimalType: _DECIMAL,
}


def schema_of(kind: TypeSpec) -> pa.Schema:
    """Return the Arrow schema of a record type (a dataclass or similar), a Types.ROW_NAMED or a pyarrow Schema.

    Every column is nullable.
    """
    if isinstance(kind, pa.Schema):
        return kind
    return pa.schema([_field(name, part) for name, part in columns_of(kind).items()])


def _field(name: str, kind: TypeSpec) -> pa.Field:
    try:
        return pa.field(name, _arrow(kind))
    except _NoArrowType as error:
        raise PenstockError(
            f"Column '{name}' cannot have the type {error}. Pass a pyarrow Schema, or use str, int, float, bool, "
            f"bytes, Decimal, datetime, date, time, list, dict, or a record type built from these."
        ) from None


class _NoArrowType(Exception):
    pass


def _arrow(kind: TypeSpec) -> pa.DataType:
    if not isinstance(kind, TypeInformation):
        try:
            return _of_hint(inspect.type_info(kind))
        except TypeError as error:
            raise _NoArrowType(str(kind)) from error
    if isinstance(kind, BasicTypeInfo) and kind.get_basic_type() in _BASIC:
        return _BASIC[kind.get_basic_type()]
    if isinstance(kind, (DateTypeInfo, TimeTypeInfo, TimestampTypeInfo)):
        plain = {DateTypeInfo: pa.date32(), TimeTypeInfo: pa.time64("us"), TimestampTypeInfo: pa.timestamp("us")}
        return plain[type(kind)]
    if isinstance(kind, RowTypeInfo):
        return pa.struct([_field(name, part) for name, part in columns_of(kind).items()])
    if isinstance(kind, MapTypeInfo):
        return pa.map_(_arrow(kind.get_key_type()), _arrow(kind.get_value_type()))
    if isinstance(kind, _ElementsTypeInfo):
        element = kind.get_element_type()
        packed = not isinstance(kind, (ListTypeInfo, ObjectArrayTypeInfo))
        if packed and element == BasicTypeInfo(BasicType.BYTE):
            return pa.binary()
        return pa.list_(_arrow(element))
    raise _NoArrowType(repr(kind))


def _of_hint(described: inspect.Type) -> pa.DataType:
    plain = _PLAIN.get(type(described))
    if plain is not None:
        return plain
    if isinstance(described, inspect.UnionType):
        some = [part for part in described.types if not isinstance(part, inspect.NoneType)]
        if len(some) == 1:
            return _of_hint(some[0])
    if isinstance(described, (inspect.ListType, inspect.VarTupleType)):
        return pa.list_(_of_hint(described.item_type))
    if isinstance(described, inspect.DictType):
        return pa.map_(_of_hint(described.key_type), _of_hint(described.value_type))
    fields: Any = getattr(described, "fields", None)
    if fields:
        return pa.struct([pa.field(each.name, _of_hint(each.type)) for each in fields])
    raise _NoArrowType(type(described).__name__.removesuffix("Type").lower())
