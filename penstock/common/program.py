"""The program's own classes, in every process of a job.

A task can import what modules hold. It cannot import a class of the program's own file, which is `__main__` only in the
driver, nor a class that a function defines. The driver therefore pickles these classes by value, once for a job
(`ClassCollector`). Everything else refers to them by name: functions, declared types, records and stored values. A
class of the program's file is `__main__.Order`, which any pickle understands; the others are found by `program_class`.

A process that reads any of these enters the program first (`enter_program`). Then `__main__` holds the classes, and
each exists once, whichever operator, source or stored value names it. A program that is started again, in a new
process, finds its own classes under the names that it stored.
"""

from __future__ import annotations

import dataclasses
import inspect
import io
import pickle
import sys
import threading
import typing
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from types import FunctionType, MemberDescriptorType, ModuleType, new_class
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import cloudpickle
import msgspec
from cloudpickle import cloudpickle as internals

from penstock.errors import PenstockError

__all__ = ["ClassCollector", "Program", "dump_by_name", "dump_records", "enter_program"]

_MAIN = "__main__"
_MOST_BYTES = 1 << 20
"""Of classes that only stored values may name. More than this is data that their methods refer to."""
_StructMeta: type = type(msgspec.Struct)
_HAS_NAMES = frozenset({*internals._BUILTIN_TYPE_NAMES, type(None), type(Ellipsis), type(NotImplemented)})
"""Types that Cloudpickle names although no module holds them."""


class NoSuchClass(PenstockError):
    """A pickle names a class that the program does not have."""


class _Shipped(msgspec.Struct, array_like=True, kw_only=True):
    """A program's classes as they travel."""

    modules: list[str]
    """What the program's own modules are called: `__main__`, and those registered to be pickled by value."""
    names: list[str]
    """Of the classes that no module holds."""
    classes: bytes
    """Those of each module by attribute, and the others by name; one pickle, so that they hold each other."""
    annotated: dict[str, dict[str, bytes]]
    """By module, what else the annotations of these classes name there; each a pickle."""
    rest: bytes
    """The other classes of `__main__`, by attribute, for records and stored values that name them."""


_Outside = tuple["Program | None", dict[str, ModuleType | None]]
"""A process's program, and its modules of the names that another program has."""


class Program:
    """A program's classes in a process that cannot import them."""

    def __init__(self, shipped: bytes) -> None:
        self.shipped = shipped
        parts = msgspec.msgpack.decode(shipped, type=_Shipped)
        self.modules = {name: ModuleType(name) for name in parts.modules}
        vars(self.modules[_MAIN])["__getattr__"] = self._find_in_rest
        self._rest = parts.rest
        self._classes: dict[str, type] = {}
        self._names: dict[type, str] = {}
        with self.entered():
            held, self._classes = pickle.loads(parts.classes)
            self.empty = not (held or self._classes or self._rest)
            """Whether objects are the same inside and outside of it."""
            self._names = {cls: name for name, cls in self._classes.items()}
            for module, attributes in held.items():
                vars(self.modules[module]).update(attributes)
            for module, pickles in parts.annotated.items():
                for name, data in pickles.items():
                    # What cannot be imported here is missed only where the annotation is evaluated.
                    with suppress(Exception):
                        vars(self.modules[module])[name] = pickle.loads(data)

    def enter(self) -> None:
        """Make this the program of the process."""
        global _current
        _current = self
        sys.modules.update(self.modules)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """For a process that also is the driver: enter, and leave again."""
        with _entering:
            _entered.append((self, _outside(self)))
            self.enter()
        try:
            yield
        finally:
            with _entering:
                _leave(self)

    def find(self, name: str) -> type | None:
        """Return the program's class of this name, or None."""
        return self._classes.get(name)

    def name_of(self, cls: type) -> str | None:
        """Return the name of a class of the program, or None for any other class."""
        return self._names.get(cls)

    def _find_in_rest(self, name: str) -> Any:
        """What `__main__` does not have: a class that none of the program's functions names, or nothing."""
        main, why = vars(self.modules[_MAIN]), ""
        if self._rest and not name.startswith("__"):
            rest, self._rest = self._rest, b""
            try:
                with self.entered():
                    main.update(pickle.loads(rest))
            except Exception as error:  # whatever the classes are made of
                why = f", for its classes cannot be read here: {type(error).__name__}: {error}"
            if name in main:
                return main[name]
        raise AttributeError(f"module '__main__' has no attribute '{name}'{why}")


