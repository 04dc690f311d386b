"""Draws the execution plan as an SVG image: a column per level, a frame per chain, a box per operator."""

from __future__ import annotations

from html import escape
from typing import Any

_BOX_WIDTH, _BOX_HEIGHT = 190, 46
_GAP, _MARGIN = 12, 14
_COLUMN_GAP = 130
_CHARACTERS = 26
"""Number of characters of a name that fit into a box at its font size."""

_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1c2733 }
  .small { font-size: 10px; fill: #5b6b7a }
  .chain { fill: #f3f6f9; stroke: #b9c6d2; stroke-dasharray: 4 3 }
  .box { fill: #fff; stroke: #38618c; stroke-width: 1.2 }
  .source { stroke: #2d7d46 } .sink { stroke: #b0492c } .keyed { stroke-width: 2.4 }
  .edge { fill: none; stroke: #7d8e9e; stroke-width: 1.3; marker-end: url(#arrow) }
"""


def picture(plan: dict[str, Any]) -> str:
    """Return an SVG document for a plan from `plan_of`. A keyed operator has a thick frame."""
    nodes = {node["id"]: node for node in plan["nodes"]}
    boxes, frames, width, height = _layout(list(nodes.values()))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#7d8e9e"/></marker></defs>',
    ]
    parts += [
        f'<rect class="chain" x="{x}" y="{y}" width="{w}" height="{h}" rx="8"/>' for x, y, w, h in frames.values()
    ]
    for node in nodes.values():
        for before in node.get("predecessors", []):
            parts += _edge(boxes[before["id"]], boxes[node["id"]], before)
    parts += [part for node in nodes.values() for part in _box(node, *boxes[node["id"]])]
    return "\n".join([*parts, "</svg>", ""])


def _layout(
    nodes: list[dict[str, Any]],
) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int, int, int]], int, int]:
    """Return the corner of every box, the frame of every chain, and the width and height of the image."""
    boxes: dict[int, tuple[int, int]] = {}
    frames: dict[int, tuple[int, int, int, int]] = {}
    levels: dict[int, dict[int, list[int]]] = {}
    for node in nodes:
        levels.setdefault(node["level"], {}).setdefault(node["chain"], []).append(node["id"])
    frame_width = _BOX_WIDTH + 2 * _GAP
    height = 0
    for level, chains in sorted(levels.items()):
        x, y = _MARGIN + level * (frame_width + _COLUMN_GAP), _MARGIN
        for chain, members in sorted(chains.items()):
            frame_height = len(members) * (_BOX_HEIGHT + _GAP) + _GAP
            frames[chain] = x, y, frame_width, frame_height
            for place, member in enumerate(members):
                boxes[member] = x + _GAP, y + _GAP + place * (_BOX_HEIGHT + _GAP)
            y += frame_height + 2 * _GAP
        height = max(height, y)
    width = 2 * _MARGIN + (max(levels) + 1) * frame_width + max(levels) * _COLUMN_GAP
    return boxes, frames, width, height + _MARGIN


def _box(node: dict[str, Any], x: int, y: int) -> list[str]:
    kinds = ["box"]
    if node["pact"] != "Operator":
        kinds.append("source" if node["pact"] == "Data Source" else "sink")
    if node.get("keyed"):
        kinds.append("keyed")
    name = node["contents"]
    shown = name if len(name) <= _CHARACTERS else name[: _CHARACTERS - 1] + "…"
    parallelism = "Spark's partitions" if node["parallelism"] is None else f"parallelism {node['parallelism']}"
    return [
        f"<g><title>{escape(name)} (uid {escape(node['uid'])})</title>",
        f'<rect class="{" ".join(kinds)}" x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="5"/>',
        f'<text x="{x + 10}" y="{y + 19}">{escape(shown)}</text>',
        f'<text class="small" x="{x + 10}" y="{y + 35}">{parallelism}</text></g>',
    ]


def _edge(start: tuple[int, int], end: tuple[int, int], edge: dict[str, Any]) -> list[str]:
    label = edge["ship_strategy"].lower()
    if "side_output" in edge:
        label += f" · {edge['side_output']}"
    if start[0] == end[0]:
        x = start[0] + _BOX_WIDTH // 2
        if start[1] + _BOX_HEIGHT + _GAP == end[1]:
            return [f'<path class="edge" d="M{x} {start[1] + _BOX_HEIGHT}L{x} {end[1]}"/>']
        # Around the boxes between them, along the frame.
        left, top, bottom = start[0], start[1] + _BOX_HEIGHT // 2, end[1] + _BOX_HEIGHT // 2
        return [f'<path class="edge" d="M{left} {top}C{left - 9} {top} {left - 9} {bottom} {left} {bottom}"/>']
    x1, y1 = start[0] + _BOX_WIDTH, start[1] + _BOX_HEIGHT // 2
    x2, y2 = end[0], end[1] + _BOX_HEIGHT // 2
    bend = (x1 + x2) // 2
    return [
        f'<path class="edge" d="M{x1} {y1}C{bend} {y1} {bend} {y2} {x2} {y2}"/>',
        f'<text class="small" text-anchor="middle" x="{bend}" y="{(y1 + y2) // 2 - 5}">{escape(label)}</text>',
    ]
