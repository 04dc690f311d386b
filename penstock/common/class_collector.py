"""Collect the classes a program refers to while its graph is built (see `penstock.common.program`)."""

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
"""Limit for classes that only stored values can refer to. Anything larger is data that their methods reference."""


class ClassCollector:
    """Collects the classes that parts of a program refer to while those parts are pickled. Lives in the driver.

    The program's own modules are `__main__`, `modules`, and those registered with cloudpickle for pickling by value.
    """

    def __init__(self, modules: Iterable[str] = ()) -> None:
        self._modules = frozenset({MAIN, *modules, *cloudpickle.list_registry_pickle_by_value()})
        self._classes: dict[type, None] = {}

    def dumps(self, thing: Any) -> bytes:
        """Pickle a part of the program. Propagates the error if it, or a class it refers to, cannot be pickled."""
        met: dict[type, None] = {}
        data = ClassPickler.dumps(thing, self._modules, lambda cls: met.setdefault(cls) is None)
        self.add(met)
        return data

    def pickles(self, thing: Any) -> bool:
        """Return whether `thing` can be pickled together with all classes it refers to."""
        try:
            ClassPickler.dumps(thing, self._modules, never)
        except Exception:  # pickling runs arbitrary code
            return False
        return True

    def add(self, classes: Iterable[type]) -> None:
        """Add the classes that a task cannot import, together with everything they refer to."""
        new = [cls for cls in classes if cls not in self._classes and travels_by_value(cls, self._modules)]
        if new:
            # A nested class is found through its outer class.
            outer = [
                attribute_at(sys.modules[cls.__module__], cls.__qualname__.split(".")[0]) for cls in self._held(new)
            ]
            met: dict[type, None] = {}
            ClassPickler.dumps((new, outer), self._modules, lambda cls: met.setdefault(cls) is not None, tracked=False)
            self._classes.update(met)

    def pack(self) -> bytes:
        """Serialize the collected classes for `enter_program`."""
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
        """Add the classes that string annotations refer to. Return the other objects they refer to, by module."""
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
                        # A class that cannot be pickled is only missing if the annotation is evaluated.
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
        """Pickle the classes of `__main__` that no part of the program refers to, except those that do not pickle."""
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
    """Return the names used in those annotations of a class that are still strings."""
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
