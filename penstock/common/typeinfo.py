"""Declared types: ``Types`` creates the ``TypeInformation`` that states, streams and functions are declared with.

These classes only describe types; ``penstock.state.serializers`` does the encoding. A type hint is accepted wherever
one type contains others: ``Types.LIST(Order)``, ``Types.MAP(str, int)``.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeAlias, overload

from penstock.common.row import Row
from penstock.common.simple_types import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    InstantTypeInfo,
    LocalTimeTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from penstock.common.time import Instant
from penstock.common.type_parameters import K, T, T_co, V

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "ExternalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "LocalTimeTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "TypeOf",
    "TypeSpec",
    "Types",
]

# A TypeInformation, or any type hint that has a serializer. Hints have no common class that could be named here.
TypeSpec: TypeAlias = Any
TypeOf: TypeAlias = TypeInformation[T] | type[T]
"""The specs from which a type checker can infer the value type. It cannot do so for others, such as ``int | None``."""


class ExternalTypeInfo(TypeInformation):
    """A wrapper around another type, which PyFlink's tables return."""

    def __init__(self, type_info: TypeSpec) -> None:
        self._type_info = type_info

    def get_type_info(self) -> TypeSpec:
        """Return the wrapped type."""
        return self._type_info

    def _parts(self) -> tuple[Any, ...]:
        return (self._type_info,)

    def __repr__(self) -> str:
        return f"ExternalTypeInfo<{_name(self._type_info)}>"


class PickledBytesTypeInfo(TypeInformation):
    """Any picklable object. Reading it back can run arbitrary code."""

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


class _ElementsTypeInfo(TypeInformation[T_co]):
    """A collection of values of one type."""

    def __init__(self, element_type: TypeSpec) -> None:
        self._element_type = element_type

    def get_element_type(self) -> TypeSpec:
        return self._element_type

    def _parts(self) -> tuple[Any, ...]:
        return (self._element_type,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{_name(self._element_type)}>"


_PRIMITIVES = frozenset(
    (
        BasicType.BOOLEAN,
        BasicType.BYTE,
        BasicType.SHORT,
        BasicType.INT,
        BasicType.LONG,
        BasicType.FLOAT,
        BasicType.DOUBLE,
        BasicType.CHAR,
    )
)


class PrimitiveArrayTypeInfo(_ElementsTypeInfo[Any]):
    """A list of numbers, booleans or characters, without None; ``bytes`` if the elements are BYTE."""

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__(_basic(element_type, _PRIMITIVES, "PRIMITIVE_ARRAY"))


class BasicArrayTypeInfo(_ElementsTypeInfo[list[T]]):
    """A list of numbers, booleans, characters or strings; elements can be None."""

    def __init__(self, element_type: TypeInformation) -> None:
        super().__init__(_basic(element_type, _PRIMITIVES | {BasicType.STRING}, "BASIC_ARRAY"))


class ObjectArrayTypeInfo(_ElementsTypeInfo[list[T]]):
    """A list of values of one type; elements can be None."""


class ListTypeInfo(_ElementsTypeInfo[list[T]]):
    """A list of values of one type; elements can be None."""

    @property
    def elem_type(self) -> TypeSpec:
        """The type of the elements."""
        return self._element_type


class MapTypeInfo(TypeInformation[dict[K, V]]):
    """A dict. Values can be None, keys cannot."""

    def __init__(self, key_type_info: TypeSpec, value_type_info: TypeSpec) -> None:
        self._key_type_info = key_type_info
        self._value_type_info = value_type_info

    def get_key_type(self) -> TypeSpec:
        """Return the type of the keys."""
        return self._key_type_info

    def get_value_type(self) -> TypeSpec:
        """Return the type of the values."""
        return self._value_type_info

    def _parts(self) -> tuple[Any, ...]:
        return self._key_type_info, self._value_type_info

    def __repr__(self) -> str:
        return f"MapTypeInfo<{_name(self._key_type_info)}, {_name(self._value_type_info)}>"


class TupleTypeInfo(TypeInformation[tuple[Any, ...]]):
    """A tuple with one type per position, without None."""

    def __init__(self, field_types: Sequence[TypeSpec]) -> None:
        self._field_types = tuple(field_types)

    def get_field_types(self) -> list[TypeSpec]:
        """Return the types of the fields, in order."""
        return list(self._field_types)

    def _parts(self) -> tuple[Any, ...]:
        return self._field_types

    def __repr__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(_name, self._field_types))})"


class RowTypeInfo(TypeInformation[Row]):
    """A ``Row`` with one type per field; any field can be None. Field names are optional."""

    def __init__(self, field_types: Sequence[TypeSpec], field_names: Sequence[str] | None = None) -> None:
        self._field_types = tuple(field_types)
        self._field_names = None if field_names is None else tuple(field_names)
        if self._field_names is not None:
            if len(self._field_names) != len(self._field_types):
                raise ValueError(
                    f"A row type requires one name per field, but got {len(self._field_names)} names "
                    f"for {len(self._field_types)} types."
                )
            if len(set(self._field_names)) != len(self._field_names):
                raise ValueError(f"The field names of a row type must be unique, but got {list(self._field_names)}.")

    def is_named(self) -> bool:
        """Return whether the fields have names."""
        return self._field_names is not None

    def get_field_names(self) -> list[str]:
        """Return the field names, or f0, f1, ... for a row type without names."""
        if self._field_names is None:
            return [f"f{i}" for i in range(len(self._field_types))]
        return list(self._field_names)

    def get_field_index(self, field_name: str) -> int:
        """Return the position of the field; -1 for a row type without names."""
        return -1 if self._field_names is None else self._field_names.index(field_name)

    def get_field_types(self) -> list[TypeSpec]:
        """Return the types of the fields, in order."""
        return list(self._field_types)

    def _parts(self) -> tuple[Any, ...]:
        return self._field_types, self._field_names

    def __repr__(self) -> str:
        types = [_name(kind) for kind in self._field_types]
        if self._field_names is not None:
            types = [f"{name}: {kind}" for name, kind in zip(self._field_names, types)]
        return f"RowTypeInfo({', '.join(types)})"


