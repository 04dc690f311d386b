"""Settings by key. Penstock uses Flink's keys where Flink has them; ``spark.*`` keys are passed to Spark unchanged."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from penstock.common.java_numbers import number_text
from penstock.common.masking import masked_settings
from penstock.common.options import OPTIONS, BadSetting, Option

V = TypeVar("V")

_BINARY = "!!binary |-\n  "
"""The tag of bytes in YAML, as Flink writes it."""


class Configuration:
    """A mapping of setting keys to string values."""

    def __init__(self, other: Configuration | None = None) -> None:
        self._values: dict[str, str] = dict(other._values) if other is not None else {}
        self._typed: dict[str, Any] = dict(other._typed) if other is not None else {}
        """Values that were not set as text. As in Flink, 1 and '1' differ, although they read the same."""

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """Return a configuration with these settings; values are stored as text."""
        configuration = cls()
        for key, value in map.items():
            configuration._set(key, value)
        configuration._typed.clear()
        return configuration

    def _set(self, key: str, value: Any) -> Configuration:
        self._values[key] = _text(value)
        if isinstance(value, str):
            self._typed.pop(key, None)
        else:
            self._typed[key] = value
        return self

    def get(self, option: Option[V]) -> V:
        """Return the value of one of Penstock's own options, or its default."""
        return option.read(self._values)

    def get_string(self, key: str, default_value: str) -> str:
        """Return a setting as text, or the default if it is not set."""
        return self._values.get(key, default_value)

    def set_string(self, key: str, value: str) -> Configuration:
        """Set a setting to a string."""
        return self._set(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        """Return a setting as an integer, or the default if it is not set."""
        return int(self._read(key, int, "an integer")) if key in self._values else default_value

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set a setting to an integer."""
        return self._set(key, value)

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """Return a setting as a boolean, or the default if it is not set."""
        if key not in self._values:
            return default_value
        text = self._values[key].strip().lower()
        if text not in ("true", "false"):
            raise BadSetting(f"{key} is '{self._values[key]}'.", fix="Set it to true or false.")
        return text == "true"

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set a setting to a boolean."""
        return self._set(key, value)

    def get_float(self, key: str, default_value: float) -> float:
        """Return a setting as a float, or the default if it is not set."""
        return float(self._read(key, float, "a number")) if key in self._values else default_value

    def set_float(self, key: str, value: float) -> Configuration:
        """Set a setting to a float."""
        return self._set(key, float(value))

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """Return a setting as bytes, or the default if it is not set."""
        if key not in self._values:
            return bytearray(default_value)
        text = self._values[key]
        try:
            return bytearray(base64.b64decode("".join(text.removeprefix(_BINARY).split()), validate=True))
        except ValueError:
            raise BadSetting(f"The value of {key} is not binary.", fix="Set it with set_bytearray(...).") from None

    def set_bytearray(self, key: str, value: bytes | bytearray) -> Configuration:
        """Set a setting to bytes. Its text is that of YAML."""
        return self._set(key, bytes(value))

    @staticmethod
    def parse_list_value(value: str | None) -> list[str]:
        """Return the elements of a list: ``[a, b]``, lines that start with ``- ``, or ``a;b``."""
        text = (value or "").strip()
        if not text:
            return []
        if text.startswith("[") and text.endswith("]"):
            return [_unquoted(part) for part in text[1:-1].split(",") if part.strip()]
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if all(line.startswith("- ") for line in lines):
            return [_unquoted(line[2:]) for line in lines]
        return text.split(";")

    def _read(self, key: str, kind: Callable[[str], Any], accepted: str) -> Any:
        """Parse a setting with its declared type, or with ``kind`` if it is a key the program defined."""
        text = self._values[key]
        if key in OPTIONS:
            return OPTIONS[key].type.parse(key, text)
        try:
            return kind(text)
        except ValueError:
            raise BadSetting(f"{key} is '{text}'.", fix=f"Set it to {accepted}.") from None

    def key_set(self) -> set[str]:
        """Return the keys of all settings."""
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        """Return whether a key is set."""
        return key in self._values

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Add the settings of another configuration, with ``prefix`` prepended to each key."""
        for key, value in other._values.items():
            self._values[(prefix or "") + key] = value
            self._typed.pop((prefix or "") + key, None)
        self._typed |= {(prefix or "") + key: value for key, value in other._typed.items()}
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Add all settings to a dict: numbers, booleans and bytes as such, the others as text."""
        target_dict.update(self._values | self._typed)

    def remove_config(self, key: str) -> bool:
        """Remove a setting, and return whether it was set."""
        self._typed.pop(key, None)
        return self._values.pop(key, None) is not None

    def to_dict(self) -> dict[str, str]:
        """Return a copy of all settings."""
        return dict(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and (other._values, other._typed) == (self._values, self._typed)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"Configuration({masked_settings(dict(sorted(self._values.items())))})"

    def __str__(self) -> str:
        shown = masked_settings(self._values)
        return f"{{{', '.join(f'{key}={value}' for key, value in shown.items())}}}"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return number_text(value)
    return f"{_BINARY}{base64.b64encode(value).decode()}" if isinstance(value, bytes) else str(value)


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
