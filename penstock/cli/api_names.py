"""PyFlink's names as Penstock has them: what a name, or a member of a class, stands for here, and how it differs."""

from __future__ import annotations

import importlib
import inspect
from enum import StrEnum
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from penstock.absent import ALTERNATIVES, ALTERNATIVES_OF_OLDER, AbsentMember
from penstock.compatibility import ACCEPTED, DIFFERS, SAME_RESULTS
from penstock.errors import PenstockError

ROOTS = ("pyflink", "penstock")
_API = (
    "common",
    "datastream",
    "datastream.connectors",
    "datastream.connectors.file_system",
    "datastream.connectors.kafka",
    "datastream.functions",
    "datastream.state",
    "datastream.window",
    "metrics",
)
_NO_SUCH_NAME = "Penstock has no such name."
_OLDER_OR_ABSENT = ALTERNATIVES_OF_OLDER | ALTERNATIVES
WITHOUT_EFFECT = {name: f"{why[:1].upper()}{why[1:].rstrip('.')}." for names, why in ACCEPTED for name in names.split()}
"""Why a call has no effect, by name or member."""


class Status(StrEnum):
    """How a name or setting that a program uses fares here."""

    ABSENT = "absent"
    REFUSED = "refused"
    DIFFERS = "differs"
    NOTED = "noted"
    """The results are the same."""
    ACCEPTED = "accepted"
    """It has no effect."""


class Remark(NamedTuple):
    """What there is to say about a name, a member or a setting."""

    status: Status
    text: str


class Found(NamedTuple):
    """What a name stands for here; None if it is absent."""

    value: Any
    remark: Remark | None


def module_of(path: str) -> str | None:
    """Return a module below Penstock's root for one of either root, such as `common.time`; None for other modules."""
    root, _, rest = path.partition(".")
    return rest if root in ROOTS else None


def find_module(module: str) -> Found:
    """Find a module below the root, such as `datastream.window`."""
    try:
        return Found(importlib.import_module(f"penstock.{module}" if module else "penstock"), None)
    except ImportError as error:
        return Found(None, Remark(Status.ABSENT, _text_of_module(module) or _said(error)))


def find_name(module: str, name: str) -> Found:
    """Find a name that a program imports from a module below the root."""
    home = find_module(module)
    if home.value is None:
        return Found(None, Remark(Status.ABSENT, ALTERNATIVES.get(name) or home.remark.text if home.remark else ""))
    try:
        value = getattr(home.value, name)
    except AttributeError:
        inner = find_module(f"{module}.{name}" if module else name)
        if inner.value is not None:
            return inner
        return Found(None, Remark(Status.ABSENT, _OLDER_OR_ABSENT.get(name) or _elsewhere(name)))
    return Found(value, remark_on(name))


def _elsewhere(name: str) -> str:
    """Say where Penstock has a name that PyFlink's module only imports itself."""
    home = next((path for path in _API if name in importlib.import_module(f"penstock.{path}").__all__), None)
    return _NO_SUCH_NAME if home is None else f"Import it from penstock.{home}."


def find_member(owner: Any, name: str) -> Found:
    """Find a member of a class or module of Penstock's."""
    if isinstance(owner, ModuleType):
        return find_name(owner.__name__.partition(".")[2], name)
    static = inspect.getattr_static(owner, name, None)
    if isinstance(static, AbsentMember):
        return Found(None, Remark(Status.ABSENT, static.text))
    if static is None:
        is_ours = owner.__module__.startswith("penstock.") and not name.startswith("_")
        is_absent = is_ours and not _is_open(owner) and not _is_attribute(owner, name)
        return Found(None, Remark(Status.ABSENT, _NO_SUCH_NAME) if is_absent else None)
    for base in owner.__mro__:
        remark = remark_on(f"{base.__qualname__}.{name}")
        if remark is not None:
            return Found(static, remark)
    return Found(static, None)


def _is_open(owner: type) -> bool:
    """Return whether instances have members that their class does not define: fields of rows, attributes of results."""
    return hasattr(owner, "__getattr__") or "__getattribute__" in vars(owner)


