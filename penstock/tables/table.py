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
    """A state as a table, returned by ``Savepoint.state`` and ``Checkpoint.state``. Rows are read lazily.

    Pickled values are shown as bytes: no code from a savepoint runs, unless ``allow_pickle`` is set.
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
        """The contents that the table reads."""
        return self._content

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows. Keeps one key group in memory at a time."""
        for part in self._content.parts():
            yield from self._content.batches(part)

    def to_arrow(self) -> pa.RecordBatchReader:
        """Return all rows as an Arrow stream for DuckDB and others. Its ``read_all()`` returns a table."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame. Fields of keys and values become columns such as ``value.price``.

        Keys of several types are shown as text.
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
        """Return a DataFrame of the Spark session ``spark``. Its tasks read the files themselves, one block each."""
        from penstock.spark.state_tables import state_frame

        content = self._content
        return state_frame(spark, content.schema, content.parts(), content.batches)

    def get(self, key: Any) -> list[dict[str, Any]]:
        """Return the rows of one key (for broadcast state, one map key). Keyed state reads only one key group."""
        if isinstance(self._content, KeyedContent):
            return self._content.rows_of(key)
        named = "map_key" if "map_key" in self.schema.names else None
        if named is None:
            raise PenstockError(
                f"'{self.info.name}' of operator '{self.info.operator}' (uid '{self.info.uid}') is operator state, "
                f"which has no keys.",
                fix="Read all of it with to_pandas().",
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
    """Expand the fields of keys and values into columns. A struct that can be null stays in one column."""
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
