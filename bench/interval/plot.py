"""A small line chart as SVG: two quantities over the interval, each with its own scale."""

from html import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 340, 70, 70, 40, 50
_STYLE = "text { font: 12px system-ui, sans-serif; fill: #1c2733 } .axis { stroke: #7d8e9e } .grid { stroke: #e2e8ee }"


def chart(title: str, across: list[str], one: tuple[str, list[float]], other: tuple[str, list[float]]) -> str:
    """Draw a chart. `across` labels the points; `one` is scaled on the left axis, `other` on the right."""
    places = [_LEFT + (_WIDTH - _LEFT - _RIGHT) * place / (len(across) - 1) for place in range(len(across))]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_WIDTH / 2}" y="20" text-anchor="middle" font-weight="600">{escape(title)}</text>',
    ]
    bottom = _HEIGHT - _BOTTOM
    for label, x in zip(across, places, strict=True):
        parts.append(f'<line class="grid" x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{escape(label)}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">checkpoint interval</text>')
    for (name, values), colour, side in ((one, "#38618c", "left"), (other, "#b0492c", "right")):
        most = max(values) * 1.1 or 1
        x, anchor = (_LEFT - 8, "end") if side == "left" else (_WIDTH - _RIGHT + 8, "start")
        points = [(place, bottom - (bottom - _TOP) * value / most) for place, value in zip(places, values, strict=True)]
        line = " ".join(f"{place:.1f},{y:.1f}" for place, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{place:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for place, y in points]
        for part in (0, 0.5, 1):
            y = bottom - (bottom - _TOP) * part
            parts.append(f'<text x="{x}" y="{y + 4}" text-anchor="{anchor}" fill="{colour}">{most * part:,.3g}</text>')
        start = _LEFT if side == "left" else _WIDTH - _RIGHT
        turn = "start" if side == "left" else "end"
        parts.append(f'<text x="{start}" y="{_TOP - 6}" text-anchor="{turn}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
