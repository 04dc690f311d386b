"""Floating-point numbers as text, the way Java writes them: `1.0E10` from ten million up, and below one thousandth."""

from __future__ import annotations

import struct
from decimal import Decimal


def number_text(value: float) -> str:
    """Return the shortest decimal that identifies this number."""
    return _java_number(value, repr(float(value)))


def float_text(value: float) -> str:
    """Return the shortest decimal that identifies this 32-bit float."""
    value = _as_float(value)
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return _java_number(value, next((text for text in texts if _as_float(float(text)) == value), repr(value)))


def _as_float(value: float) -> float:
    try:
        (rounded,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return float(rounded)


def _java_number(value: float, text: str) -> str:
    """Convert a number formatted by Python to Java's notation: 1.0E10 from ten million up and below one thousandth."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}[text]
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + exponent
    minus = "-" if sign else ""
    if value == 0:
        return f"{minus}0.0"
    if not 1e-3 <= abs(value) < 1e7:
        return f"{minus}{shown[0]}.{shown[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{shown}"
    return f"{minus}{shown[:point].ljust(point, '0')}.{shown[point:] or '0'}"