def _is_attribute(owner: type, name: str) -> bool:
    """Return whether instances get this attribute: a declared field, or one that the constructor sets."""
    return any(
        name in vars(base).get("__annotations__", {})
        or name in getattr(getattr(base, "__init__", None), "__code__", _is_attribute.__code__).co_names
        for base in owner.__mro__
    )


def remark_on(name: str) -> Remark | None:
    """Return the remark on a name or member that exists."""
    if name in WITHOUT_EFFECT:
        return Remark(Status.ACCEPTED, WITHOUT_EFFECT[name])
    if name in DIFFERS:
        text = DIFFERS[name]
        status = Status.NOTED if name in SAME_RESULTS else Status.DIFFERS
        return Remark(status, f"{text[:1].upper()}{text[1:]}.")
    return None


def find_distinctive(member: str) -> tuple[str, Remark] | None:
    """Return the member and the remark if a member can only be this one, whatever object it belongs to.

    Args:
        member: A name such as `set_buffer_timeout`. Names of one word are too common to tell.
    """
    if "_" not in member.strip("_") or member.startswith("__"):
        return None
    return _distinctive().get(member)


@cache
def _distinctive() -> dict[str, tuple[str, Remark]]:
    remarks: dict[str, dict[str, Remark]] = {}
    for path, text in _OLDER_OR_ABSENT.items():
        _add(remarks, path, Remark(Status.ABSENT, text))
    for path in (*DIFFERS, *WITHOUT_EFFECT):
        remark = remark_on(path)
        if remark is not None:
            _add(remarks, path, remark)
    owners = _owners()
    return {
        member: (path if len(by_path) == 1 else f"….{member}", remark)
        for member, by_path in remarks.items()
        for path, remark in (next(iter(by_path.items())),)
        if owners.get(member, set()) <= {path.rpartition(".")[0] for path in by_path}
    }


def _add(remarks: dict[str, dict[str, Remark]], path: str, remark: Remark) -> None:
    owner, _, member = path.rpartition(".")
    if owner[:1].isupper() and "(" not in path:
        remarks.setdefault(member, {})[path] = remark


def _owners() -> dict[str, set[str]]:
    """Return the public classes that have a member, by member."""
    found: dict[str, set[str]] = {}
    for cls in public_classes().values():
        for base in cls.__mro__:
            for member, value in vars(base).items():
                if not isinstance(value, AbsentMember):
                    found.setdefault(member, set()).add(base.__qualname__)
    return found


@cache
def public_classes() -> dict[str, type]:
    """Return the classes of the API by name."""
    modules = [importlib.import_module(f"penstock.{name}") for name in (*_API, "common.watermark_strategy")]
    return {
        value.__name__: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and not name.startswith("_")
    }


def result_of(function: Any, owner: type | None) -> type | None:
    """Return the class of what a function returns, by its annotation; None if it does not say."""
    function = inspect.unwrap(getattr(function, "__func__", None) or getattr(function, "fget", None) or function)
    return class_named(getattr(function, "__annotations__", {}).get("return"), function, owner)


def parameters_of(function: Any, owner: type) -> list[type | None]:
    """Return the classes of a function's parameters in order, without `self`."""
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    names = code.co_varnames[1 : code.co_argcount]
    return [class_named(function.__annotations__.get(name), function, owner) for name in names]


def class_named(annotation: Any, function: Any, owner: type | None = None) -> type | None:
    """Return the class that an annotation of a function names."""
    if isinstance(annotation, type):
        return annotation
    if not isinstance(annotation, str):
        return None
    name = annotation.strip("'\"").partition("|")[0].partition("[")[0].strip().rpartition(".")[2]
    if name == "Self":
        return owner
    found = getattr(function, "__globals__", {}).get(name) or public_classes().get(name)
    if found is None and owner is not None:
        found = next((vars(base)[name] for base in owner.__mro__ if name in vars(base)), None)
    return found if isinstance(found, type) else None


def _text_of_module(module: str) -> str | None:
    """Return the alternative to an absent module, or to the closest package around it."""
    while module:
        if module in ALTERNATIVES:
            return ALTERNATIVES[module]
        module = module.rpartition(".")[0]
    return None


def _said(error: ImportError) -> str:
    return str(error) if isinstance(error, PenstockError) else "Penstock has no such module."
