"""Draw how penstock's packages import each other: `make graph` writes docs/internals/import-graph.svg.

The rows are the layers of the import contract in pyproject.toml, from the top to the bottom. An arrow runs from a
package to one that it imports, and its width grows with the number of modules that do. Arrows to the next row are
straight; those that pass rows run outside. Where a direct import also has a longer way round, the arrow is pale.
"""

from __future__ import annotations

import itertools
import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

import grimp

HERE = Path(__file__).parents[1]
TARGET = HERE / "docs" / "internals" / "import-graph.svg"

Edges = Counter[tuple[str, str]]
"""By importing and imported package, how many modules of the first import the second."""


class Size(NamedTuple):
    files: int
    lines: int


class Box(NamedTuple):
    """A package on the page: its left edge and its top."""

    x: float
    y: float

    @property
    def bottom(self) -> float:
        return self.y + _HEIGHT

    @property
    def right(self) -> float:
        return self.x + _WIDTH


_WIDTH, _HEIGHT = 180, 38
_ACROSS, _DOWN = 28, 26
"""Between two boxes of a row, and between two rows."""
_TOP, _LEFT, _LANES = 66, 28, 310
"""Of the page: above the first row, left of it, and on the right for what passes rows."""
_COLOURS = ("#38618c", "#b0492c", "#4b7f52", "#8a5a9e", "#b58a1f", "#2f8f9d", "#a23e6c", "#5c6b73")


