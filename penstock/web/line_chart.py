"""Charts as SVG, drawn by the server: lines over time, or stacked bars for the parts of a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.web.markup import Markup, join, tag
from penstock.web.quantities import duration

_WIDTH, _HEIGHT = 420, 120


class Series(NamedTuple):
    """The values of one line. Times are milliseconds since 1970."""

    name: str
    points: Sequence[tuple[int, float]]


def line_chart(title: str, series: Sequence[Series], unit: Callable[[float], str]) -> Markup:
    """Return a chart with its newest values. Its vertical axis begins at 0."""
    drawn = [each for each in series if each.points]
    if not drawn:
        return _figure(title, tag("p", "No values yet.", class_="quiet"))
    times = [at for each in drawn for at, _ in each.points]
    first, last = min(times), max(times)
    highest = max((value for each in drawn for _, value in each.points), default=0.0) or 1.0

    def place(at: int, value: float) -> str:
        x = _WIDTH * (at - first) / max(1, last - first)
        return f"{x:.1f},{_HEIGHT - _HEIGHT * max(0.0, value) / highest:.1f}"

    lines = [
        tag(
            "polyline",
            tag("title", f"{each.name}: {unit(each.points[-1][1])}"),
            points=" ".join(place(*point) for point in _twice(each.points)),
            class_=f"line s{number % 6}",
        )
        for number, each in enumerate(drawn)
    ]
    drawing = _svg(title, *lines)
    newest = [(f"s{number % 6}", each.name, unit(each.points[-1][1])) for number, each in enumerate(drawn)]
    return _figure(title, _keys(newest), drawing, _axis(unit(highest), duration(last - first)))


def bar_chart(
    title: str, bars: Sequence[tuple[str, Sequence[float]]], parts: Sequence[str], unit: Callable[[float], str]
) -> Markup:
    """Return stacked bars, of which each has a label and one value per part."""
    if not bars:
        return _figure(title, tag("p", "No values yet.", class_="quiet"))
    highest = max(sum(values) for _, values in bars) or 1.0
    step = _WIDTH / len(bars)
    rects: list[Markup] = []
    for place, (label, values) in enumerate(bars):
        y = float(_HEIGHT)
        for number, value in enumerate(values):
            height = _HEIGHT * value / highest
            y -= height
            rects.append(
                tag(
                    "rect",
                    tag("title", f"{label}, {parts[number]}: {unit(value)}"),
                    x=f"{place * step:.1f}",
                    y=f"{y:.1f}",
                    width=f"{max(1.0, step - 1.5):.1f}",
                    height=f"{height:.1f}",
                    class_=f"bar s{number % 6}",
                )
            )
    newest = [(f"s{number % 6}", part, unit(bars[-1][1][number])) for number, part in enumerate(parts)]
    return _figure(title, _keys(newest), _svg(title, *rects), _axis(unit(highest), f"{len(bars)} epochs"))


def _twice(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    # A line needs two points.
    return points if len(points) > 1 else [*points, (points[0][0] + 1, points[0][1])]


def _svg(title: str, *children: Markup) -> Markup:
    return tag(
        "svg",
        *children,
        viewBox=f"-2 -4 {_WIDTH + 4} {_HEIGHT + 8}",
        preserveAspectRatio="none",
        role="img",
        aria_label=title,
        class_="chart",
    )


def _keys(newest: Sequence[tuple[str, str, str]]) -> Markup:
    items = [
        tag("span", tag("i", class_=f"swatch {style}"), join(name, " "), tag("b", value))
        for style, name, value in newest
    ]
    return tag("div", *items, class_="keys")


def _axis(highest: str, width: str) -> Markup:
    return tag("figcaption", tag("span", f"0 to {highest}"), tag("span", f"last {width}"))


def _figure(title: str, *children: Markup) -> Markup:
    return tag("figure", tag("h3", title), *children)
