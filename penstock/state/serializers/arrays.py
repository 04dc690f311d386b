"""NumPy arrays as a type."""

from __future__ import annotations

from typing import Any

from penstock.state.serializers.array_wire import scalar_of, storable
from penstock.state.serializers.node import TypeNode, UnsupportedType

__all__ = ["Array", "array_widens"]


class Array(TypeNode):
    """A `numpy.ndarray` of any dtype, or of the hint's dtype. Subclasses, such as masked arrays, are rejected.

    Decoded arrays have the same dtype, shape, byte order and memory layout, and are writable.
    """

    immutable = hashable = False

    def __init__(self, hint: Any) -> None:
        import numpy as np

        self.wire_type = hint
        self.classes = (np.ndarray,)
        self.scalar = scalar_of(hint)
        if self.scalar is None:
            return
        if not (isinstance(self.scalar, type) and issubclass(self.scalar, np.generic)):
            fix = "Declare NDArray[numpy.float32], or numpy.ndarray for any dtype."
            raise UnsupportedType(f"{hint!r} does not specify a single dtype", fix)
        if _is_concrete(self.scalar) and not storable(np.dtype(self.scalar)):
            fix = f"Declare another dtype, a list of a dataclass, {_PICKLE}"
            raise UnsupportedType(f"An array of {self.scalar.__name__} cannot be stored", fix)

    def check(self, value: Any) -> Any:
        if type(value) is not self.classes[0]:
            raise self.refuse(value, "Convert it with numpy.asarray(...).")
        dtype = value.dtype  # type: ignore[attr-defined]
        if not storable(dtype):
            raise self.refuse(
                value,
                f"Its dtype is {dtype}. Supported dtypes are booleans, numbers (except long doubles), dates and "
                f"fixed-length strings. Convert it with .astype(...), {_PICKLE}",
            )
        if self.scalar is not None and not issubclass(dtype.type, self.scalar) and not self._is_same(dtype):
            fix = f"Convert it with .astype(numpy.{self.scalar.__name__}), or declare its dtype."
            raise self.refuse(value, f"Its dtype is {dtype}. {fix}")
        return value

    def _is_same(self, dtype: Any) -> bool:
        import numpy as np

        # NumPy has two classes for the same 64-bit type.
        return _is_concrete(self.scalar) and bool(dtype.newbyteorder("=") == np.dtype(self.scalar))

    def describe(self, inside: frozenset[str] = frozenset()) -> str:
        return "array" if self.scalar is None else f"array<{_name(self.scalar)}>"


_PICKLE = "or declare Types.PICKLED_BYTE_ARRAY()."


_ABSTRACT = frozenset(
    (
        "generic",
        "number",
        "integer",
        "signedinteger",
        "unsignedinteger",
        "inexact",
        "floating",
        "complexfloating",
        "flexible",
        "character",
    )
)
"""Names of the scalar classes that cover several dtypes."""


def _is_concrete(scalar: Any) -> bool:
    return scalar.__name__ not in _ABSTRACT


def _name(scalar: Any) -> str:
    import numpy as np

    # By its dtype: the same number type has several classes, whose names differ between NumPy versions.
    return str(np.dtype(np.dtype(scalar).str).name if _is_concrete(scalar) else scalar.__name__)


def array_widens(name: str, node: Array) -> bool:
    """Return whether stored arrays of the dtype `name` (empty for any) can be read as the declared type without loss.

    Each array is stored with its dtype, and converted to the declared one when it is read.
    """
    import numpy as np

    if node.scalar is None:
        return True
    stored = getattr(np, name, None) or getattr(np, f"{name}_", None)
    if not (isinstance(stored, type) and issubclass(stored, np.generic)):
        return False
    if issubclass(stored, node.scalar):
        return True
    return _is_concrete(stored) and _is_concrete(node.scalar) and bool(np.can_cast(stored, node.scalar, "safe"))