_current: Program | None = None
"""None in the driver, which has the classes themselves."""
_entering = threading.Lock()
_entered: list[tuple[Program, _Outside]] = []
"""Those that were entered and not left, with what was there before. Threads may leave in another order."""


def _outside(program: Program) -> _Outside:
    return _current, {name: sys.modules.get(name) for name in program.modules}


def _leave(program: Program) -> None:
    global _current
    place = max(place for place, (entered, _) in enumerate(_entered) if entered is program)
    _, outside = _entered.pop(place)
    if place < len(_entered):
        # Another thread entered meanwhile: when it leaves, it goes out to where this one came from.
        _entered[place] = _entered[place][0], outside
        return
    _current, modules = outside
    for name, module in modules.items():
        if module is None:
            del sys.modules[name]
        else:
            sys.modules[name] = module


_driver_names: WeakKeyDictionary[type, str] = WeakKeyDictionary()
_driver_classes: WeakValueDictionary[str, type] = WeakValueDictionary()


def enter_program(shipped: bytes) -> None:
    """Make the classes of a job's program known to this process, unless they are."""
    if _current is None or _current.shipped != shipped:
        Program(shipped).enter()


def program_class(name: str) -> type:
    """Pickles call this to find a class that no module holds."""
    found = _driver_classes.get(name) if _current is None else _current.find(name)
    if found is not None:
        return found
    module, _, qualname = name.partition(":")
    held = _attribute(sys.modules.get(module), qualname)
    if isinstance(held, type):
        # When the pickle was written, the module held a later definition of the class.
        return held
    raise NoSuchClass(
        f"A stored object is of class {qualname} of {module}, which the program does not have.",
        fix="Define the class where it was, and use it in the program; or start without the state that holds it.",
    )


class ClassCollector:
    """Collects the classes that the parts of a program name, while these are pickled. Lives in the driver.

    Besides `__main__`, `modules` and those registered with Cloudpickle to be pickled by value are the program's own.
    """

    def __init__(self, modules: Iterable[str] = ()) -> None:
        self._modules = frozenset({_MAIN, *modules, *cloudpickle.list_registry_pickle_by_value()})
        self._classes: dict[type, None] = {}

    def dumps(self, thing: Any) -> bytes:
        """Pickle a part of the program. Raises what prevents it, or a class that it names, from being pickled."""
        met: dict[type, None] = {}
        data = _Pickler.dumps(thing, self._modules, lambda cls: met.setdefault(cls) is None)
        self.add(met)
        return data

    def pickles(self, thing: Any) -> bool:
        """Whether `thing` can be pickled with all classes that it names."""
        try:
            _Pickler.dumps(thing, self._modules, _never)
        except Exception:  # any failure means the same here: it does not pickle
            return False
        return True

    def add(self, classes: Iterable[type]) -> None:
        """Let these travel, if they are classes that a task cannot import, with all that they name."""
        new = [cls for cls in classes if cls not in self._classes and _by_value(cls, self._modules)]
        if new:
            # A class within a class is found through the outer one.
            outer = [_attribute(sys.modules[cls.__module__], cls.__qualname__.split(".")[0]) for cls in self._held(new)]
            met: dict[type, None] = {}
            _Pickler.dumps((new, outer), self._modules, lambda cls: met.setdefault(cls) is not None, tracked=False)
            self._classes.update(met)

    def pack(self) -> bytes:
        """The classes, for `enter_program`."""
        annotated = self._add_annotated()
        held: dict[str, dict[str, type]] = {}
        others: dict[str, type] = {}
        for cls in self._classes:
            if not _is_held(cls, self._modules):
                others[_driver_name(cls)] = cls
            elif "." not in cls.__qualname__:
                held.setdefault(cls.__module__, {})[cls.__qualname__] = cls
        shipped = _Shipped(
            modules=sorted(self._modules),
            names=list(others),
            classes=_Pickler.dumps((held, others), self._modules, _never, tracked=False),
            annotated={module: self._each_dumped(things) for module, things in annotated.items()},
            rest=self._rest_of_main(),
        )
        return msgspec.msgpack.encode(shipped)

    def _held(self, classes: Iterable[type]) -> Iterator[type]:
        return (cls for cls in classes if _is_held(cls, self._modules))

    def _add_annotated(self) -> dict[str, dict[str, Any]]:
        """Add the classes that annotations name by text. Returns the other things that they name, by module."""
        found: dict[str, dict[str, Any]] = {}
        looked_at: set[type] = set()
        while left := [cls for cls in self._classes if cls not in looked_at]:
            looked_at.update(left)
            for cls in left:
                if cls.__module__ not in self._modules:
                    continue
                module = vars(sys.modules[cls.__module__])
                for name in _annotated_names(cls) & module.keys():
                    thing = module[name]
                    if isinstance(thing, type) and _by_value(thing, self._modules):
                        # What does not pickle is missed only where the annotation is evaluated.
                        with suppress(Exception):
                            self.add([thing])
                    else:
                        found.setdefault(cls.__module__, {})[name] = thing
        return found

    def _each_dumped(self, things: dict[str, Any]) -> dict[str, bytes]:
        dumped = {}
        for name, thing in things.items():
            with suppress(Exception):  # as above
                dumped[name] = _Pickler.dumps(thing, self._modules, self._classes.__contains__)
        return dumped

    def _rest_of_main(self) -> bytes:
        """The classes of `__main__` that no part of the program names. Those that do not pickle are left out."""
        candidates = {
            name: value
            for name, value in vars(sys.modules[_MAIN]).items()
            if isinstance(value, type)
            and (value.__module__, value.__qualname__) == (_MAIN, name)
            and value not in self._classes
        }
        for rest in (candidates, {name: cls for name, cls in candidates.items() if self._dump_rest({name: cls})}):
            if data := self._dump_rest(rest):
                return data
        return b""

    def _dump_rest(self, classes: dict[str, type]) -> bytes:
        try:
            file = _Bounded(_MOST_BYTES)
            _Pickler(file, self._modules, self._classes.__contains__, tracked=False).dump(classes)
            return file.getvalue() if classes else b""
        except Exception:  # pickling runs arbitrary code
            return b""


