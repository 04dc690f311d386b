"""A ruling: what becomes of some of Flink's settings, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Ruling:
    """What becomes of some keys. Create it with `without_effect` or `refused`."""

    why: str
    """One sentence: why the keys have no effect, or why results would change."""
    keys: tuple[str, ...]
    """Keys; `<name>` stands for one part, and `*` at the end for any rest."""
    refused: bool = False
    fix: str = ""
    """What to do instead of setting a key that is refused."""
    harmless: tuple[str, ...] = ()
    """Values that are accepted although the key is refused: they ask for what Penstock does."""

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return [_pattern(key) for key in self.keys if "<" in key or key.endswith("*")]

    def matches(self, key: str) -> bool:
        """Return whether the key is one that a placeholder or `*` stands for."""
        return any(pattern.fullmatch(key) for pattern in self._patterns)

    def refuses(self, value: str) -> bool:
        """Return whether this value is an error."""
        return self.refused and value.strip().lower() not in {each.lower() for each in self.harmless}


def without_effect(why: str, keys: str) -> Ruling:
    """Return a ruling that accepts keys which change nothing.

    Args:
        why: One sentence that says why.
        keys: The keys, separated by spaces. `a.{b c.d}` stands for `a.b a.c.d`.
    """
    return Ruling(why=why, keys=tuple(_expanded(keys)))


def refused(why: str, keys: str, *, fix: str, harmless: tuple[str, ...] = ()) -> Ruling:
    """Return a ruling that refuses keys, because the job would do something else than the setting asks for.

    Args:
        why: One sentence that says why.
        keys: The keys, as for `without_effect`.
        fix: What to do instead.
        harmless: Values that ask for what Penstock does, and are accepted.
    """
    return Ruling(why=why, keys=tuple(_expanded(keys)), refused=True, fix=fix, harmless=harmless)


def _expanded(keys: str) -> Iterator[str]:
    for prefix, inner, plain in re.findall(r"(\S+)\{([^}]*)\}|(\S+)", keys):
        if plain:
            yield plain
        else:
            yield from (f"{prefix}{rest}" for rest in inner.split())


def _pattern(key: str) -> re.Pattern[str]:
    parts = re.split(r"(<[^>]*>|\*$)", key)
    # The last placeholder can hold dots, as the parameters of a reporter do.
    return re.compile(
        "".join(
            ".+"
            if part == "*" or (part.startswith("<") and not parts[at + 1])
            else "[^.]+"
            if part[:1] == "<"
            else re.escape(part)
            for at, part in enumerate(parts)
        )
    )
