"""Make the program's own classes available in every process of a job.

A task can import classes from modules. It cannot import a class from the program's own file, which is `__main__` only
in the driver, nor a class defined inside a function. The driver therefore pickles these classes by value, once per job
(`penstock.common.class_collector`). Everything else refers to them by name: functions, declared types, records and
stored values. A class from the program's file is `__main__.Order`, a name any pickle understands; `program_class` looks
up the others.

A process that reads any of these enters the program first (`enter_program`). From then on `__main__` contains the
classes, and each exists once, whichever operator, source or stored value refers to it. A restarted program, in a new
process, finds its own classes under the names it stored.
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
    """A pickle refers to a class that the program does not define.

    Operator action: define the class under the name that the message gives, or restore without the state that needs it.
    """


class Shipped(msgspec.Struct, array_like=True, kw_only=True):
    """A program's classes, serialized."""

    modules: list[str]
    """The names of the program's own modules: `__main__`, and those registered for pickling by value."""
    names: list[str]
    """The names of the classes that no module contains."""
    classes: bytes
    """The classes of each module by attribute, and the others by name; one pickle, because they refer to each other."""
    annotated: dict[str, dict[str, bytes]]
    """Other objects that annotations of these classes refer to, by module and name; each a pickle."""
    rest: bytes
    """The other classes of `__main__`, by attribute, for records and stored values that refer to them."""


_Outside = tuple["Program | None", dict[str, ModuleType | None]]
"""A process's program before another one was entered, and the modules that the other one shadowed."""


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
            """Whether objects look the same inside and outside the program."""
            self._names = {cls: name for name, cls in self._classes.items()}
            for module, attributes in held.items():
                vars(self.modules[module]).update(attributes)
            for module, pickles in parts.annotated.items():
                for name, data in pickles.items():
                    # An object that cannot be imported here is only missing if the annotation is evaluated.
                    with suppress(Exception):
                        vars(self.modules[module])[name] = pickle.loads(data)

    def enter(self) -> None:
        """Make this the program of the process."""
        global _current
        _current = self
        sys.modules.update(self.modules)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Enter the program for the duration of a `with` block, in a process that is also the driver."""
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
        """Look up an attribute that `__main__` lacks among the classes that no function of the program refers to."""
        main, why = vars(self.modules[MAIN]), ""
        if self._rest and not name.startswith("__"):
            rest, self._rest = self._rest, b""
            try:
                with self.entered():
                    main.update(pickle.loads(rest))
            except Exception as error:  # unpickling runs arbitrary code
                why = f"; reading its classes failed: {type(error).__name__}: {error}"
            if name in main:
                return main[name]
        raise AttributeError(f"module '__main__' has no attribute '{name}'{why}")


_current: Program | None = None
"""None in the driver, which has the original classes."""
_entering = threading.Lock()
_entered: list[tuple[Program, _Outside]] = []
"""The programs entered and not yet left, with the state before each. Threads can leave in a different order."""


def _outside(program: Program) -> _Outside:
    return _current, {name: sys.modules.get(name) for name in program.modules}


def _leave(program: Program) -> None:
    global _current
    place = max(place for place, (entered, _) in enumerate(_entered) if entered is program)
    _, outside = _entered.pop(place)
    if place < len(_entered):
        # Another thread entered in the meantime: when it leaves, it restores the state from before this one entered.
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
    """Make the classes of a job's program available to this process, unless they already are."""
    if _current is None or _current.shipped != shipped:
        Program(shipped).enter()


def program_class(name: str) -> type:
    """Return a class that no module contains. Called by pickles."""
    found = _driver_classes.get(name) if _current is None else _current.find(name)
    if found is not None:
        return found
    module, _, qualname = name.partition(":")
    held = attribute_at(sys.modules.get(module), qualname)
    if isinstance(held, type):
        # When the pickle was written, the module contained a later definition of the class.
        return held
    raise NoSuchClass(
        f"A stored object has class {qualname} of {module}, which the program does not define.",
        fix="Define the class where it was and use it in the program, or start without the state that contains it.",
    )


def attribute_at(holder: Any, path: str) -> Any:
    """Return the attribute at the end of a dotted path, or None if it does not exist."""
    for name in path.split("."):
        holder = getattr(holder, name, None)
    return holder


def driver_name(cls: type) -> str:
    """Return the name of a class that no module contains. Classes with the same name are numbered in order."""
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
    """Return the name by which pickles of this process refer to a class that no module contains."""
    name = None if _current is None else _current.name_of(cls)
    return name or driver_name(cls)


def known_driver_name(cls: type) -> str | None:
    """Return the name that `driver_name` assigned to a class, or None if it has not been called for it."""
    return _driver_names.get(cls)


def current_program() -> Program | None:
    """Return the program that this process has entered; None in the driver."""
    return _current


# -- called by pickles -------------------------------------------------------------------------------------------------
# Stored pickles refer to these functions and to `program_class`: do not rename or move them.


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
