"""The program's own classes, in every process of a job.

A task can import what modules hold. It cannot import a class of the program's own file, which is `__main__` only in the
driver, nor a class that a function defines. The driver therefore pickles these classes by value, once for a job
(`penstock.common.class_collector`). Everything else refers to them by name: functions, declared types, records and
stored values. A class of the program's file is `__main__.Order`, which any pickle understands; the others are found by
`program_class`.

A process that reads any of these enters the program first (`enter_program`). Then `__main__` holds the classes, and
each exists once, whichever operator, source or stored value names it. A program that is started again, in a new
process, finds its own classes under the names that it stored.
"""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from types import ModuleType, new_class
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec
from cloudpickle import cloudpickle as internals

from penstock.errors import PenstockError

__all__ = [
    "MAIN",
    "NoSuchClass",
    "Program",
    "Shipped",
    "attribute_at",
    "current_program",
    "driver_name",
    "enter_program",
    "known_driver_name",
    "name_here",
    "program_class",
]

MAIN = "__main__"


class NoSuchClass(PenstockError):
    """A pickle names a class that the program does not have."""


class Shipped(msgspec.Struct, array_like=True, kw_only=True):
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
        parts = msgspec.msgpack.decode(shipped, type=Shipped)
        self.modules = {name: ModuleType(name) for name in parts.modules}
        vars(self.modules[MAIN])["__getattr__"] = self._find_in_rest
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
        main, why = vars(self.modules[MAIN]), ""
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
    held = attribute_at(sys.modules.get(module), qualname)
    if isinstance(held, type):
        # When the pickle was written, the module held a later definition of the class.
        return held
    raise NoSuchClass(
        f"A stored object is of class {qualname} of {module}, which the program does not have.",
        fix="Define the class where it was, and use it in the program; or start without the state that holds it.",
    )


def attribute_at(holder: Any, path: str) -> Any:
    """The attribute at the end of a dotted path; None if there is none."""
    for name in path.split("."):
        holder = getattr(holder, name, None)
    return holder


def driver_name(cls: type) -> str:
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


def name_here(cls: type) -> str:
    """The name by which pickles of this process refer to a class that no module holds."""
    name = None if _current is None else _current.name_of(cls)
    return name or driver_name(cls)


def known_driver_name(cls: type) -> str | None:
    """The name that `driver_name` gave a class; None if it was not asked for this one."""
    return _driver_names.get(cls)


def current_program() -> Program | None:
    """The program that this process has entered; None in the driver."""
    return _current


# -- called by pickles -------------------------------------------------------------------------------------------------
# Stored pickles name these functions, and `program_class`: they keep their names and this module.


def _make_cached_property(function: Any, name: str | None) -> Any:
    made = cached_property(function)
    made.attrname = name
    return made


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
