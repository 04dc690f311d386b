"""The bases of one operator by key groups: which of them a block consists of, and which a new one replaces.

A base belongs to a run of key groups, not to a block. A split or join of blocks therefore changes no base: a block
reads its key groups in the bases that have them, until it is merged itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from penstock.checkpoint.manifest import BaseHandle


class Part(NamedTuple):
    """A run of key groups and its base, or None if it has no base yet."""

    groups: range
    base: BaseHandle | None


class BaseRuns:
    """The bases of one operator, as listed in a manifest."""

    def __init__(self, handles: Mapping[int, BaseHandle]) -> None:
        self._handles = handles

    @cached_property
    def _firsts(self) -> list[int]:
        # Only when needed: most visits find a base by the first key group of its block.
        return sorted(self._handles)

    def parts(self, groups: range) -> list[Part]:
        """Return the parts that these key groups consist of, in ascending order. They cover all of the key groups."""
        exact = self._handles.get(groups.start)
        if exact is not None and exact.end == groups.stop:
            # Almost always: a block whose base was written since the blocks last changed.
            return [Part(groups, exact)]
        parts: list[Part] = []
        start = groups.start
        for place in range(max(0, bisect_right(self._firsts, start) - 1), len(self._firsts)):
            first = self._firsts[place]
            if first >= groups.stop:
                break
            handle = self._handles[first]
            if handle.end <= start:
                continue
            if first > start:
                parts.append(Part(range(start, first), None))
                start = first
            stop = min(handle.end, groups.stop)
            parts.append(Part(range(start, stop), _share(handle, first, stop - start)))
            start = stop
        if start < groups.stop:
            parts.append(Part(range(start, groups.stop), None))
        return parts

    def cover(self, groups: range, checkpoint: int = 0) -> bool:
        """Return whether all of these key groups have a base as of this checkpoint or a later one."""
        exact = self._handles.get(groups.start)
        if exact is not None and exact.end >= groups.stop:
            return exact.id >= checkpoint
        start, place = groups.start, bisect_right(self._firsts, groups.start) - 1
        while start < groups.stop:
            if not 0 <= place < len(self._firsts):
                return False
            first = self._firsts[place]
            handle = self._handles[first]
            if not first <= start < handle.end or handle.id < checkpoint:
                return False
            start, place = handle.end, place + 1
        return True

    def replaced(self, newer: Mapping[int, BaseHandle]) -> dict[int, BaseHandle]:
        """Return the bases after newer ones have taken over their key groups. Handles that stay whole are shared."""
        after = dict(newer)
        taken = BaseRuns(newer)
        for first in self._firsts:
            handle = self._handles[first]
            for groups, base in taken.parts(range(first, handle.end)):
                if base is None:
                    rest = _share(handle, first, len(groups))
                    after[groups.start] = rest if rest.end == groups.stop else replace(rest, end=groups.stop)
        return dict(sorted(after.items()))


def _share(handle: BaseHandle, first: int, groups: int) -> BaseHandle:
    """Return the handle of some of the key groups of a base that starts at `first`."""
    length = handle.end - first
    return handle if groups == length else replace(handle, size=-(-handle.size * groups // length))
