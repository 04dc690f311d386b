"""Definition of an option: a setting's key, type, default, documentation and aliases, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.common.setting_types import SettingType

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class Option(Generic[V]):
    """A setting. Create it with `option` or `optional`, and read it with `configuration.get(OPTION)`."""

    key: str
    type: SettingType[V]
    default: V
    """The value if the setting is absent."""
    default_text: str
    """The default as shown in docs/reference/settings.md."""
    meaning: str
    """A description for docs/reference/settings.md."""
    aliases: tuple[str, ...]
    """Alternative spellings of the key."""

    def read(self, settings: Mapping[str, str]) -> V:
        """Return the value in `settings` or the default. Raises BadSetting if the text cannot be parsed."""
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
    """Define an option that has a default. Write `default` as a user would."""
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
    """Define an option that is None if it is not set. `default_text` describes the behavior in that case."""
    return Option(key=key, type=type, default=None, default_text=default_text, meaning=meaning, aliases=aliases)
