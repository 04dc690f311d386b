"""State as the page shows it: values as trees, rows as a table, the history of a key as differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.tables.key_history import KeyVersion
from penstock.web.markup import Child, Markup, join, moment, table, tag
from penstock.web.quantities import counted, duration, utc
from penstock.web.state_comparison import Compared
from penstock.web.state_reader import PAGE_ROWS, FoundKey, Rows, as_text

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
    source = source_view(found.source)
    limit = None
    if found.limited:
        limit = tag("p", f"The search ended after {counted(found.searched, 'row')}. Export the state, or use the code.")
    if not found.rows:
        none = f"No rows. {counted(found.searched, 'row')} searched." if found.searched else "No rows."
        return join(source, tag("p", none, class_="quiet"), limit)
    names = list(dict.fromkeys(name for row in found.rows for name in row))
    last = found.offset + len(found.rows)
    text = f"Rows {found.offset + 1:,} to {last:,}" + (", and more" if found.more else ", the last one")
    cells: list[list[Child]] = [
        [_cell(name, row[name]) if name in row else None for name in names] for row in found.rows
    ]
    return join(source, tag("p", text, class_="quiet"), limit, table(names, cells, label="Rows of the state"))


def source_view(source: str) -> Markup | None:
    """Return where something was read from."""
    return tag("p", tag("b", "Read from: "), source, class_="quiet") if source else None


def key_view(key: str, found: FoundKey) -> Markup:
    """Return the state of one key, with its owner, timers and time to live."""
    where = None
    if found.owner is not None:
        by = "" if found.owner.subtask is None else f", owned by subtask {found.owner.subtask}"
        block = "" if found.owner.block is None else f", block {found.owner.block}"
        where = tag("p", f"Key group {found.owner.group}{block}{by}", class_="quiet")
    lives = None
    if found.ttl_ms is not None:
        lives = tag("p", f"Values live {duration(found.ttl_ms)} after their last access.", class_="quiet")
    head = join(tag("h3", "Key ", tag("code", key)), source_view(found.source), where, lives)
    if not found.rows:
        return join(head, tag("p", "The key has no value in this state."), _timers(found.timers))
    values = [join(tree(without_key(row)), _clocks(row)) for row in found.rows[:_WIDEST]]
    rest = tag("p", f"… {counted(len(found.rows) - _WIDEST, 'more row')}") if len(found.rows) > _WIDEST else None
    return join(head, *values, rest, _timers(found.timers))


def _clocks(row: dict[str, Any]) -> Markup | None:
    """Return when a value was last accessed, and when it expires."""
    if row.get("last_access") is None:
        return None
    expires = None if row.get("expires") is None else join(", expires ", _time(row["expires"]))
    return tag("p", "Last access ", _time(row["last_access"]), expires, class_="quiet")


def _timers(timers: Sequence[dict[str, Any]]) -> Markup | None:
    if not timers:
        return None
    rows: list[list[Child]] = [
        [
            _time(each["timestamp"]),
            each["domain"].lower().replace("_", " "),
            None
            if each["window_start"] is None
            else join(_time(each["window_start"]), " to ", _time(each["window_end"])),
        ]
        for each in timers[:_WIDEST]
    ]
    rest = tag("p", f"… {counted(len(timers) - _WIDEST, 'more timer')}") if len(timers) > _WIDEST else None
    return join(tag("h3", "Timers"), table(["Fires at", "Clock", "Window"], rows, label="Timers of the key"), rest)


def _window(timer: dict[str, Any]) -> Child:
    start, end = timer["window_start"], timer["window_end"]
    return None if start is None else join(_time(start), " to ", _time(end))


_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, after which browsers and Python show no dates."""


def _time(ms: int) -> Child:
    """Return a time; one outside the calendar as its number."""
    return moment(ms, utc(ms), utc(ms)) if 0 <= ms <= _LAST_MS else f"{ms} ms"


def _cell(name: str, value: Any) -> Child:
    if name in ("last_access", "expires", "window_start", "window_end") and isinstance(value, int):
        return _time(value)
    return None if value is None else tag("code", _cut(_text(value)))


def comparison_view(found: Compared, offset: int) -> Markup:
    """Return a page of the differences between two moments."""
    counts = ", ".join(f"{number:,} {kind}" for kind, number in found.counts.items())
    head = join(
        tag("h3", "Differences"),
        tag("p", tag("b", "From: "), found.before, class_="quiet"),
        tag("p", tag("b", "To: "), found.after, class_="quiet"),
        tag("p", f"{counts} of {counted(found.keys, 'key')}."),
        tag("p", "The comparison ended at its limit. Compare the rest with the code for pandas.")
        if found.limited
        else None,
    )
    if not found.kept:
        return join(head, tag("p", "Both have the same values.", class_="quiet") if not found.limited else None)
    shown = found.kept[offset : offset + PAGE_ROWS]
    total = sum(found.counts.values())
    kept = f" The page keeps {len(found.kept):,}." if len(found.kept) < total else ""
    text = f"Differences {offset + 1:,} to {offset + len(shown):,} of {total:,}.{kept}"
    rows: list[list[Child]] = [
        [
            tag("span", each.kind, class_=f"chip {_CHIPS[each.kind]}"),
            None if each.key is None else tag("code", _cut(_text(each.key))),
            None if each.before is None else tag("code", _cut(_text(each.before))),
            None if each.after is None else _changed(each.before, each.after),
        ]
        for each in shown
    ]
    return join(
        head,
        tag("p", text, class_="quiet"),
        table(["Change", "Key", "Before", "After"], rows, label="Differences"),
    )


def _changed(before: Any, after: Any) -> Markup:
    return changes(before, after) if isinstance(after, dict) else tag("code", _cut(_text(after)))


_CHIPS = {"added": "good", "removed": "bad", "changed": "warn"}


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
    rest = {name: value for name, value in row.items() if name not in ("key", "last_access", "expires")}
    return rest["value"] if list(rest) == ["value"] else rest


def _text(value: Any) -> str:
    return value if isinstance(value, str) else as_text(value)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({counted(len(text), 'character')})"