def dump_by_name(thing: Any) -> bytes:
    """Pickle what Python's pickle cannot: with the functions, and with classes that are not the program's."""
    current = _current
    if current is None:
        modules = frozenset({_MAIN})
        return _Pickler.dumps(thing, modules, lambda cls: _is_held(cls, modules))
    own = frozenset(current.modules)
    return _Pickler.dumps(thing, own, lambda cls: _is_held(cls, own) or current.name_of(cls) is not None)


def dump_records(records: list[Any], shipped: bytes) -> bytes:
    """Pickle records in the driver, for tasks of a program whose classes are `shipped`."""
    parts = (
        msgspec.msgpack.decode(shipped, type=_Shipped)
        if shipped
        else _Shipped(modules=[_MAIN], names=[], classes=b"", annotated={}, rest=b"")
    )
    try:
        data = pickle.dumps(records, protocol=5)
        # A function of the program's file must travel by value, as tasks do not have it.
        if not any(module.encode() in data for module in parts.modules):
            return data
    except (pickle.PicklingError, AttributeError):
        pass
    modules, names = frozenset(parts.modules), frozenset(parts.names)
    return _Pickler.dumps(records, modules, lambda cls: _is_held(cls, modules) or _driver_names.get(cls) in names)


def _never(cls: type) -> bool:
    return False


def _by_value(cls: type, modules: frozenset[str]) -> bool:
    """Whether other processes cannot import it."""
    if cls in _HAS_NAMES:
        return False
    return cls.__module__ in modules or not (internals._should_pickle_by_reference(cls) or _other_name(cls))


def _other_name(cls: type) -> str:
    """The name under which its module holds a class whose own name is another, as `Point = namedtuple("P", "x y")`."""
    if cls.__module__ in (None, _MAIN) or internals._should_pickle_by_reference(cls):
        return ""
    module = sys.modules.get(cls.__module__)
    return next((name for name, value in vars(module).items() if value is cls), "") if module else ""


def _is_held(cls: type, modules: frozenset[str]) -> bool:
    """Whether its name in one of the program's modules gives this very class."""
    return cls.__module__ in modules and _attribute(sys.modules[cls.__module__], cls.__qualname__) is cls


def _attribute(holder: Any, path: str) -> Any:
    for name in path.split("."):
        holder = getattr(holder, name, None)
    return holder


def _driver_name(cls: type) -> str:
    """The name of a class that no module holds. Classes of one name are numbered in the order they are met."""
    name = _driver_names.get(cls)
    if name is None:
        first = name = f"{cls.__module__}:{cls.__qualname__}"
        number = 1
        while name in _driver_classes:
            number += 1
            name = f"{first}#{number}"
        _driver_names[cls] = name
        _driver_classes[name] = cls
    return name