class Types:
    """Factory functions for declared types. Values cannot be None unless the method's docstring says otherwise."""

    @staticmethod
    def STRING() -> TypeInformation[str]:
        """Return the type of ``str``."""
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BYTE() -> TypeInformation[int]:
        """Return the type of ``int`` from -128 to 127."""
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def BOOLEAN() -> TypeInformation[bool]:
        """Return the type of ``bool``."""
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def SHORT() -> TypeInformation[int]:
        """Return the type of 16-bit ``int``."""
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT() -> TypeInformation[int]:
        """Return the type of 32-bit ``int``."""
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG() -> TypeInformation[int]:
        """Return the type of 64-bit ``int``."""
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT() -> TypeInformation[float]:
        """Return the type of ``float``, rounded to 32 bits."""
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE() -> TypeInformation[float]:
        """Return the type of ``float``."""
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR() -> TypeInformation[str]:
        """Return the type of ``str`` with one character."""
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT() -> TypeInformation[int]:
        """Return the type of ``int`` of any size."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC() -> TypeInformation[Decimal]:
        """Return the type of ``decimal.Decimal``."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT() -> TypeInformation[Instant]:
        """Return the type of ``penstock.common.Instant``."""
        return BasicTypeInfo.INSTANT_TYPE_INFO()

    @staticmethod
    def SQL_DATE() -> TypeInformation[datetime.date]:
        """Return the type of ``datetime.date``."""
        return DateTypeInfo()

    @staticmethod
    def SQL_TIME() -> TypeInformation[datetime.time]:
        """Return the type of ``datetime.time``."""
        return TimeTypeInfo()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation[datetime.datetime]:
        """Return the type of ``datetime.datetime``, with microseconds. Aware values are returned in UTC."""
        return TimestampTypeInfo()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation[Any]:
        """Return the type of any picklable object, including None. Reading it back can run arbitrary code."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeSpec]) -> RowTypeInfo:
        """Return the type of a ``Row`` without field names; any field can be None."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[TypeSpec]) -> RowTypeInfo:
        """Return the type of a ``Row`` with these field names; any field can be None."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeSpec]) -> TupleTypeInfo:
        """Return the type of a tuple with exactly these field types."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation[Any]:
        """Return the type of a list of numbers, booleans or characters; ``bytes`` if the elements are BYTE."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation[T]) -> TypeInformation[list[T]]:
        """Return the type of a list of numbers, booleans, characters or strings; elements can be None."""
        return BasicArrayTypeInfo(element_type)

    @overload
    @staticmethod
    def OBJECT_ARRAY(element_type: TypeOf[T]) -> TypeInformation[list[T]]: ...

    @overload
    @staticmethod
    def OBJECT_ARRAY(element_type: TypeSpec) -> TypeInformation[list[Any]]: ...

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeSpec) -> TypeInformation[list[Any]]:
        """Return the type of a list of any element type; elements can be None."""
        return ObjectArrayTypeInfo(element_type)

    @overload
    @staticmethod
    def MAP(key_type_info: TypeOf[K], value_type_info: TypeOf[V]) -> TypeInformation[dict[K, V]]: ...

    @overload
    @staticmethod
    def MAP(key_type_info: TypeSpec, value_type_info: TypeSpec) -> TypeInformation[dict[Any, Any]]: ...

    @staticmethod
    def MAP(key_type_info: TypeSpec, value_type_info: TypeSpec) -> TypeInformation[dict[Any, Any]]:
        """Return the type of a dict; values can be None, keys cannot."""
        return MapTypeInfo(key_type_info, value_type_info)

    @overload
    @staticmethod
    def LIST(element_type_info: TypeOf[T]) -> TypeInformation[list[T]]: ...

    @overload
    @staticmethod
    def LIST(element_type_info: TypeSpec) -> TypeInformation[list[Any]]: ...

    @staticmethod
    def LIST(element_type_info: TypeSpec) -> TypeInformation[list[Any]]:
        """Return the type of a list of any element type; elements can be None."""
        return ListTypeInfo(element_type_info)


def _name(spec: TypeSpec) -> str:
    return spec.__qualname__ if isinstance(spec, type) and not hasattr(spec, "__args__") else repr(spec)


def _basic(spec: TypeSpec, allowed: frozenset[BasicType], factory: str) -> TypeInformation:
    if isinstance(spec, BasicTypeInfo) and spec.get_basic_type() in allowed:
        return spec
    raise TypeError(
        f"Types.{factory} cannot contain {_name(spec)}, only {', '.join(sorted(b.name for b in allowed))}. "
        "Use Types.LIST or Types.OBJECT_ARRAY for other elements."
    )
