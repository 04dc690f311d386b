"""State as the page shows it: values as trees, rows as a table, the history of a key as differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.tables.key_history import KeyVersion
from penstock.web.markup import Child, Markup, join, moment, table, tag
from penstock.web.quantities import counted, utc
from penstock.web.state_reader import FoundKey, Rows, as_text

_DEEPEST = 12
_WIDEST = 100
"""Fields or items of one value that are shown."""
_LONGEST = 10_000
"""Characters of one value that are shown."""


def tree(value: Any, depth: int = 0) -> Markup:
    """Return a value as nested lists, with types."""
    if isinstance(value, dict | list | tuple) and depth < _DEEPEST:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        shown = [
            tag("li", tag("b", _cut(str(name))), ": ", tree(each, depth + 1)) for name, each in list(pairs)[:_WIDEST]
        ]
        rest = tag("li", f"… {counted(len(value) - _WIDEST, 'more item')}") if len(value) > _WIDEST else None
        kind = tag("span", f"{type(value).__name__}, {counted(len(value), 'item')}", class_="quiet")
        return join(kind, tag("ul", *shown, rest, class_="tree"))
    written = value if isinstance(value, str) else as_text(value).strip('"')
    return join(tag("code", _cut(written)), " ", tag("span", type(value).__name__, class_="quiet"))


def rows_view(found: Rows) -> Markup:
    """Return a page of rows."""
    if not found.rows:
        none = f"No rows. {counted(found.searched, 'row')} searched." if found.searched else "No rows."
        return tag("p", none, class_="quiet")
    names = list(dict.fromkeys(name for row in found.rows for name in row))
    last = found.offset + len(found.rows)
    text = f"Rows {found.offset + 1:,} to {last:,}" + (", and more" if found.more else ", the last one")
    cells: list[list[Child]] = [
        [tag("code", _cut(_text(row[name]))) if name in row else None for name in names] for row in found.rows
    ]
    return join(tag("p", text, class_="quiet"), table(names, cells, label="Rows of the state"))


def key_view(key: str, found: FoundKey) -> Markup:
    """Return the state of one key."""
    where = None
    if found.owner is not None:
        by = "" if found.owner.subtask is None else f", owned by subtask {found.owner.subtask}"
        where = tag("p", f"Key group {found.owner.group}, block {found.owner.block}{by}", class_="quiet")
    if not found.rows:
        return join(tag("h3", "Key ", tag("code", key)), where, tag("p", "The key has no value in this state."))
    values = [tree(without_key(row)) for row in found.rows[:_WIDEST]]
    rest = tag("p", f"… {counted(len(found.rows) - _WIDEST, 'more row')}") if len(found.rows) > _WIDEST else None
    return join(tag("h3", "Key ", tag("code", key)), where, *values, rest)


def history_view(key: str, versions: Sequence[KeyVersion]) -> Markup:
    """Return the state of a key over time. A version equal to the one before is not repeated."""
    rows: list[list[Child]] = []
    before: Any = object()
    for version in versions:
        same = version.value == before
        rows.append(
            [
                f"checkpoint {version.checkpoint}",
                moment(version.time, utc(version.time), utc(version.time)),
                tag("span", "unchanged", class_="quiet")
                if same
                else tag("span", "no value", class_="quiet")
                if version.value is None
                else changes(before, version.value),
                version.path,
            ]
        )
        before = version.value
    return join(
        tag("h3", "History of ", tag("code", key)),
        table(["Checkpoint", "Time", "Value", "Location"], rows, label="History of the key"),
    )


def changes(before: Any, after: Any) -> Markup:
    """Return a value with the fields that differ from an earlier one marked."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return tree(after)
    items = []
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            items.append(tag("li", tag("del", f"{name}: {_cut(as_text(before[name]))}")))
        elif name not in before or before[name] != after[name]:
            old = join(tag("del", _cut(as_text(before[name]))), " ") if name in before else None
            items.append(tag("li", tag("b", str(name)), ": ", old, tag("ins", _cut(as_text(after[name])))))
        else:
            items.append(tag("li", tag("b", str(name)), ": ", tag("code", _cut(as_text(after[name])))))
    return tag("ul", *items, class_="tree")


def without_key(row: dict[str, Any]) -> Any:
    """Return the value of a row: without its key, and without the name if it has only one column."""
    rest = {name: value for name, value in row.items() if name != "key"}
    return rest["value"] if list(rest) == ["value"] else rest


def _text(value: Any) -> str:
    return value if isinstance(value, str) else as_text(value)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({counted(len(text), 'character')})"
