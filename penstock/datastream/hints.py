"""Types derived from the return annotations of user functions, for operators without a declared type.

A function without an annotation, or with one that does not determine a serializer (Any, an unresolvable name, a bare
``list``), has no derived type. This is not an error.
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
    """Return the type of the function's result, if all the given methods agree on it."""
    return _common([_hinted(_annotation(function, method)) for method in methods])


def yielded(function: Any, *methods: str) -> Hinted | None:
    """Return the type of each result of a function that yields or returns several. Side outputs are ignored."""
    return _common([_hinted(_each(_annotation(function, method))) for method in methods])


def mapped(function: Any, *methods: str) -> Hinted | None:
    """Return the same as ``returned``, but ignore None, which is not emitted."""
    return _common([_hinted(_without(_annotation(function, method), NoneType)) for method in methods])


def with_state(function: Any) -> tuple[Hinted | None, Hinted | None, Hinted | None]:
    """Return the types of the result, of each of several results, and of the state.

    The function returns (result, new state). The state type is taken from the return annotation, otherwise from the
    state parameter. None, which means no state, is ignored in both.
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
    except (TypeError, ValueError):  # a C function might have no signature
        return None
    return _annotation(function, "", names[1]) if len(names) > 1 else None


class _Found(NamedTuple):
    """An annotation of a function, or part of one."""

    hint: Any
    function: FunctionType
    origin: str

    def of(self, hint: Any) -> _Found:
        return self._replace(hint=hint)


def _annotation(function: Any, method: str, name: str = "return") -> _Found | None:
    """Return the resolved annotation of the function that will be called, or None."""
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
    """Return an annotation with its names resolved, including those of the enclosing function, or Any if that fails."""
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
    except Exception:  # an annotation can be any expression; one that fails to evaluate determines no type
        return Any


def _inner(function: FunctionType) -> FunctionType:
    """Return the function below its decorators, which holds the annotations as written."""
    inner = inspect.unwrap(function)
    return inner if isinstance(inner, FunctionType) else function


def _each(found: _Found | None) -> _Found | None:
    """Return the type of one result, given the annotation of several."""
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
    return found.of(typing.Union[tuple(members)]) if members else None  # noqa: UP007  built at run time


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
    except Exception:  # an annotation can be any class; one without a serializer is not an error here
        return None
    node = serializer.node
    # If decoding a value runs user code, each value must be decoded to be validated, which costs more than pickle.
    return None if node.proof or holds_itself(node) else Hinted(found.hint, found.origin)


def _common(hinted: list[Hinted | None]) -> Hinted | None:
    return hinted[0] if all(each == hinted[0] for each in hinted) else None