def _annotated_names(cls: type) -> set[str]:
    """The names in annotations of a class that are still text."""
    found: set[str] = set()
    pending = list(vars(cls).get("__annotations__", {}).values())
    while pending:
        hint = pending.pop()
        if isinstance(hint, typing.ForwardRef):
            hint = hint.__forward_arg__
        if isinstance(hint, str):
            with suppress(SyntaxError):
                code = compile(hint, "<annotation>", "eval")
                found.update(code.co_names)
                pending += [constant for constant in code.co_consts if isinstance(constant, str)]
        else:
            pending += typing.get_args(hint)
    return found


# -- pickling ----------------------------------------------------------------------------------------------------------


class _Bounded(io.BytesIO):
    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Any) -> int:
        written = super().write(data)
        if self.tell() > self._most:
            raise pickle.PicklingError(f"more than {self._most} bytes")
        return written


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Cloudpickle's, which refers to classes by name where `is_named` says so. `modules` are the program's own.

    `tracked`: classes that travel by value are known to the reading process if it has read them before.
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
        file = io.BytesIO()
        cls(file, modules, is_named, tracked).dump(thing)
        return file.getvalue()

    def reducer_override(self, obj: Any) -> Any:
        # Called for every object of a class that Pickle does not know.
        kind = type(obj)
        if issubclass(kind, type):
            if not _by_value(obj, self._modules):
                if obj not in _HAS_NAMES and (name := _other_name(obj)):
                    return getattr, (sys.modules[obj.__module__], name)
                return super().reducer_override(obj)
            if not self._is_named(obj):
                return self._class_by_value(obj)
            return NotImplemented if _is_held(obj, self._modules) else (program_class, (_name_here(obj),))
        if kind is FunctionType:
            own = obj.__module__ in self._modules
            return self._dynamic_function_reduce(obj) if own else super().reducer_override(obj)
        if kind is cached_property:
            # It has a lock.
            return _make_cached_property, (obj.func, obj.attrname)
        # Compared by identity, in dataclasses too.
        return "MISSING" if obj is dataclasses.MISSING else NotImplemented

    def _class_by_value(self, cls: type) -> tuple[Any, ...]:
        if isinstance(cls, _StructMeta):
            tracker = internals._get_or_create_tracker_id(cls) if self._tracked else None
            return _make_struct, (*_struct_parts(cls), tracker), _struct_state(cls), None, None, _set_attributes
        make, arguments, state, *others = internals._dynamic_class_reduce(cls)
        if "__slots__" in state[0] and not issubclass(cls, tuple):
            # Cloudpickle would only set the attribute, and instances would have a dict.
            arguments[3]["__slots__"] = state[0].pop("__slots__")
        if not self._tracked:
            *first, _, extra = arguments
            arguments = (*first, None, extra)
        # What msgspec keeps on a class cannot be pickled, and is made again where it is needed.
        state[0].pop("__msgspec_cache__", None)
        # Cloudpickle leaves it out.
        state[0]["__qualname__"] = cls.__qualname__
        return make, arguments, state, *others


def _make_cached_property(function: Any, name: str | None) -> Any:
    made = cached_property(function)
    made.attrname = name
    return made


def _name_here(cls: type) -> str:
    name = None if _current is None else _current.name_of(cls)
    return name or _driver_name(cls)


# -- msgspec's structs -------------------------------------------------------------------------------------------------
# Their fields are known to the class only, so it has to be made again. Annotations and methods may refer to the class
# itself and are set afterwards; msgspec evaluates annotations when a decoder is made.

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


def _make_struct(
    kind: type,
    name: str,
    bases: tuple[type, ...],
    names: dict[str, Any],
    own: list[str],
    plain: dict[str, Any],
    made: dict[str, Any],
    options: dict[str, Any],
    tracker: str | None,
) -> type:
    body = {**names, "__annotations__": dict.fromkeys(own, object), **plain}
    body |= {each: msgspec.field(default_factory=factory) for each, factory in made.items()}
    cls = new_class(name, bases, {"metaclass": kind, **options}, lambda namespace: namespace.update(body))
    found: type = internals._lookup_class_or_track(tracker, cls)
    return found


def _set_attributes(cls: type, state: dict[str, Any]) -> None:
    for name, value in state.items():
        type.__setattr__(cls, name, value)
