"""Small line charts as one SVG, with logarithmic axes: one column per axis of growth, one row per quantity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from bench.scale.growth import FITTED, Growth

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 320, 190, 52, 12, 26, 34
_STYLE = (
    "text { font: 11px system-ui, sans-serif; fill: #1c2733 } .title { font-weight: 600 } "
    ".grid { stroke: #e2e8ee } .fit { stroke: #b0492c; stroke-dasharray: 4 3 }"
)


@dataclass(frozen=True)
class Curve:
    sizes: Sequence[float]
    values: Sequence[float]
    growth: Growth


@dataclass(frozen=True)
class Panel:
    quantity: str
    axis: str
    curve: Curve


def charts(columns: Sequence[Sequence[Panel]]) -> str:
    """Draw panels side by side. Both axes of a panel cover whole powers of ten."""
    width, height = _WIDTH * len(columns), _HEIGHT * max(map(len, columns))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for column, panels in enumerate(columns):
        for row, panel in enumerate(panels):
            parts.append(f'<g transform="translate({column * _WIDTH} {row * _HEIGHT})">')
            parts += _panel(panel)
            parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel) -> list[str]:
    curve = panel.curve
    across = _Scale(curve.sizes, _LEFT, _WIDTH - _RIGHT)
    up = _Scale(curve.values, _HEIGHT - _BOTTOM, _TOP)
    exponent = f"exponent {curve.growth.exponent:.2f}"
    parts = [
        f'<text class="title" x="{_LEFT}" y="16">{escape(panel.quantity)}</text>',
        f'<text x="{_WIDTH - _RIGHT}" y="{_TOP + 12}" text-anchor="end" fill="#b0492c">{exponent}</text>',
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(panel.axis)}</text>',
    ]
    for power in across.powers:
        x = across(10.0**power)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 14}" text-anchor="middle">{_label(power)}</text>')
    for power in up.powers:
        y = up(10.0**power)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_label(power)}</text>')
    fitted = [curve.sizes[-FITTED:][0], curve.sizes[-1]]
    if curve.growth.factor:
        (x1, y1), (x2, y2) = ((across(size), up(curve.growth.at(size))) for size in fitted)
        parts.append(f'<line class="fit" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')
    points = [(across(size), up(value)) for size, value in zip(curve.sizes, curve.values, strict=True) if value > 0]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="#38618c" stroke-width="2"/>')
    return parts + [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#38618c"/>' for x, y in points]


class _Scale:
    """Maps values to places on a logarithmic axis of whole powers of ten."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        logs = [log10(value) for value in values if value > 0] or [0.0]
        low = floor(min(logs))
        high = max(ceil(max(logs)), low + 1)
        self.powers = range(low, high + 1)
        self._low, self._start, self._unit = low, start, (end - start) / (high - low)

    def __call__(self, value: float) -> float:
        return self._start + (log10(value) - self._low) * self._unit


def _label(power: int) -> str:
    value = 10.0**power
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"
