"""NumPy arrays in a table: a struct of dtype, shape and values, flattened in row-major order."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.state.serializers.array_wire import ArrayWire, array_of, storable, wire_of
from penstock.tables.shapes import NotWritable, Shape

_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "float16": pa.float32(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "str": pa.string(),
    "bytes": pa.binary(),
    **{f"{sign}int{bits}": getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""Arrow types by dtype. Values of other dtypes, and of arrays that allow any dtype, are text."""


def array(text: str, dtype: str) -> Shape:
    """Return the shape of NumPy arrays."""
    kind = _TYPES.get(dtype)
    fields = [("dtype", pa.string()), ("shape", pa.list_(pa.int64())), ("values", pa.list_(kind or pa.string()))]
    return Shape(text, pa.struct(fields), ArrayWire, _reader(dtype, kind), _writer(text, kind is None))


def _reader(dtype: str, kind: pa.DataType | None) -> Callable[[ArrayWire], dict[str, Any]]:
    def read(wire: ArrayWire) -> dict[str, Any]:
        import numpy as np

        stored = array_of(None, wire)
        if kind is not None and dtype not in ("str", "bytes") and stored.dtype.name != dtype:
            # Stored before the dtype was widened.
            stored = stored.astype(dtype)
        flat = stored.ravel()
        if kind is not None:
            values = flat.tolist()
        elif flat.dtype.kind == "M":
            values = np.datetime_as_string(flat).tolist()
        else:
            values = list(map(str, (flat.astype("i8") if flat.dtype.kind == "m" else flat).tolist()))
        return {"dtype": stored.dtype.str, "shape": list(stored.shape), "values": values}

    return read


def _writer(text: str, from_text: bool) -> Callable[[Any], ArrayWire]:
    def write(value: Any) -> ArrayWire:
        import numpy as np

        dtype = np.dtype(value["dtype"])
        if not storable(dtype):
            raise NotWritable(f"{value['dtype']!r} is not a dtype that arrays can be stored with.")
        shape = list(value["shape"])
        given = list(value["values"])
        if math.prod(shape) != len(given):
            raise NotWritable(f"An array of shape {shape} cannot have {len(given)} values.")
        if from_text:
            given = [_PARSE[dtype.kind](each) for each in given]
        made = np.array(given, dtype).reshape(shape) if given else np.empty(shape, dtype)
        return wire_of(made)

    return write


_PARSE: dict[str, Callable[[str], Any]] = {
    "b": lambda text: {"True": True, "False": False}[text],
    "i": int,
    "u": int,
    "f": float,
    "c": complex,
    "U": str,
    "S": ast.literal_eval,
    "M": str,
    "m": int,
}
