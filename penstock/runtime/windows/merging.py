"""The windows of a key, for windows that merge, and the state window that holds the contents of each.

When windows merge, the contents of one of them stay in place and the contents of the others move there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.runtime.windows.assigners import MergingWindowAssigner
from penstock.runtime.windows.window import NAME_LENGTH, WindowSerializer

Merge = Callable[[Any, list[Any], Any, list[Any]], None]
"""Called for a merge with the new window, the merged windows, the one that holds the contents, and those that move."""


class MergingWindowSet:
    """The windows of one key, stored as `window · state window` pairs. `dump` returns the value to store."""

    def __init__(self, assigner: MergingWindowAssigner[Any, Any], serializer: WindowSerializer, stored: bytes) -> None:
        self._assigner = assigner
        self._serializer = serializer
        self.changed = False
        decode = serializer.decode
        names = [stored[start : start + NAME_LENGTH] for start in range(0, len(stored), NAME_LENGTH)]
        self._states: dict[Any, Any] = {
            decode(name): decode(state) for name, state in zip(names[::2], names[1::2], strict=True)
        }

    def dump(self) -> bytes:
        encode: Callable[[Any], bytes] = self._serializer.encode
        return b"".join(sorted(encode(window) + encode(state) for window, state in self._states.items()))

    def windows(self) -> list[Any]:
        return list(self._states)

    def state_window(self, window: Any) -> Any:
        """Return the window under whose name the contents of `window` are stored; None if the window is unknown."""
        return self._states.get(window)

    def retire(self, window: Any) -> None:
        del self._states[window]
        self.changed = True

    def add(self, window: Any, merge: Merge) -> Any:
        """Add a window, merge windows as necessary, and return the window that now contains it."""
        result = window
        found = _Groups()
        self._assigner.merge_windows([*self._states, *([] if window in self._states else [window])], found)
        encode = self._serializer.encode
        merged_in = False
        for covering, parts in found.groups:
            if window in parts:
                result, merged_in = covering, True
            present = sorted((part for part in parts if part in self._states), key=encode)
            if present == [covering]:
                continue
            self.changed = True
            states = [self._states.pop(part) for part in present]
            self._states[covering] = states[0]
            merge(covering, [part for part in present if part != covering], states[0], states[1:])
        if not merged_in and window not in self._states:
            self.changed = True
            self._states[window] = window
        return result


class _Groups(MergingWindowAssigner.MergeCallback[Any]):
    def __init__(self) -> None:
        self.groups: list[tuple[Any, set[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.groups.append((merge_result, set(to_be_merged)))
