"""The modules that tasks import when they read a graph."""

from __future__ import annotations

import pickletools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.common.program import MAIN, Shipped
from penstock.graph.physical import PhysicalGraph, pack

_PROVIDED = frozenset({MAIN, "penstock", "pyspark", "cloudpickle", *sys.stdlib_module_names})
"""Packages that are checked otherwise, or that every Python has."""
_PICKLE = b"\x80\x05"
_MODULE = "<module>"
"""Stands for cloudpickle's function that imports a module; the name of the module follows."""


def referenced_modules(graph: PhysicalGraph) -> list[str]:
    """Return the modules, apart from Python's and Penstock's own, that the functions and types of a graph refer to.

    Modules that these modules import, or that a function imports when it runs, are not included.
    """
    found = set(_in_pickle(pack(graph)))
    if graph.program:
        shipped = msgspec.msgpack.decode(graph.program, type=Shipped)
        for data in (shipped.classes, *(each for module in shipped.annotated.values() for each in module.values())):
            found.update(_in_pickle(data))
    return sorted(name for name in found if name.partition(".")[0] not in _PROVIDED and name in sys.modules)


def _in_pickle(data: bytes) -> Iterator[str]:
    """Yield the names of modules that a pickle refers to, with those of the pickles inside it. Runs no code of it."""
    memo: list[str] = []
    texts = ["", ""]
    operations: Iterable[tuple[Any, Any, Any]] = pickletools.genops(data)
    for opcode, argument, _ in operations:
        match opcode.name:
            case "SHORT_BINUNICODE" | "BINUNICODE" | "BINUNICODE8":
                texts.append(argument)
            case "BINGET" | "LONG_BINGET":
                texts.append(memo[argument])
            case "MEMOIZE":
                memo.append(texts[-1])
                continue
            case "STACK_GLOBAL":
                yield texts[-2]
                texts.append(_MODULE if texts[-1] == "subimport" else "")
            case "SHORT_BINBYTES" | "BINBYTES" | "BINBYTES8":
                if argument.startswith(_PICKLE):
                    yield from _in_pickle(argument)
                texts.append("")
            case _:
                continue
        if texts[-2] == _MODULE:
            yield texts[-1]