def contract(root: Path = HERE) -> tuple[list[list[str]], bool]:
    """The layers in pyproject.toml, from the top, and whether imports for type checking count in it."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(each for each in settings["contracts"] if each["type"] == "layers")["layers"]
    rows = [[name.strip(" ()") for name in re.split("[|:]", layer)] for layer in layers]
    return rows, not settings.get("exclude_type_checking_imports", False)


def imports(type_checking: bool, root: str = "penstock") -> Edges:
    """Direct imports from one package to another."""
    graph = grimp.build_graph(root, exclude_type_checking_imports=not type_checking, cache_dir=None)
    edges: Edges = Counter()
    for module in graph.modules:
        targets = {_package(target) for target in graph.find_modules_directly_imported_by(module)}
        edges.update((_package(module), target) for target in targets)
    return Counter({edge: count for edge, count in edges.items() if edge[0] != edge[1] and "" not in edge})


def _package(module: str) -> str:
    """The part behind `penstock`; empty for that module itself."""
    return module.partition(".")[2].partition(".")[0]


def size(package: str, root: Path = HERE / "penstock") -> Size:
    """Of a package, or of a module that stands alone."""
    files = sorted((root / package).rglob("*.py")) or [root / f"{package}.py"]
    return Size(len(files), sum(len(path.read_text().splitlines()) for path in files))


def implied(edges: Edges) -> set[tuple[str, str]]:
    """The edges that have a longer way round over other edges."""
    below: dict[str, set[str]] = {}
    for importer, imported in edges:
        below.setdefault(importer, set()).add(imported)

    def reach(package: str, seen: set[str]) -> set[str]:
        for each in below.get(package, set()) - seen:
            seen.add(each)
            reach(each, seen)
        return seen

    return {
        (importer, imported)
        for importer, imported in edges
        if any(imported in reach(other, set()) for other in below[importer] - {imported})
    }


def draw(rows: list[list[str]], edges: Edges, sizes: dict[str, Size]) -> str:
    """The picture as SVG, with `data-from` and `data-to` at every arrow."""
    boxes = _boxes(rows)
    row_of = {package: number for number, row in enumerate(rows) for package in row}
    across = max(box.right for box in boxes.values())
    width, height = across + _LANES, max(box.bottom for box in boxes.values()) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">',
        "<title>Imports between the packages of penstock</title>",
        "<style>text { font: 11px system-ui, sans-serif; fill: #54626f } .name { font-size: 14px; font-weight: 600; "
        "fill: #1c2733 } .box { fill: #fff; stroke: #54626f } path { fill: none; stroke-linecap: round }</style>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="22" class="name">Imports between the packages of penstock</text>',
        f'<text x="{_LEFT}" y="40">Rows are layers: a package imports only from rows below it.</text>',
        f'<text x="{_LEFT}" y="54">The wider an arrow, the more modules import. Pale arrows also have a longer way '
        f"round.</text>",
    ]
    for row in rows:
        y = boxes[row[0]].y - _DOWN / 4
        parts.append(
            f'<rect x="8" y="{y:.0f}" width="{width - 16:.0f}" height="{_HEIGHT + _DOWN / 2:.0f}" rx="6" '
            f'fill="#f1f4f8" data-layer={quoteattr(" ".join(row))}/>'
        )
    pale = implied(edges)
    lanes = _lanes(edges, row_of)
    # What is drawn later covers what is drawn before.
    order = sorted(edges, key=lambda edge: (edge not in pale, row_of[edge[0]], edge))
    parts += [_arrow(edge, edges, boxes, row_of, lanes, edge in pale) for edge in order]
    for package, box in boxes.items():
        counted = sizes[package]
        files = f"{counted.files} file{'s' if counted.files > 1 else ''}, {counted.lines:,} lines"
        middle = box.x + _WIDTH / 2
        parts += [
            f'<rect class="box" x="{box.x:.0f}" y="{box.y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="4"/>',
            f'<text class="name" x="{middle:.0f}" y="{box.y + 17:.0f}" text-anchor="middle" '
            f"data-package={quoteattr(package)}>{escape(package)}</text>",
            f'<text x="{middle:.0f}" y="{box.y + 31:.0f}" text-anchor="middle">{files}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _boxes(rows: list[list[str]]) -> dict[str, Box]:
    widest = max(map(len, rows))
    boxes = {}
    for number, row in enumerate(rows):
        indent = (widest - len(row)) * (_WIDTH + _ACROSS) / 2
        for place, package in enumerate(row):
            boxes[package] = Box(_LEFT + indent + place * (_WIDTH + _ACROSS), _TOP + 10 + number * (_HEIGHT + _DOWN))
    return boxes


def _lanes(edges: Edges, row_of: dict[str, int]) -> dict[tuple[str, str], int]:
    """For each arrow that passes rows, how far outside it runs: none crosses another that it could let inside."""
    passing = [edge for edge in edges if row_of[edge[1]] - row_of[edge[0]] > 1 or row_of[edge[1]] <= row_of[edge[0]]]
    passing.sort(key=lambda edge: (abs(row_of[edge[1]] - row_of[edge[0]]), row_of[edge[0]], edge))
    lanes: dict[tuple[str, str], int] = {}
    for edge in passing:
        top, bottom = sorted((row_of[edge[0]], row_of[edge[1]]))
        taken = {
            lane
            for other, lane in lanes.items()
            if min(row_of[each] for each in other) < bottom and max(row_of[each] for each in other) > top
        }
        lanes[edge] = next(lane for lane in itertools.count() if lane not in taken)
    return lanes


def _arrow(
    edge: tuple[str, str],
    edges: Edges,
    boxes: dict[str, Box],
    row_of: dict[str, int],
    lanes: dict[tuple[str, str], int],
    pale: bool,
) -> str:
    importer, imported = boxes[edge[0]], boxes[edge[1]]
    upward = row_of[edge[1]] <= row_of[edge[0]]
    colour = "#e00000" if upward else _COLOURS[row_of[edge[0]] % len(_COLOURS)]
    stroke = 0.8 + min(edges[edge], 64) ** 0.5 / 2.5
    if edge not in lanes:
        # Arrows to a box from several boxes end at different places.
        start = importer.x + _WIDTH / 2 + (imported.x - importer.x) / 6
        end = imported.x + _WIDTH / 2 + (importer.x - imported.x) / 6
        path = f"M{start:.1f} {importer.bottom:.1f} L{end:.1f} {imported.y - 5:.1f}"
        head = f"M{end - 4:.1f} {imported.y - 6:.1f} l4 5 l4 -5"
    else:
        count = max(lanes.values()) + 1
        outside = max(box.right for box in boxes.values()) + 26 + lanes[edge] * (_LANES - 40) / count
        # Lower for a box on the left: the arrows of the next one in its row lie above.
        leaves = importer.bottom - 6 - 7 * round((importer.x - _LEFT) / (_WIDTH + _ACROSS))
        meets = imported.y + 9
        path = (
            f"M{importer.right:.1f} {leaves:.1f} H{outside - 8:.1f} q8 0 8 {8 if meets > leaves else -8} "
            f"V{meets - (8 if meets > leaves else -8):.1f} q0 {8 if meets > leaves else -8} -8 "
            f"{8 if meets > leaves else -8} H{imported.right + 5:.1f}"
        )
        head = f"M{imported.right + 6:.1f} {meets - 4:.1f} l-5 4 l5 4"
    modules = f"{edges[edge]} module{'s' if edges[edge] > 1 else ''}"
    return (
        f"<g data-from={quoteattr(edge[0])} data-to={quoteattr(edge[1])} stroke={quoteattr(colour)} "
        f'stroke-width="{stroke:.1f}" opacity="{0.28 if pale else 0.9}">'
        f"<title>{escape(edge[0])} imports {escape(edge[1])}: {modules}</title>"
        f'<path d="{path}"/><path d="{head}"/></g>'
    )


def drawn(svg: str) -> tuple[list[list[str]], set[tuple[str, str]]]:
    """What a picture shows: its layers, and its arrows without their widths."""
    root = ElementTree.fromstring(svg)
    layers = [each.attrib["data-layer"].split() for each in root.iter() if "data-layer" in each.attrib]
    arrows = {(each.attrib["data-from"], each.attrib["data-to"]) for each in root.iter() if "data-from" in each.attrib}
    return layers, arrows


def main() -> int:
    rows, type_checking = contract()
    edges = imports(type_checking)
    TARGET.write_text(draw(rows, edges, {package: size(package) for row in rows for package in row}))
    print(f"{TARGET.relative_to(HERE)}: {sum(map(len, rows))} packages in {len(rows)} layers, {len(edges)} imports.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
