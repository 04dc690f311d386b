"""Calls and settings of PyFlink that Penstock accepts although they change nothing here.

The code that accepts one calls `note`. When a job starts, `report` logs one paragraph about all of them.
"""

from __future__ import annotations

import logging

_logger = logging.getLogger("penstock")


class Noted:
    """What a program has called or set without effect, by name, with the reason."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._reported: set[str] = set()

    def note(self, name: str, why: str) -> None:
        """Remember a call such as `DataStream.set_buffer_timeout`, or a setting, and why it has no effect."""
        self._reasons.setdefault(name, why)

    def paragraph(self) -> str:
        """Return one paragraph about everything noted since the last call; empty if nothing was."""
        by_reason: dict[str, list[str]] = {}
        for name, why in self._reasons.items():
            if name not in self._reported:
                by_reason.setdefault(why.rstrip("."), []).append(name)
        self._reported |= self._reasons.keys()
        if not by_reason:
            return ""
        listed = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
        return f"Accepted without effect: {listed}. You can leave them out."


_program = Noted()


def note(name: str, why: str) -> None:
    """Remember that this program called or set `name`, which has no effect.

    Args:
        name: The call, such as `DataStream.set_buffer_timeout`, or the key of a setting.
        why: One sentence that says why Penstock does not need it.
    """
    _program.note(name, why)


def report() -> None:
    """Log one paragraph, at INFO, about what has been noted since the last report."""
    text = _program.paragraph()
    if text:
        _logger.info("%s", text)
