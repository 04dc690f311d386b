"""Numbers as the page shows them: short, and with a unit."""

from __future__ import annotations

from datetime import UTC, datetime

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("", " k", " M", " G", " T")
NONE = "–"
"""Stands for a value that does not exist."""


def number(value: float) -> str:
    """Return a count: `950`, `12.3 k`, `4.5 M`."""
    if abs(value) < 1000:
        return f"{value:.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:.1f}"
    return _scaled(value, 1000, _DECIMAL)


def rate(value: float, unit: str = "records") -> str:
    """Return a rate: `12.3 k records/s`."""
    return f"{number(value)} {unit}/s"


def size(value: float) -> str:
    """Return a number of bytes: `950 B`, `1.5 MiB`."""
    if value < 0:
        return NONE
    return f"{value:.0f} B" if value < 1024 else _scaled(value, 1024, tuple(f" {unit}" for unit in _BINARY))


def byte_rate(value: float) -> str:
    """Return a number of bytes per second."""
    return f"{size(value)}/s"


def duration(ms: float) -> str:
    """Return a length of time: `12 ms`, `3.4 s`, `5 min 3 s`, `2 h 5 min`, `3 d 4 h`."""
    if ms < 0:
        return NONE
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = int(seconds)
    for large, small, factor in (("min", "s", 60), ("h", "min", 3600), ("d", "h", 86400)):
        if factor == 86400 or whole < factor * (60 if factor == 60 else 24):
            rest = whole % factor // (factor // (24 if factor == 86400 else 60))
            return f"{whole // factor} {large}" + (f" {rest} {small}" if rest else "")
    raise AssertionError


def share(value: float) -> str:
    """Return a share: `42 %`."""
    return f"{100 * value:.0f} %"


def utc(ms: float) -> str:
    """Return a time in UTC, with milliseconds. A time that has not come is a dash."""
    if ms < 0:
        return NONE
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}.{int(ms) % 1000:03} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{ms:.0f} ms"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 job`, `2 jobs`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    place = 0
    # 999.96 would be rounded to 1000.
    while abs(value) >= base - 0.05 and place + 1 < len(units):
        value /= base
        place += 1
    return f"{value:.0f}{units[place]}" if abs(value) >= 100 else f"{value:.1f}{units[place]}"
