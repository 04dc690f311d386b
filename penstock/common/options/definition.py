"""An option: the one place that defines a setting's key, type, default, documentation and aliases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.common.setting_types import SettingType

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class Option(Generic[V]):
    """Made by `option` and `optional`. Read it with `configuration.get(OPTION)`."""

    key: str
    type: SettingType[V]
    default: V
    """The value where the setting is not set."""
    default_text: str
    """The default as docs/reference/settings.md shows it."""
    meaning: str
    """What the setting does, for docs/reference/settings.md."""
    aliases: tuple[str, ...]
    """Other spellings of the key."""

    def read(self, settings: Mapping[str, str]) -> V:
        """The value in `settings`, or the default. Raises BadSetting if the text is not a value of the type."""
        text = settings.get(self.key)
        return self.default if text is None else self.type.parse(self.key, text)


def option(
    key: str,
    type: SettingType[V],
    default: str,
    meaning: str,
    *,
    aliases: tuple[str, ...] = (),
    default_text: str = "",
) -> Option[V]:
    """Define an option whose default is a value. `default` is written as a user would write it."""
    return Option(
        key=key,
        type=type,
        default=type.parse(key, default),
        default_text=default_text or default,
        meaning=meaning,
        aliases=aliases,
    )


def optional(
    key: str, type: SettingType[V], default_text: str, meaning: str, *, aliases: tuple[str, ...] = ()
) -> Option[V | None]:
    """Define an option that is None where it is not set. `default_text` describes what holds then."""
    return Option(key=key, type=type, default=None, default_text=default_text, meaning=meaning, aliases=aliases)
