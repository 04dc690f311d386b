"""Extract the fields of any kind of record in a given order, as CSV lines and table rows need them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from penstock.common.row import Row
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, TypeSpec
from penstock.errors import PenstockError


def columns_of(kind: TypeSpec) -> dict[str, Any]:
    """Return field names and types of a dataclass, TypedDict, NamedTuple, msgspec Struct or row type."""
    if isinstance(kind, RowTypeInfo):
        return dict(zip(kind.get_field_names(), kind.get_field_types()))
    if isinstance(kind, type) and (
        dataclasses.is_dataclass(kind)
        or typing.is_typeddict(kind)
        or issubclass(kind, msgspec.Struct)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    ):
        hints = typing.get_type_hints(kind)
        fields = getattr(kind, "__struct_fields__", None) or getattr(kind, "_fields", None)
        if fields is None and dataclasses.is_dataclass(kind):
            fields = [field.name for field in dataclasses.fields(kind)]
        return {name: hints.get(name, Any) for name in fields or hints}
    what = kind if isinstance(kind, TypeInformation) else getattr(kind, "__qualname__", kind)
    raise PenstockError(
        f"{what} has no named fields, so it defines no columns. Use a dataclass, a TypedDict, a NamedTuple or "
        f"Types.ROW_NAMED."
    )


def values_of(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """Return a function that extracts the values of `names`, in that order, from any kind of record."""
    wanted = tuple(names)
    count = len(wanted)
    # With two or more names these return a tuple, in C.
    items = itemgetter(*wanted) if count > 1 else lambda record: (record[wanted[0]],)
    attributes = attrgetter(*wanted) if count > 1 else lambda record: (getattr(record, wanted[0]),)

    def values(record: Any) -> Sequence[Any]:
        try:
            if type(record) is dict:
                return items(record)
            if type(record) is Row:
                fields = record._fields
                if fields == wanted or (fields is None and len(record) == count):
                    return record._values
                if fields is not None:
                    return record.get_fields_by_names(wanted)
            elif isinstance(record, (tuple, list)):
                if len(record) == count:
                    return record
            elif isinstance(record, dict):
                return items(record)
            else:
                return attributes(record)
        except (KeyError, ValueError, AttributeError):
            pass
        raise PenstockError(f"{record!r} does not have the columns {', '.join(wanted)}.")

    return values
