"""The base class of types, and the types without type parameters. ``penstock.common.typeinfo`` has all types."""

from __future__ import annotations

import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Generic

from penstock.common.time import Instant
from penstock.common.type_parameters import T_co


class TypeInformation(Generic[T_co]):
    """The declared type of a value. Types are equal if all their parts are, including names. Picklable."""

    def _parts(self) -> tuple[Any, ...]:
        """Return the values that, together with the class, determine equality."""
        return ()

    def need_conversion(self) -> bool:
        """Return False: records stay Python objects."""
        return False

    def to_internal_type(self, obj: Any) -> Any:
        """Return the value unchanged."""
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        """Return the value unchanged."""
        return obj

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeInformation) and type(self) is type(other) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash((type(self), self._parts()))

    def __repr__(self) -> str:
        return type(self).__name__


class BasicType(Enum):
    """The kinds of basic types."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


class BasicTypeInfo(TypeInformation[T_co]):
    """A basic type such as a string or a number."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BasicTypeInfo) and self._basic_type is other._basic_type

    def __hash__(self) -> int:
        return hash(self._basic_type)

    def __init__(self, basic_type: BasicType) -> None:
        self._basic_type = basic_type

    def get_basic_type(self) -> BasicType:
        """Return which basic type this is."""
        return self._basic_type

    def _parts(self) -> tuple[Any, ...]:
        return (self._basic_type,)

    def __repr__(self) -> str:
        return self._basic_type.value

    # PyFlink's names; `Types` has shorter ones.

    @staticmethod
    def STRING_TYPE_INFO() -> BasicTypeInfo[str]:
        """Return the type of strings."""
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicTypeInfo[bool]:
        """Return the type of booleans."""
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicTypeInfo[int]:
        """Return the type of 8-bit integers."""
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicTypeInfo[int]:
        """Return the type of 16-bit integers."""
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT_TYPE_INFO() -> BasicTypeInfo[int]:
        """Return the type of 32-bit integers."""
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG_TYPE_INFO() -> BasicTypeInfo[int]:
        """Return the type of 64-bit integers."""
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicTypeInfo[float]:
        """Return the type of 32-bit floating-point numbers."""
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicTypeInfo[float]:
        """Return the type of 64-bit floating-point numbers."""
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicTypeInfo[str]:
        """Return the type of single characters."""
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicTypeInfo[int]:
        """Return the type of arbitrary-size integers."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicTypeInfo[Decimal]:
        """Return the type of decimals."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT_TYPE_INFO() -> InstantTypeInfo:
        """Return the type of instants."""
        return InstantTypeInfo(BasicType.INSTANT)


class InstantTypeInfo(BasicTypeInfo[Instant]):
    """The type of ``penstock.common.Instant``. Equal to the BasicTypeInfo of the same name, as in PyFlink."""


class DateTypeInfo(TypeInformation[datetime.date]):
    """The type of ``datetime.date``."""


class TimeTypeInfo(TypeInformation[datetime.time]):
    """The type of ``datetime.time``."""


class TimestampTypeInfo(TypeInformation[datetime.datetime]):
    """The type of ``datetime.datetime``."""


class SqlTimeTypeInfo(TypeInformation):
    """Creates the types of ``Types.SQL_…``, as in PyFlink."""

    @staticmethod
    def DATE() -> DateTypeInfo:
        """Return the type of dates."""
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TimeTypeInfo:
        """Return the type of times of day."""
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TimestampTypeInfo:
        """Return the type of timestamps."""
        return TimestampTypeInfo()


class LocalTimeTypeInfo(TypeInformation):
    """``datetime.date``, ``time`` or ``datetime``: the types of ``Types.SQL_…`` under Java's names for local time."""

    class TimeType(Enum):
        """A date, a time of day, or both."""

        LOCAL_DATE = 0
        LOCAL_TIME = 1
        LOCAL_DATE_TIME = 2

    def __init__(self, time_type: LocalTimeTypeInfo.TimeType) -> None:
        self._time_type = time_type

    def get_time_type(self) -> LocalTimeTypeInfo.TimeType:
        """Return whether this is a date, a time of day, or both."""
        return self._time_type

    def _parts(self) -> tuple[Any, ...]:
        return (self._time_type,)

    def __repr__(self) -> str:
        return f"LocalTimeTypeInfo<{self._time_type.name}>"
