"""Builds HTML and SVG. Text is always escaped: names, keys, values and log lines come from users."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any
from urllib.parse import quote

_EMPTY = frozenset({"br", "hr", "img", "input", "line", "path", "polyline", "rect", "circle"})


class Markup(str):
    """HTML that this module has built. Only instances of it are not escaped."""

    __slots__ = ()


Child = str | int | float | Markup | None


def tag(name: str, *children: Child, **attributes: Any) -> Markup:
    """Return an element. `class_` becomes class, `aria_label` becomes aria-label; None and False leave one out."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        written = key.rstrip("_").replace("_", "-")
        parts.append(f" {written}" if value is True else f' {written}="{escape(str(value))}"')
    parts.append(">")
    if name not in _EMPTY:
        parts += [text(child) for child in children]
        parts.append(f"</{name}>")
    elif name in ("line", "path", "polyline", "rect", "circle"):
        # SVG elements have no implied end.
        parts[-1] = ">" + "".join(text(child) for child in children) + f"</{name}>"
    return Markup("".join(parts))


def text(child: Child) -> str:
    """Return a child as HTML."""
    if child is None:
        return ""
    return str(child) if isinstance(child, Markup) else escape(str(child))


def join(*children: Child) -> Markup:
    """Return children one after the other."""
    return Markup("".join(text(child) for child in children))


def table(
    head: Sequence[Child],
    rows: Sequence[Sequence[Child]],
    *,
    label: str,
    numeric: frozenset[int] = frozenset(),
) -> Markup:
    """Return a table that scrolls by itself if it is too wide. The columns in `numeric` are aligned to the right."""

    def cells(name: str, row: Sequence[Child], **attributes: str) -> Markup:
        return tag(
            "tr",
            *(
                tag(name, cell, class_="number" if place in numeric else None, **attributes)
                for place, cell in enumerate(row)
            ),
        )

    return tag(
        "div",
        tag(
            "table",
            tag("thead", cells("th", head, scope="col")),
            tag("tbody", *(cells("td", row) for row in rows)),
            aria_label=label,
        ),
        class_="scrolls",
        tabindex="0",
        role="region",
        aria_label=label,
    )


def moment(ms: int, shown: str, utc: str) -> Markup:
    """Return a time. The browser replaces the text with the viewer's time; the title has UTC."""
    return tag("time", shown, title=utc, data_ms=ms)


def job_path(job_id: str, section: str = "") -> str:
    """Return the path of a job's page."""
    return f"/web/jobs/{quote(job_id, safe='')}" + (f"/{quote(section, safe='')}" if section else "")
