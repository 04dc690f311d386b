"""An absent name of PyFlink raises with its alternative, in every way a program can ask for it.

`import penstock.table` and `from penstock.datastream import SourceFunction` raise AbsentImport;
`datastream.SourceFunction` and `env.add_classpaths(...)` raise AbsentAttribute, so that `hasattr` says no. A name that
is there costs nothing: Python comes here only after it has found no other.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import NoReturn

from penstock.compatibility import ABSENT, OLDER
from penstock.errors import PenstockError

ALTERNATIVES = {name: text for names, text in ABSENT for name in names.split()}
"""What to use instead, by module (`datastream.utils`), name (`SourceFunction`) or member (`DataStream.cache`)."""
ALTERNATIVES_OF_OLDER = {name: text for names, text in OLDER for name in names.split()}
"""The same, for names of earlier versions and other languages."""


class AbsentName(PenstockError):
    """PyFlink has the name and Penstock has not; the message says what to use instead."""


class AbsentImport(AbsentName, ImportError):
    """An import of a PyFlink name that Penstock does not have."""


class AbsentAttribute(AbsentName, AttributeError):
    """A use of a PyFlink attribute that Penstock does not have."""


def explain_absent(module_name: str) -> None:
    """Called by a module that stands for one of PyFlink's, when all its names are there."""
    module = sys.modules[module_name]

    def __getattr__(name: str) -> NoReturn:
        text = _alternative(f"{module_name}.{name}")
        if text is not None:
            raise AbsentAttribute(_message(f"{module_name}.{name}", text))
        raise AttributeError(f"module {module_name!r} has no attribute {name!r}", name=name, obj=module)

    # Not written into the module as a function: type checkers would then believe that it has every name.
    module.__dict__["__getattr__"] = __getattr__
    # `from module import name` forgets an AttributeError, but first looks for a submodule of that name, and so in
    # the finder below, if the module has a path.
    module.__dict__.setdefault("__path__", [])
    for member, text in (ALTERNATIVES | ALTERNATIVES_OF_OLDER).items():
        owner, _, name = member.rpartition(".")
        if owner[:1].isupper():
            found = _class_at(module, owner)
            if found is not None:
                _mark(found, name, text)


def explain_absent_members(cls: type, pyflink_name: str) -> None:
    """For a class that has another name here than in PyFlink."""
    for member, text in ALTERNATIVES.items():
        owner, _, name = member.rpartition(".")
        if owner == pyflink_name:
            _mark(cls, name, text)


def _class_at(module: ModuleType, path: str) -> type | None:
    found: object = module
    for part in path.split("."):
        found = vars(found).get(part)
        if not isinstance(found, type):
            return None
    return found if isinstance(found, type) else None


def _mark(cls: type, name: str, text: str) -> None:
    if inspect.getattr_static(cls, name, cls) is cls:
        setattr(cls, name, AbsentMember(name, text))


class AbsentMember:
    """Stands in a class for a member that is absent. A subclass or an object may define it."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AbsentAttribute(_message(f"{owner.__name__}.{self.name}", self.text))


class _Finder(MetaPathFinder):
    """Asked last, so only for what no other finder knows."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        text = _alternative(fullname)
        if text is not None:
            raise AbsentImport(_message(fullname, text))


def _alternative(fullname: str) -> str | None:
    root, _, module = fullname.partition(".")
    name = fullname.rpartition(".")[2]
    if root != "penstock":
        return None
    if module in ALTERNATIVES:
        return ALTERNATIVES[module]
    return ALTERNATIVES.get(name) or ALTERNATIVES_OF_OLDER.get(name) if name[:1].isupper() else None


def _message(name: str, text: str) -> str:
    return f"{name}: {text} (docs/migrate/compatibility.md has every name of PyFlink.)"


sys.meta_path.append(_Finder())
