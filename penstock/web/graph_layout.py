"""Places the chains of a job from left to right: one column per depth, ordered so that few edges cross."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

WIDTH = 230
"""Of a box."""
_GAP_X, _GAP_Y = 190, 26
_HEAD, _LINE = 46, 17
MOST_LINES = 5
"""Operators that a box lists. Further ones are counted."""


class Node(NamedTuple):
    """A box to place."""

    id: str
    inputs: Sequence[str]
    lines: int
    """Operators that it lists."""


class Box(NamedTuple):
    """A placed box."""

    x: int
    y: int
    height: int

    @property
    def middle(self) -> int:
        """The height at which edges begin."""
        return self.y + self.height // 2

    def entry(self, place: int, of: int) -> int:
        """Return the height at which one of several edges ends."""
        return self.y + self.height * (place + 1) // (of + 1)


class Layout(NamedTuple):
    """All boxes, and the size of the drawing."""

    boxes: dict[str, Box]
    width: int
    height: int


def layout(nodes: Sequence[Node]) -> Layout:
    """Place the nodes, which are in topological order."""
    depths: dict[str, int] = {}
    for node in nodes:
        depths[node.id] = max((depths[each] + 1 for each in node.inputs if each in depths), default=0)
    columns: list[list[Node]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for node in nodes:
        columns[depths[node.id]].append(node)
    _order(columns)
    heights = [sum(_height(node) + _GAP_Y for node in column) - _GAP_Y for column in columns]
    tallest = max(heights, default=0)
    boxes: dict[str, Box] = {}
    for place, (column, height) in enumerate(zip(columns, heights, strict=True)):
        y = (tallest - height) // 2
        for node in column:
            boxes[node.id] = Box(place * (WIDTH + _GAP_X), y, _height(node))
            y += _height(node) + _GAP_Y
    return Layout(boxes, max(0, len(columns) * (WIDTH + _GAP_X) - _GAP_X), tallest)


def _height(node: Node) -> int:
    return _HEAD + _LINE * min(node.lines, MOST_LINES + 1)


def _order(columns: list[list[Node]]) -> None:
    """Sort each column by the mean place of its neighbours, a few times in both directions."""
    followers: dict[str, list[str]] = {}
    for column in columns:
        for node in column:
            for each in node.inputs:
                followers.setdefault(each, []).append(node.id)
    inputs = {node.id: node.inputs for column in columns for node in column}
    for _ in range(3):
        for place in range(1, len(columns)):
            _sort(columns[place], inputs, _places(columns))
        for place in range(len(columns) - 2, -1, -1):
            _sort(columns[place], followers, _places(columns))


def _places(columns: list[list[Node]]) -> dict[str, float]:
    return {node.id: place / max(1, len(column)) for column in columns for place, node in enumerate(column)}


def _sort(column: list[Node], neighbours: Mapping[str, Sequence[str]], places: Mapping[str, float]) -> None:
    def mean(node: Node) -> float:
        near = [places[each] for each in neighbours.get(node.id, ()) if each in places]
        return sum(near) / len(near) if near else places[node.id]

    column.sort(key=mean)
