"""One state as a table: Arrow, pandas or Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.tables.contents import Content, KeyedContent, OperatorContent
from penstock.tables.keys import MixedKeys
from penstock.tables.plain_text import object_of
from penstock.tables.snapshot import StateInfo


class StateTable:
    """Made by `Savepoint.state` and `Checkpoint.state`, which look at a few keys; rows are read when asked for.

    Values that are pickles are shown as bytes: no code of a savepoint runs, unless `allow_pickle` was said.
    """

    def __init__(self, info: StateInfo, content: Content, allow_pickle: bool = False) -> None:
        self.info = info
        self._content = content
        self._allow_pickle = allow_pickle

    def __repr__(self) -> str:
        return f"<StateTable '{self.info.name}' of '{self.info.uid}': {self.info.kind} {self.info.type}>"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._content.schema

    @property
    def content(self) -> Content:
        """What the table reads."""
        return self._content

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows; in memory there is one key group at a time."""
        for part in self._content.parts():
            yield from self._content.batches(part)

    def to_arrow(self) -> pa.RecordBatchReader:
        """All rows as a stream: what DuckDB and others read. `read_all()` of it is a table."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """All rows, in a DataFrame. Fields of keys and of values are columns of their own: `value.price`.

        Keys of several types come as text.
        """
        content = self._content
        try:
            table = self.to_arrow().read_all()
        except MixedKeys:
            assert isinstance(content, KeyedContent)
            table = StateTable(self.info, content.with_text_keys()).to_arrow().read_all()
        frame = flattened(table, content).to_pandas()
        return self._with_objects(frame) if self._allow_pickle else frame

    def to_spark(self, spark: Any) -> Any:
        """A DataFrame of the session `spark`, whose tasks read the files themselves, a block each."""
        from penstock.spark.state_tables import state_frame

        content = self._content
        return state_frame(spark, content.schema, content.parts(), content.batches)

    def get(self, key: Any) -> list[dict[str, Any]]:
        """The rows of one key; of a broadcast state, of one map key. Of keyed state only one key group is read."""
        if isinstance(self._content, KeyedContent):
            return self._content.rows_of(key)
        named = "map_key" if "map_key" in self.schema.names else None
        if named is None:
            raise PenstockError(
                f"'{self.info.name}' of operator '{self.info.operator}' (uid '{self.info.uid}') is operator state, "
                f"which has no keys.",
                fix="Read all of it: to_pandas().",
            )
        return [row for batch in self.batches() for row in batch.to_pylist() if row[named] == key]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as dicts."""
        for batch in self.batches():
            yield from batch.to_pylist()

    def _with_objects(self, frame: Any) -> Any:
        content = self._content
        if not isinstance(content, (KeyedContent, OperatorContent)):
            return frame
        if content.type.value.pickled and "value" in frame and not getattr(content, "raw", False):
            frame["value"] = _objects([pickle.loads(data) for data in frame["value"]])
        elif "value_pickle" in frame:
            pairs = zip(frame["value"], frame["value_pickle"], strict=True)
            frame["value"] = _objects([value if data is None else pickle.loads(data) for value, data in pairs])
            del frame["value_pickle"]
        elif content.type.value.text == "any":
            frame["value"] = _objects([object_of(text) for text in frame["value"]])
        elif "value_any" in frame:
            pairs = zip(frame["value"], frame["value_any"], strict=True)
            frame["value"] = _objects([value if text is None else object_of(text) for value, text in pairs])
            del frame["value_any"]
        return frame


def _objects(values: list[Any]) -> Any:
    import numpy as np

    column = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        column[place] = value
    return column


def flattened(table: pa.Table, content: Content) -> pa.Table:
    """The fields of keys and values as columns; those that may be missing as a whole stay in one."""
    kind = content.type if isinstance(content, (KeyedContent, OperatorContent)) else None
    whole = set()
    if kind is not None and (kind.value.nullable or kind.other):
        whole.add("value")
    if isinstance(content, KeyedContent) and content.key.nullable:
        whole.add("key")
    columns: dict[str, Any] = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_struct(field.type) and field.name not in whole and field.type.num_fields:
            for child, values in zip(field.type, column.flatten(), strict=True):
                columns[f"{field.name}.{child.name}"] = values
        else:
            columns[field.name] = column
    return pa.table(columns)
