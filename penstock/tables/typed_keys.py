"""Parse keys typed on the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.errors import PenstockError
from penstock.tables.contents import KeyedContent
from penstock.tables.key_history import snapshots_in
from penstock.tables.keys import KeyShape
from penstock.tables.snapshot import NoSuchState
from penstock.tables.table import StateTable


def key_from_text(table: StateTable, text: str) -> Any:
    """Parse a key as the type of the state's keys."""
    content = table.content
    if not isinstance(content, KeyedContent):
        return text
    return typed_key(content.key, table.info.name, text)


def typed_key(shape: KeyShape, state: str, text: str) -> Any:
    """Parse a key of this shape. Raises PenstockError."""
    try:
        return _typed(shape, text)
    except (ValueError, KeyError, ArithmeticError) as error:
        raise PenstockError(
            f"The keys of state '{state}' are of type {shape.kind}, but '{text}' is not: {error}.",
            fix="Write a key of several fields as a JSON list: '[\"a\", 1]'.",
        ) from None


def _typed(shape: KeyShape, text: str) -> Any:
    if not shape.parts:
        return shape.find(text)
    given = json.loads(text)
    if not isinstance(given, list) or len(given) != len(shape.parts):
        raise ValueError(f"a key has the {len(shape.parts)} fields {', '.join(shape.names)}")
    fields = [
        value if value is None or not isinstance(value, str) else _typed(part, value)
        for part, value in zip(shape.parts, given, strict=True)
    ]
    return shape.to_key(fields)


def key_in(directory: str, uid: str, state: str, text: str, store_options: Mapping[str, Any] | None = None) -> Any:
    """Parse a key as the type in the first snapshot that has keys in this state."""
    missing: NoSuchState | None = None
    for snapshot in snapshots_in(directory, store_options):
        try:
            table = snapshot.state(uid, state)
        except NoSuchState as error:
            missing = error
            continue
        if not isinstance(table.content, KeyedContent) or table.content.key.kind != "none":
            return key_from_text(table, text)
    if missing is not None:
        raise missing
    return text
