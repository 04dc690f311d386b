"""Type parameters of the generic classes in the API.

Each defaults to Any, so `stream: DataStream` and `class Count(KeyedProcessFunction)` pass a strict type checker without
parameters. Only type checkers see the defaults: Python 3.11 has none at runtime, where they would have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    T_co = TypeVar("T_co", covariant=True, default=Any)
    """A record, or the value of a declared type."""
    T1_co = TypeVar("T1_co", covariant=True, default=Any)
    T2_co = TypeVar("T2_co", covariant=True, default=Any)
    """The record types of two streams."""
    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    """The key and value types of a map."""
    K_co = TypeVar("K_co", covariant=True, default=Any)
    """The key of a record."""
    W = TypeVar("W", default=Any)
    """A window."""
    S_co = TypeVar("S_co", covariant=True, default=Any)
    """The state that a descriptor declares."""

    IN = TypeVar("IN", contravariant=True, default=Any)
    IN1 = TypeVar("IN1", contravariant=True, default=Any)
    IN2 = TypeVar("IN2", contravariant=True, default=Any)
    OUT = TypeVar("OUT", covariant=True, default=Any)
    """The input and output types of functions."""
    KEY = TypeVar("KEY", contravariant=True, default=Any)
    ACC = TypeVar("ACC", default=Any)
    """An accumulator."""

    # For methods: a function's result, and the records of another stream. Always inferred, so they have no default.
    R = TypeVar("R")
    U = TypeVar("U")
else:
    from typing import TypeVar

    IN, IN1, IN2, OUT, KEY, ACC, W, R, U = (
        TypeVar(name) for name in ("IN", "IN1", "IN2", "OUT", "KEY", "ACC", "W", "R", "U")
    )
    T, T_co, T1_co, T2_co, K, V, K_co, S_co = (
        TypeVar(name) for name in ("T", "T_co", "T1_co", "T2_co", "K", "V", "K_co", "S_co")
    )
