"""Errors for PyFlink names that Penstock lacks. Each error names the alternative.

``import penstock.table`` and ``from penstock.datastream import SourceFunction`` raise AbsentImport.
``datastream.SourceFunction`` and ``env.add_classpaths(...)`` raise AbsentAttribute, so ``hasattr`` returns False. Names
that exist pay no cost: Python consults these hooks only after regular lookup fails.
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
"""The alternative, by module (``datastream.utils``), name (``SourceFunction``) or member (``DataStream.cache``)."""
ALTERNATIVES_OF_OLDER = {name: text for names, text in OLDER for name in names.split()}
"""The same for names from older PyFlink versions and from Flink's Java API."""


class AbsentName(PenstockError):
    """A PyFlink name that Penstock does not have. The message names the alternative.

    Operator action: use the alternative.
    """


class AbsentImport(AbsentName, ImportError):
    """An import of a PyFlink name that Penstock does not have.

    Operator action: import the alternative that the message names; the compatibility table lists them all.
    """


class AbsentAttribute(AbsentName, AttributeError):
    """An access to a PyFlink attribute that Penstock does not have.

    Operator action: use the alternative that the message names; the compatibility table lists them all.
    """


def explain_absent(module_name: str) -> None:
    """Make absent names of a module raise with their alternative.

    A module that mirrors one of PyFlink's calls this at its end, once all its names are defined.

    Args:
        module_name: The ``__name__`` of the module.
    """
    module = sys.modules[module_name]

    def __getattr__(name: str) -> NoReturn:
        text = _alternative(f"{module_name}.{name}")
        if text is not None:
            raise AbsentAttribute(_message(f"{module_name}.{name}", text))
        raise AttributeError(f"module {module_name!r} has no attribute {name!r}", name=name, obj=module)

    # Set dynamically: with a `__getattr__` in the source, type checkers would accept every name.
    module.__dict__["__getattr__"] = __getattr__
    # `from module import name` discards the AttributeError and then looks for a submodule of that name. If the module
    # has a path, this lookup reaches the finder below.
    module.__dict__.setdefault("__path__", [])
    for member, text in (ALTERNATIVES | ALTERNATIVES_OF_OLDER).items():
        owner, _, name = member.rpartition(".")
        if owner[:1].isupper():
            found = _class_at(module, owner)
            if found is not None:
                _mark(found, name, text)


def explain_absent_members(cls: type, pyflink_name: str) -> None:
    """Make absent members raise with their alternative, in a class whose name differs from PyFlink's.

    Args:
        cls: The class in Penstock.
        pyflink_name: The name of the class in PyFlink.
    """
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
    """A descriptor that stands in for an absent class member. Subclasses and instances can define the member."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        # Keeps Sphinx from listing the member in the API reference.
        self.__doc__ = f"{text}\n\n:meta private:"

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AbsentAttribute(_message(f"{owner.__name__}.{self.name}", self.text))


class _Finder(MetaPathFinder):
    """A finder at the end of the path, called only for modules that no other finder finds."""

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
    return f"{name}: {text} (docs/migrate/compatibility.md lists every PyFlink name.)"


sys.meta_path.append(_Finder())
