"""The classes that the parts of a program name, collected while the graph is built (see `penstock.common.program`)."""

from __future__ import annotations

import io
import pickle
import sys
import typing
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import cloudpickle
import msgspec

from penstock.common.class_pickling import ClassPickler, is_held, never, travels_by_value
from penstock.common.program import MAIN, Shipped, attribute_at, driver_name

__all__ = ["ClassCollector"]

_MOST_BYTES = 1 << 20
"""Of classes that only stored values may name. More than this is data that their methods refer to."""


class ClassCollector:
    """Collects the classes that the parts of a program name, while these are pickled. Lives in the driver.

    Besides `__main__`, `modules` and those registered with Cloudpickle to be pickled by value are the program's own.
    """

    def __init__(self, modules: Iterable[str] = ()) -> None:
        self._modules = frozenset({MAIN, *modules, *cloudpickle.list_registry_pickle_by_value()})
        self._classes: dict[type, None] = {}

    def dumps(self, thing: Any) -> bytes:
        """Pickle a part of the program. Raises what prevents it, or a class that it names, from being pickled."""
        met: dict[type, None] = {}
        data = ClassPickler.dumps(thing, self._modules, lambda cls: met.setdefault(cls) is None)
        self.add(met)
        return data

    def pickles(self, thing: Any) -> bool:
        """Whether `thing` can be pickled with all classes that it names."""
        try:
            ClassPickler.dumps(thing, self._modules, never)
        except Exception:  # any failure means the same here: it does not pickle
            return False
        return True

    def add(self, classes: Iterable[type]) -> None:
        """Let these travel, if they are classes that a task cannot import, with all that they name."""
        new = [cls for cls in classes if cls not in self._classes and travels_by_value(cls, self._modules)]
        if new:
            # A class within a class is found through the outer one.
            outer = [
                attribute_at(sys.modules[cls.__module__], cls.__qualname__.split(".")[0]) for cls in self._held(new)
            ]
            met: dict[type, None] = {}
            ClassPickler.dumps((new, outer), self._modules, lambda cls: met.setdefault(cls) is not None, tracked=False)
            self._classes.update(met)

    def pack(self) -> bytes:
        """The classes, for `enter_program`."""
        annotated = self._add_annotated()
        held: dict[str, dict[str, type]] = {}
        others: dict[str, type] = {}
        for cls in self._classes:
            if not is_held(cls, self._modules):
                others[driver_name(cls)] = cls
            elif "." not in cls.__qualname__:
                held.setdefault(cls.__module__, {})[cls.__qualname__] = cls
        shipped = Shipped(
            modules=sorted(self._modules),
            names=list(others),
            classes=ClassPickler.dumps((held, others), self._modules, never, tracked=False),
            annotated={module: self._each_dumped(things) for module, things in annotated.items()},
            rest=self._rest_of_main(),
        )
        return msgspec.msgpack.encode(shipped)

    def _held(self, classes: Iterable[type]) -> Iterator[type]:
        return (cls for cls in classes if is_held(cls, self._modules))

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
                    if isinstance(thing, type) and travels_by_value(thing, self._modules):
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
                dumped[name] = ClassPickler.dumps(thing, self._modules, self._classes.__contains__)
        return dumped

    def _rest_of_main(self) -> bytes:
        """The classes of `__main__` that no part of the program names. Those that do not pickle are left out."""
        candidates = {
            name: value
            for name, value in vars(sys.modules[MAIN]).items()
            if isinstance(value, type)
            and (value.__module__, value.__qualname__) == (MAIN, name)
            and value not in self._classes
        }
        for rest in (candidates, {name: cls for name, cls in candidates.items() if self._dump_rest({name: cls})}):
            if data := self._dump_rest(rest):
                return data
        return b""

    def _dump_rest(self, classes: dict[str, type]) -> bytes:
        try:
            file = _Bounded(_MOST_BYTES)
            ClassPickler(file, self._modules, self._classes.__contains__, tracked=False).dump(classes)
            return file.getvalue() if classes else b""
        except Exception:  # pickling runs arbitrary code
            return b""


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


class _Bounded(io.BytesIO):
    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Any) -> int:
        written = super().write(data)
        if self.tell() > self._most:
            raise pickle.PicklingError(f"more than {self._most} bytes")
        return written
