"""Settings of the command line that the program sets to something else, which wins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from penstock.common.configuration import Configuration, shown
from penstock.common.source_locations import calling_location
from penstock.errors import SourceLocation


class Overridden(NamedTuple):
    """A setting of the command line to which the program gave another value."""

    key: str
    given: str
    """On the command line."""
    value: str | None
    """What the program made of it; None if it removed the setting."""
    location: SourceLocation | None
    """The line that did it."""

    def __str__(self) -> str:
        where = "" if self.location is None else f" ({self.location.file}:{self.location.line})"
        does = f"removes {self.key}" if self.value is None else f"sets {self.key} to {shown(self.key, self.value)}"
        return f"The program {does}{where}. The {shown(self.key, self.given)} of the command line has no effect."


class ProgramConfiguration(Configuration):
    """An environment's settings. Remembers which line of the program changed a setting of the command line."""

    def __init__(self, values: Mapping[str, str], given: Mapping[str, str]) -> None:
        """`given`: what the command line set."""
        super().__init__()
        self._values.update(values)
        self._given = dict(given)
        self._changed: dict[str, SourceLocation | None] = {}

    def overridden(self) -> Iterator[Overridden]:
        """Yield the settings of the command line to which the program gave other values."""
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
        """Add the settings of another configuration, and note where the program does so."""
        for key in other.key_set():
            self._note((prefix or "") + key)
        return super().add_all(other, prefix)

    def remove_config(self, key: str) -> bool:
        """Remove a setting, and note where the program does so."""
        self._note(key)
        return super().remove_config(key)
