"""Types from the return annotations of users' functions, where no type was given.

A function without an annotation, or with one that says nothing that could be written (Any, an unresolvable name, a bare
`list`), has no such type, and that is no error.
"""

from __future__ import annotations

import collections
import functools
import inspect
import types
import typing
from collections import abc
from types import FunctionType, MethodType, NoneType
from typing import Any, NamedTuple

from penstock.runtime.operators import describe, method_of
from penstock.runtime.output_tag import OutputTag
from penstock.state.serializers import Hinted, holds_itself, serializer_for

_YIELDED = (abc.Iterator, abc.Iterable, abc.Generator)
_RETURNED = (*_YIELDED, abc.Collection, abc.Sequence, list, set, frozenset, collections.deque)


def returned(function: Any, *methods: str) -> Hinted | None:
    """The type of what the function gives; of all of them where it has several methods."""
    return _common([_hinted(_annotation(function, method)) for method in methods])


def yielded(function: Any, *methods: str) -> Hinted | None:
    """The type of each result of a function that yields them, or returns many. Side outputs are left out."""
    return _common([_hinted(_each(_annotation(function, method))) for method in methods])


def mapped(function: Any, *methods: str) -> Hinted | None:
    """As `returned`, where a None is no result."""
    return _common([_hinted(_without(_annotation(function, method), NoneType)) for method in methods])


def with_state(function: Any) -> tuple[Hinted | None, Hinted | None, Hinted | None]:
    """Of a function that gives (result, new state): the types of a result, of each of many results, of the state.

    The state's is what it returns or else what it takes, in both cases without None, which stands for no state.
    """
    found = _annotation(function, "")
    result = state = None
    if found is not None and typing.get_origin(found.hint) is tuple and len(typing.get_args(found.hint)) == 2:
        result, state = (found.of(part) for part in typing.get_args(found.hint))
    kept = _hinted(_without(state, NoneType))
    if kept is None:
        kept = _hinted(_without(_second_parameter(function), NoneType))
    return _hinted(result), _hinted(_each(result)), kept


def _second_parameter(function: Any) -> _Found | None:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a function of C may have no signature
        return None
    return _annotation(function, "", names[1]) if len(names) > 1 else None


class _Found(NamedTuple):
    """An annotation, or a part of one, of a function."""

    hint: Any
    function: FunctionType
    origin: str

    def of(self, hint: Any) -> _Found:
        return self._replace(hint=hint)


def _annotation(function: Any, method: str, name: str = "return") -> _Found | None:
    """The resolved annotation of what will be called; None if there is none."""
    called = method_of(function, method) if method else function
    while isinstance(called, functools.partial):
        called = called.func
    if not isinstance(called, (FunctionType, MethodType)):
        called = type(called).__call__
    if isinstance(called, MethodType):
        called = called.__func__
    if not isinstance(called, FunctionType) or name not in called.__annotations__:
        return None
    hint = _resolve(called, name)
    code = _inner(called).__code__
    return _Found(hint, called, f"{describe(called)} ({code.co_filename}:{code.co_firstlineno})")


def _resolve(function: FunctionType, name: str) -> Any:
    """One annotation with its names looked up, also those of the function around it; Any if that fails."""
    inner = _inner(function)
    around: dict[str, Any] = {}
    for variable, cell in zip(inner.__code__.co_freevars, inner.__closure__ or ()):
        try:
            around[variable] = cell.cell_contents
        except ValueError:  # not assigned yet
            pass
    holder = types.SimpleNamespace(__annotations__={name: function.__annotations__[name]})
    try:
        return typing.get_type_hints(holder, inner.__globals__, around, include_extras=True)[name]
    except Exception:  # an annotation may be any expression, and one that cannot be evaluated says nothing
        return Any


def _inner(function: FunctionType) -> FunctionType:
    """The function below its decorators, where its annotations were written."""
    inner = inspect.unwrap(function)
    return inner if isinstance(inner, FunctionType) else function


def _each(found: _Found | None) -> _Found | None:
    """What the annotation of many results says of one."""
    found = _without(found, NoneType)
    if found is None:
        return None
    kind, arguments = typing.get_origin(found.hint), typing.get_args(found.hint)
    kinds = _YIELDED if inspect.isgeneratorfunction(found.function) else (*_RETURNED, tuple)
    if kind not in kinds or not arguments:
        return None
    if kind is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
        return None
    members = [part for part in _members(arguments[0]) if not _is_side_output(part)]
    return found.of(typing.Union[tuple(members)]) if members else None  # noqa: UP007  made of what is there


def _is_side_output(hint: Any) -> bool:
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is not tuple or not arguments:
        return False
    return (typing.get_origin(arguments[0]) or arguments[0]) is OutputTag


def _without(found: _Found | None, left_out: type) -> _Found | None:
    if found is None:
        return None
    members = [part for part in _members(found.hint) if part is not left_out]
    return found.of(typing.Union[tuple(members)]) if members else None  # noqa: UP007  as above


def _members(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _hinted(found: _Found | None) -> Hinted | None:
    if found is None or found.hint is NoneType:
        return None
    try:
        serializer = serializer_for(found.hint)
    except Exception:  # a type that cannot be written is no error here, and any class may stand in an annotation
        return None
    node = serializer.node
    # Where reading a value runs the user's code, a value must be read to be trusted: dearer than a pickle.
    return None if node.proof or holds_itself(node) else Hinted(found.hint, found.origin)


def _common(hinted: list[Hinted | None]) -> Hinted | None:
    return hinted[0] if all(each == hinted[0] for each in hinted) else None
