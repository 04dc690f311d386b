"""Types of settings: each parses the text of a value, or describes the values it accepts."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from penstock.errors import PenstockError

_N = TypeVar("_N", int, float)
_V = TypeVar("_V", covariant=True)

_LAST_PORT = 65_535
MOST_WHOLE = 2**31 - 1
MOST_LONG = 2**63 - 1
MOST_BYTES = 1 << 50
MOST_MILLIS = 100 * 365 * 86_400_000
"""A hundred years, within the limits of the system's timers."""


class BadSetting(PenstockError):
    """A setting is unknown or its value is invalid; the message names the key.

    Operator action: correct the key or the value; the message lists the valid values or the closest key.
    """

    retryable = False


class SettingType(ABC, Generic[_V]):
    """A type of setting. `parse` converts text to a value or raises BadSetting with the accepted values."""

    accepted: str
    """The accepted values, phrased to follow 'Set it to'."""

    def parse(self, key: str, text: str) -> _V:
        """Return the value of a text.

        Args:
            key: The setting, for the error message.
            text: The text of the setting; surrounding white space is ignored.

        Raises:
            BadSetting: The text is not a valid value.
        """
        try:
            return self._read(self._stripped(text))
        except (ValueError, OverflowError):
            raise BadSetting(f"{key} is '{text}'.", fix=f"Set it to {self.accepted}.") from None

    def _stripped(self, text: str) -> str:
        return text.strip(" \t\r\n")

    @abstractmethod
    def _read(self, text: str) -> _V:
        """Parse the text, or raise ValueError."""


class Whole(SettingType[int]):
    """An integer within limits."""

    def __init__(self, least: int = 0, most: int = MOST_WHOLE) -> None:
        self.least, self.most = least, most
        self.accepted = f"an integer from {least:,} to {most:,}"

    def _read(self, text: str) -> int:
        # Stricter than `int`, which also accepts underscores and digits of other scripts.
        if not re.fullmatch(r"[0-9]{1,20}", text):
            raise ValueError
        return _within(int(text), self.least, self.most)


class Number(SettingType[float]):
    """A number within limits."""

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most
        self.accepted = f"a number from {least:g} to {most:g}"

    def _read(self, text: str) -> float:
        if not re.fullmatch(r"[0-9]*\.?[0-9]+(e[+-]?[0-9]+)?", text.lower()):
            raise ValueError
        number = float(text)
        if not math.isfinite(number):
            raise ValueError
        return _within(number, self.least, self.most)


class _WithUnit(SettingType[int]):
    units: dict[str, int]

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most

    def _read(self, text: str) -> int:
        match = re.fullmatch(r"([0-9]{1,20})\s*([a-z]*)", text.lower())
        if match is None or match[2] not in self.units:
            raise ValueError
        return _within(int(match[1]) * self.units[match[2]], self.least, self.most)


