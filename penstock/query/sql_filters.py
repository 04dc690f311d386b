"""Which keys a SQL query can concern at most: its filters ``key = …`` and ``key IN (…)``, from DuckDB's syntax tree.

Anything that is not understood restricts nothing. A filter in a WHERE clause can be applied to a table of the same FROM
clause before the joins: no row without the key passes the clause.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from typing import Any, NamedTuple
from uuid import UUID

from penstock.tables.keys import KeyShape

_MOST_KEYS = 10_000
_JOINS = ("INNER", "LEFT", "RIGHT", "FULL", "OUTER")
_REFERENCES = ("REGULAR", "CROSS")
"""Other joins, such as positional ones, depend on rows that do not pass the filter."""


class Literal(NamedTuple):
    """A constant of the query."""

    kind: str
    """STRING, INTEGER, BOOLEAN, …"""
    text: str


def restricted_tables(connection: Any, query: str) -> dict[str, list[Literal] | None]:
    """Return the tables that a query names, in lower case, with the keys to which it restricts them.

    None stands for all keys. The result is empty if the query is not a SELECT statement that DuckDB can parse.
    """
    try:
        tree = json.loads(connection.execute("select json_serialize_sql(?)", [query]).fetchall()[0][0])
        if tree.get("error"):
            return {}
        found = _Tables()
        found.visit(tree["statements"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        # The tree of another version of DuckDB.
        return {}
    return {name: None if name in found.shadowed else keys for name, keys in found.keys.items()}


def keys_of(literals: list[Literal], shape: KeyShape) -> list[Any] | None:
    """Return the keys that equal these constants, or None if DuckDB would have to convert one side."""
    found = []
    for literal in literals[: _MOST_KEYS + 1]:
        key = _key_of(literal, shape)
        if key is None:
            return None
        found.append(key)
    return found if len(found) <= _MOST_KEYS else None


def _key_of(literal: Literal, shape: KeyShape) -> Any:
    kind, text = literal
    try:
        if kind == "STRING" and shape.kind == "str":
            return text
        if kind == "INTEGER" and shape.kind == "int":
            number = int(text)
            return number if -(1 << 63) <= number < 1 << 63 else None
        if kind == "BOOLEAN" and shape.kind == "bool":
            return {"true": True, "false": False}.get(text)
        if kind == "STRING" and shape.kind == "UUID":
            return UUID(text) if str(UUID(text)) == text else None
        if kind == "STRING" and shape.kind == "date":
            return date.fromisoformat(text) if date.fromisoformat(text).isoformat() == text else None
    except ValueError:
        pass
    return None


class _Tables:
    def __init__(self) -> None:
        self.keys: dict[str, list[Literal] | None] = {}
        self.shadowed: set[str] = set()
        """Names of common table expressions."""

    def visit(self, node: Any) -> None:
        """Note all tables below a node of the tree."""
        if isinstance(node, list):
            for each in node:
                self.visit(each)
            return
        if not isinstance(node, dict):
            return
        if node.get("type") == "BASE_TABLE":
            self._note(node, None)
            return
        noted: list[Any] = []
        if node.get("type") == "SELECT_NODE":
            noted = self._restricted(node)
        for name, each in node.items():
            if name == "cte_map":
                self.shadowed |= {entry["key"].lower() for entry in each.get("map", [])}
            if name == "from_table" and noted:
                self._others(each, noted)
            else:
                self.visit(each)

    def _others(self, node: Any, noted: list[Any]) -> None:
        """Visit a FROM clause without the tables that have been noted."""
        if any(node is each for each in noted):
            return
        if node.get("type") == "JOIN":
            for name, each in node.items():
                if name in ("left", "right"):
                    self._others(each, noted)
                else:
                    self.visit(each)
            return
        self.visit(node)

    def _restricted(self, select: dict[str, Any]) -> list[Any]:
        """Note the tables of a SELECT that its WHERE clause restricts, and return their nodes."""
        if select.get("sample") or not _plainly_joined(select["from_table"]):
            return []
        relations = list(_relations(select["from_table"]))
        filters = list(_filters(select["where_clause"]))
        shared = len(relations) == 1 or _joined_by_key(select["from_table"])
        noted = []
        for relation in relations:
            if relation["type"] != "BASE_TABLE" or relation.get("sample") or relation.get("column_name_alias"):
                continue
            named = (relation["alias"] or _name(relation)).lower()
            fitting = [
                literals for column, literals in filters if column == [named, "key"] or (column == ["key"] and shared)
            ]
            if fitting:
                self._note(relation, min(fitting, key=len))
                noted.append(relation)
        return noted

    def _note(self, table: dict[str, Any], keys: list[Literal] | None) -> None:
        name = _name(table).lower()
        known = self.keys.get(name, [])
        self.keys[name] = None if keys is None or known is None else [*known, *keys]


def _name(table: dict[str, Any]) -> str:
    return str(table["table_name"])


def _plainly_joined(node: dict[str, Any]) -> bool:
    """Return whether the joins of a FROM clause depend on nothing but matching rows."""
    if node["type"] != "JOIN":
        return True
    plain = node["join_type"] in _JOINS and node["ref_type"] in _REFERENCES
    return plain and _plainly_joined(node["left"]) and _plainly_joined(node["right"])


def _relations(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what a FROM clause joins."""
    if node["type"] != "JOIN":
        yield node
        return
    yield from _relations(node["left"])
    yield from _relations(node["right"])


def _joined_by_key(node: dict[str, Any]) -> bool:
    """Return whether `key` without a table is the same in all tables of a FROM clause."""
    if node["type"] != "JOIN":
        return bool(node["type"] == "BASE_TABLE")
    using = [column.lower() for column in node["using_columns"]]
    inner = node["join_type"] == "INNER" and "key" in using
    return inner and _joined_by_key(node["left"]) and _joined_by_key(node["right"])


def _filters(node: Any) -> Iterator[tuple[list[str], list[Literal]]]:
    """Yield the columns that a condition compares with constants, and these."""
    if node is None:
        return
    if node["type"] == "CONJUNCTION_AND":
        for child in node["children"]:
            yield from _filters(child)
    elif node["type"] == "COMPARE_EQUAL":
        for one, other in ((node["left"], node["right"]), (node["right"], node["left"])):
            if one["type"] == "COLUMN_REF" and other["type"] == "VALUE_CONSTANT":
                yield _column(one), [_literal(other)]
    elif node["type"] == "COMPARE_IN":
        tested, *values = node["children"]
        if tested["type"] == "COLUMN_REF" and all(value["type"] == "VALUE_CONSTANT" for value in values):
            yield _column(tested), [_literal(value) for value in values]


def _column(node: dict[str, Any]) -> list[str]:
    return [name.lower() for name in node["column_names"]]


def _literal(node: dict[str, Any]) -> Literal:
    return Literal(node["literal"]["kind"], node["literal"]["text"])
