"""NumPy arrays as msgpack: the dtype, the shape, the bytes, and whether the bytes are in Fortran order.

numpy is imported only if there is an array, or a type that names one.
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
"""Supported dtypes. Objects, structured types, variable-length strings and platform-dependent types are excluded."""
_MOST_AXES = 32


def is_array(value: Any) -> bool:
    """Return whether a value is exactly a NumPy array."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and type(value) is numpy.ndarray


def is_array_type(hint: Any) -> bool:
    """Return whether a hint is `numpy.ndarray`, or one with a dtype such as `numpy.typing.NDArray[numpy.float32]`."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and (hint is numpy.ndarray or typing.get_origin(hint) is numpy.ndarray)


def scalar_of(hint: Any) -> Any:
    """Return the scalar class in an array hint, or None if it allows any."""
    arguments = typing.get_args(hint)
    if len(arguments) != 2:
        return None
    scalar = next(iter(typing.get_args(arguments[1])), None)
    return None if scalar is Any or isinstance(scalar, typing.TypeVar) else scalar


def storable(dtype: Any) -> bool:
    """Return whether arrays of a dtype can be stored."""
    return _DTYPE.fullmatch(dtype.str) is not None


def wire_of(array: Any) -> ArrayWire:
    """Return the wire form of an array."""
    fortran = bool(array.flags.f_contiguous and not array.flags.c_contiguous)
    return array.dtype.str, list(array.shape), array.tobytes("F" if fortran else "C"), fortran


def array_of(hint: Any, wire: Any) -> Any:
    """Rebuild an array from its wire form, converted to the dtype of the hint if that has one."""
    import numpy as np

    text, shape, data, fortran = wire
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise ValueError(f"{text!r} is not a supported array dtype")
    dtype: Any = np.dtype(text)
    order: Any = "F" if fortran else "C"
    if len(shape) > _MOST_AXES or any(type(axis) is not int or axis < 0 for axis in shape):
        raise ValueError(f"{shape!r} is not a valid array shape")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{len(data)} bytes do not fit an array of shape {shape!r} and dtype {text}")
    # Copy, because the bytes are read-only but arrays are writable.
    made = np.ndarray(shape, dtype, data, order=order).copy("K") if data else np.empty(shape, dtype, order)
    scalar = scalar_of(hint)
    if scalar is None or issubclass(dtype.type, scalar) or dtype.newbyteorder("=") == np.dtype(scalar):
        return made
    if not np.can_cast(dtype, scalar, "safe"):
        raise ValueError(f"an array of {dtype} cannot be converted to {scalar.__name__}")
    return made.astype(scalar)