class Length(_WithUnit):
    """A duration in Flink's notation, returned in milliseconds: '500 ms', '10 s', '10 min', or plain milliseconds."""

    units = {"ms": 1, "": 1, "s": 1000, "sec": 1000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

    def __init__(self, least: int = 0, most: int = MOST_MILLIS) -> None:
        super().__init__(least, most)
        bounds = "of at most 100 years" if least == 0 else f"of at least {least} ms and at most 100 years"
        self.accepted = f"a duration {bounds}, such as '500 ms', '10 s' or '10 min' (units: ms, s, min, h, d)"


class Size(_WithUnit):
    """A size in bytes: '64 mb', or plain bytes."""

    units = {
        **{"": 1, "b": 1, "kb": 1 << 10, "k": 1 << 10, "mb": 1 << 20, "m": 1 << 20},
        **{"gb": 1 << 30, "g": 1 << 30, "tb": 1 << 40, "t": 1 << 40},
    }

    def __init__(self, least: int = 0, most: int = MOST_BYTES) -> None:
        super().__init__(least, most)
        self.accepted = f"a size in bytes from {least:,} to {most:,}, such as '64 mb' (units: b, kb, mb, gb, tb)"


class Ports(SettingType[tuple[int, ...]]):
    """A port, a range of ports, or a list of both. Returns the ports in the order given, each once."""

    accepted = "a port, a range or a list of both, such as 9067, 9067-9099 or 9067,9070-9099"

    def _read(self, text: str) -> tuple[int, ...]:
        ports: dict[int, None] = {}
        for part in text.split(","):
            match = re.fullmatch(r"\s*([0-9]{1,5})\s*(?:-\s*([0-9]{1,5})\s*)?", part)
            if match is None:
                raise ValueError
            first = _within(int(match[1]), 0, _LAST_PORT)
            last = first if match[2] is None else _within(int(match[2]), first, _LAST_PORT)
            ports.update(dict.fromkeys(range(first, last + 1)))
        return tuple(ports)


class Truth(SettingType[bool]):
    """`true` or `false`."""

    accepted = "true or false"

    def _read(self, text: str) -> bool:
        return {"true": True, "false": False}[_known(text.lower(), ("true", "false"))]


class Choice(SettingType[str]):
    """One of several names, case-insensitive. Returns the name as spelled here."""

    def __init__(self, *names: str, also: dict[str, str] | None = None) -> None:
        """Define the names. `also` maps alternative spellings to names."""
        self.names = names
        self.accepted = f"{', '.join(names[:-1])} or {names[-1]}"
        self._known = {_plain(name): name for name in names}
        self._known |= {_plain(spelled): name for spelled, name in (also or {}).items()}

    def _read(self, text: str) -> str:
        return self._known[_known(_plain(text), self._known)]


class Text(SettingType[str]):
    """Any text. If empty text is allowed, it is equivalent to leaving the setting out."""

    accepted = "a non-empty text"

    def __init__(self, may_be_empty: bool = True) -> None:
        self._may_be_empty = may_be_empty

    def _stripped(self, text: str) -> str:
        # White space can be part of the value: a directory name can begin or end with a blank.
        return text

    def _read(self, text: str) -> str:
        if not super()._stripped(text) and not self._may_be_empty:
            raise ValueError
        return text


class Pairs(SettingType[dict[str, str]]):
    """Names and values: `a:b,c:d`, or `{a: b, c: d}`. Quotes protect colons and commas."""

    accepted = "names and values like name:value,other:'with, comma'"

    def _read(self, text: str) -> dict[str, str]:
        if text.startswith("{") and text.endswith("}"):
            text = text[1:-1]
        pairs: dict[str, str] = {}
        for pair in quoted_split(text, ","):
            name, value = quoted_split(pair, ":")
            if not name or name in pairs:
                raise ValueError
            pairs[unquoted(name)] = unquoted(value)
        return pairs


def quoted_split(text: str, mark: str) -> list[str]:
    """Return the parts of a text between marks that no quotes protect, without surrounding blanks; none if empty."""
    parted = re.sub(rf"('[^']*'|\"[^\"]*\")|{mark}", lambda found: found[1] or "\0", text)
    return [part.strip() for part in parted.split("\0")] if text.strip() else []


def unquoted(text: str) -> str:
    """Return a text without the quotes around it; a doubled single quote stands for one."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1]
    return text


class Class(SettingType[str]):
    """One of several names, or a user-defined class."""

    def __init__(self, *names: str, also: dict[str, str]) -> None:
        self._choice = Choice(*names, also=also)
        self.accepted = f"{', '.join(names)} or package.module:Class"

    def _read(self, text: str) -> str:
        return text if re.fullmatch(r"[^\s:]+:[^\s:]+", text) else self._choice._read(text)


def _within(number: _N, least: _N, most: _N) -> _N:
    if not least <= number <= most:
        raise ValueError
    return number


def _plain(text: str) -> str:
    return text.lower().replace("_", "-")


def _known(text: str, names: Any) -> str:
    if text not in names:
        raise ValueError
    return text
