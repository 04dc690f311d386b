"""Detect command-line settings that the program overrides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from penstock.common.configuration import Configuration
from penstock.common.masking import masked_setting
from penstock.common.source_locations import calling_location
from penstock.errors import SourceLocation


class Overridden(NamedTuple):
    """A command-line setting that the program overrides."""

    key: str
    given: str
    """The value on the command line."""
    value: str | None
    """The program's value, or None if the program removed the setting."""
    location: SourceLocation | None
    """The line of the program that changed the setting."""

    def __str__(self) -> str:
        where = "" if self.location is None else f" ({self.location.file}:{self.location.line})"
        does = (
            f"removes {self.key}"
            if self.value is None
            else f"sets {self.key} to {masked_setting(self.key, self.value)}"
        )
        given = masked_setting(self.key, self.given)
        return f"The program {does}{where}, which overrides {given} from the command line."


class ProgramConfiguration(Configuration):
    """An environment's settings. Records which line of the program changed a command-line setting."""

    def __init__(self, values: Mapping[str, str], given: Mapping[str, str]) -> None:
        """Hold the settings `values`; `given` are those from the command line."""
        super().__init__()
        self._values.update(values)
        self._given = dict(given)
        self._changed: dict[str, SourceLocation | None] = {}

    def overridden(self) -> Iterator[Overridden]:
        """Yield the command-line settings that the program overrides."""
        for key, place in self._changed.items():
            if self._values.get(key) != self._given[key]:
                yield Overridden(key, self._given[key], self._values.get(key), place)

    def _note(self, key: str) -> None:
        if key in self._given:
            self._changed[key] = calling_location()

    def _set(self, key: str, value: Any) -> Configuration:
        self._note(key)
        return super()._set(key, value)

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Add the settings of another configuration, and record the calling line."""
        for key in other.key_set():
            self._note((prefix or "") + key)
        return super().add_all(other, prefix)

    def remove_config(self, key: str) -> bool:
        """Remove a setting, and record the calling line."""
        self._note(key)
        return super().remove_config(key)
