"""Removes the secrets of the service from answers."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.common.masking import masked_settings, masked_text, secrets_of


class Masking:
    """Knows the secrets of the service: those in its settings, and its token."""

    def __init__(self, settings: Mapping[str, str], token: str = "") -> None:
        self._secrets = secrets_of(settings) | ({token} if token else set())

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        return masked_text(text, self._secrets)

    def settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return settings without secrets."""
        return {key: self.text(value) for key, value in masked_settings(settings).items()}
