"""numpy's arrays as msgpack: the dtype, the shape, the bytes, and whether these are in Fortran's order.

numpy is imported only where there is an array, or a type that names one.
"""

from __future__ import annotations

import math
import re
import sys
import typing
from typing import Any

__all__ = ["ArrayWire", "array_of", "is_array", "is_array_type", "scalar_of", "storable", "wire_of"]

ArrayWire = tuple[str, list[int], bytes, bool]

_DTYPE = re.compile(r"[<>|]?(?:b1|[iu][1248]|f[248]|c(?:8|16)|[SU]\d{1,9}|[mM]8(?:\[\d{0,9}[a-zA-Z]{1,2}\])?)")
"""The dtypes that are stored. Not objects, fields and strings of any length, nor what only some machines have."""
_MOST_AXES = 32


def is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def is_array_type(hint: Any) -> bool:
    """Whether a hint is `numpy.ndarray` or says what one holds, as `numpy.typing.NDArray[numpy.float32]` does."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and (hint is numpy.ndarray or typing.get_origin(hint) is numpy.ndarray)


def scalar_of(hint: Any) -> Any:
    """The class of scalars that a hint says an array holds; None for any."""
    arguments = typing.get_args(hint)
    if len(arguments) != 2:
        return None
    scalar = next(iter(typing.get_args(arguments[1])), None)
    return None if scalar is Any or isinstance(scalar, typing.TypeVar) else scalar


def storable(dtype: Any) -> bool:
    return _DTYPE.fullmatch(dtype.str) is not None


def wire_of(array: Any) -> ArrayWire:
    fortran = bool(array.flags.f_contiguous and not array.flags.c_contiguous)
    return array.dtype.str, list(array.shape), array.tobytes("F" if fortran else "C"), fortran


def array_of(hint: Any, wire: Any) -> Any:
    """The array of these parts, of the dtype that the hint says, or that it was stored with if it says none."""
    import numpy as np

    text, shape, data, fortran = wire
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise ValueError(f"{text!r} is not the dtype of a stored array")
    dtype: Any = np.dtype(text)
    order: Any = "F" if fortran else "C"
    if len(shape) > _MOST_AXES or any(type(axis) is not int or axis < 0 for axis in shape):
        raise ValueError(f"{shape!r} is not the shape of an array")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"an array of {len(data)} bytes has not the shape {shape!r} of {text}")
    # A copy: the bytes cannot be written to, but an array can.
    made = np.ndarray(shape, dtype, data, order=order).copy("K") if data else np.empty(shape, dtype, order)
    scalar = scalar_of(hint)
    if scalar is None or issubclass(dtype.type, scalar) or dtype.newbyteorder("=") == np.dtype(scalar):
        return made
    if not np.can_cast(dtype, scalar, "safe"):
        raise ValueError(f"an array of {dtype} cannot become one of {scalar.__name__}")
    return made.astype(scalar)
