"""numpy's arrays as a type."""

from __future__ import annotations

from typing import Any

from penstock.state.serializers.array_wire import scalar_of, storable
from penstock.state.serializers.node import TypeNode, UnsupportedType

__all__ = ["Array", "array_widens"]


class Array(TypeNode):
    """A `numpy.ndarray`, of any dtype or of the one that the hint says. Subclasses, such as masked arrays, are refused.

    What comes back has the same dtype, shape, byte order and order of axes in memory, and can be written to.
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
            raise UnsupportedType(f"{hint!r} does not say one dtype", fix)
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
                f"Its dtype is {dtype}. Stored are booleans, numbers (not long doubles), dates and strings of a fixed "
                f"length. Convert it with .astype(...), {_PICKLE}",
            )
        if self.scalar is not None and not issubclass(dtype.type, self.scalar) and not self._is_same(dtype):
            fix = f"Convert it with .astype(numpy.{self.scalar.__name__}), or declare the dtype it has."
            raise self.refuse(value, f"Its dtype is {dtype}. {fix}")
        return value

    def _is_same(self, dtype: Any) -> bool:
        import numpy as np

        # There are two classes for one kind of 64 bits.
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
"""Classes of several dtypes, by their names."""


def _is_concrete(scalar: Any) -> bool:
    return scalar.__name__ not in _ABSTRACT


def _name(scalar: Any) -> str:
    import numpy as np

    # By its dtype: the same kind of number has several classes, and their names differ between versions of numpy.
    return str(np.dtype(np.dtype(scalar).str).name if _is_concrete(scalar) else scalar.__name__)


def array_widens(name: str, node: Array) -> bool:
    """Whether stored arrays of the dtype `name` (empty for any) are read as the declared ones without loss.

    Each array is stored with its dtype, and is brought to the declared one when it is read.
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
