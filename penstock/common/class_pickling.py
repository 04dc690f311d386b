"""Pickle the program's own classes by name or by value (see `penstock.common.program`)."""

from __future__ import annotations

import dataclasses
import inspect
import io
import pickle
import sys
from collections.abc import Callable
from functools import cached_property
from types import FunctionType, MemberDescriptorType
from typing import Any

import cloudpickle
import msgspec
from cloudpickle import cloudpickle as internals

from penstock.common.program import (
    MAIN,
    Shipped,
    _make_cached_property,
    _make_struct,
    _set_attributes,
    attribute_at,
    current_program,
    known_driver_name,
    name_here,
    program_class,
)

__all__ = ["ClassPickler", "dump_by_name", "dump_records", "is_held", "never", "travels_by_value"]

_StructMeta: type = type(msgspec.Struct)
_HAS_NAMES = frozenset({*internals._BUILTIN_TYPE_NAMES, type(None), type(Ellipsis), type(NotImplemented)})
"""Types that cloudpickle pickles by name although no module contains them."""


def dump_by_name(thing: Any) -> bytes:
    """Pickle an object that Python's pickle cannot: functions, and classes outside the program, go by value."""
    current = current_program()
    if current is None:
        modules = frozenset({MAIN})
        return ClassPickler.dumps(thing, modules, lambda cls: is_held(cls, modules))
    own = frozenset(current.modules)
    return ClassPickler.dumps(thing, own, lambda cls: is_held(cls, own) or current.name_of(cls) is not None)


def dump_records(records: list[Any], shipped: bytes) -> bytes:
    """Pickle records in the driver for the tasks of a program whose classes are in `shipped`."""
    parts = (
        msgspec.msgpack.decode(shipped, type=Shipped)
        if shipped
        else Shipped(modules=[MAIN], names=[], classes=b"", annotated={}, rest=b"")
    )
    try:
        data = pickle.dumps(records, protocol=5)
        # A function defined in the program's file goes by value: tasks cannot import it.
        if not any(module.encode() in data for module in parts.modules):
            return data
    except (pickle.PicklingError, AttributeError):
        pass
    modules, names = frozenset(parts.modules), frozenset(parts.names)
    return ClassPickler.dumps(records, modules, lambda cls: is_held(cls, modules) or known_driver_name(cls) in names)


def never(cls: type) -> bool:
    """Return False: pickle every class by value."""
    return False


def travels_by_value(cls: type, modules: frozenset[str]) -> bool:
    """Return whether other processes cannot import the class."""
    if cls in _HAS_NAMES:
        return False
    return cls.__module__ in modules or not (internals._should_pickle_by_reference(cls) or _other_name(cls))


def _other_name(cls: type) -> str:
    """Return the module attribute that holds a class of a different name, as in `Point = namedtuple("P", "x y")`."""
    if cls.__module__ in (None, MAIN) or internals._should_pickle_by_reference(cls):
        return ""
    module = sys.modules.get(cls.__module__)
    return next((name for name, value in vars(module).items() if value is cls), "") if module else ""


def is_held(cls: type, modules: frozenset[str]) -> bool:
    """Return whether the class can be looked up by its name in one of the program's modules."""
    return cls.__module__ in modules and attribute_at(sys.modules[cls.__module__], cls.__qualname__) is cls


class ClassPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A cloudpickle pickler that pickles classes by name if `is_named` returns True.

    `modules` are the program's own. If `tracked`, the reading process reuses a by-value class it has read before.
    """

    def __init__(
        self, file: Any, modules: frozenset[str], is_named: Callable[[type], bool], tracked: bool = True
    ) -> None:
        super().__init__(file, protocol=5)
        self._modules = modules
        self._is_named = is_named
        self._tracked = tracked

    @classmethod
    def dumps(
        cls, thing: Any, modules: frozenset[str], is_named: Callable[[type], bool], tracked: bool = True
    ) -> bytes:
        """Pickle an object; the arguments are those of the constructor."""
        file = io.BytesIO()
        cls(file, modules, is_named, tracked).dump(thing)
        return file.getvalue()

    def reducer_override(self, obj: Any) -> Any:
        """Return how to reduce an object. Called for every object whose class pickle has no built-in support for."""
        kind = type(obj)
        if issubclass(kind, type):
            if not travels_by_value(obj, self._modules):
                if obj not in _HAS_NAMES and (name := _other_name(obj)):
                    return getattr, (sys.modules[obj.__module__], name)
                return super().reducer_override(obj)
            if not self._is_named(obj):
                return self._class_by_value(obj)
            return NotImplemented if is_held(obj, self._modules) else (program_class, (name_here(obj),))
        if kind is FunctionType:
            own = obj.__module__ in self._modules
            return self._dynamic_function_reduce(obj) if own else super().reducer_override(obj)
        if kind is cached_property:
            # Holds a lock, which cannot be pickled.
            return _make_cached_property, (obj.func, obj.attrname)
        # dataclasses compares MISSING by identity.
        return "MISSING" if obj is dataclasses.MISSING else NotImplemented

    def _class_by_value(self, cls: type) -> tuple[Any, ...]:
        if isinstance(cls, _StructMeta):
            tracker = internals._get_or_create_tracker_id(cls) if self._tracked else None
            return _make_struct, (*_struct_parts(cls), tracker), _struct_state(cls), None, None, _set_attributes
        make, arguments, state, *others = internals._dynamic_class_reduce(cls)
        if "__slots__" in state[0] and not issubclass(cls, tuple):
            # Cloudpickle would only set the attribute, and instances would get a __dict__.
            arguments[3]["__slots__"] = state[0].pop("__slots__")
        if not self._tracked:
            *first, _, extra = arguments
            arguments = (*first, None, extra)
        # msgspec's cache cannot be pickled; msgspec rebuilds it on demand.
        state[0].pop("__msgspec_cache__", None)
        # Cloudpickle omits it.
        state[0]["__qualname__"] = cls.__qualname__
        return make, arguments, state, *others


# -- msgspec's structs -------------------------------------------------------------------------------------------------
# Only the class knows its fields, so the reader rebuilds it. Annotations and methods can refer to the class itself and
# are set afterwards; msgspec evaluates annotations when a decoder is created.

_STRUCT_OPTIONS = (
    "array_like",
    "cache_hash",
    "dict",
    "eq",
    "forbid_unknown_fields",
    "frozen",
    "gc",
    "omit_defaults",
    "order",
    "repr_omit_defaults",
    "tag_field",
    "weakref",
)
_STRUCT_MADE = {"__slots__", "__msgspec_cache__", "__weakref__", "__dict__", "__module__", "__qualname__"}


def _struct_parts(cls: Any) -> tuple[Any, ...]:
    fields = cls.__struct_fields__
    defaults = dict(zip(reversed(fields), reversed(cls.__struct_defaults__)))
    own = [name for name in vars(cls).get("__annotations__", {}) if name in fields]
    plain, made = {}, {}
    for name in own:
        default = defaults.get(name, msgspec.NODEFAULT)
        if type(default).__name__ == "Factory":
            made[name] = default.factory
        elif default is not msgspec.NODEFAULT:
            plain[name] = default
    config = cls.__struct_config__
    options = {name: getattr(config, name) for name in _STRUCT_OPTIONS}
    options["tag"] = False if config.tag is None else config.tag
    options["rename"] = dict(zip(fields, cls.__struct_encode_fields__))
    parameters = inspect.signature(cls).parameters
    options["kw_only"] = any(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in own)
    names = {name: vars(cls)[name] for name in ("__orig_bases__", "__doc__") if name in vars(cls)}
    names |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return type(cls), cls.__name__, cls.__bases__, names, own, plain, made, options


def _struct_state(cls: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(cls).items()
        if name not in _STRUCT_MADE and not name.startswith("__struct_") and not isinstance(value, MemberDescriptorType)
    }
