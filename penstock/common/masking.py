"""Masks secrets in settings, texts and log records.

The key of a setting decides whether its value is a secret. A key is split into words at dots, dashes, underscores and
capital letters. Its value is a secret if

- the key starts with `state.checkpoints.fs.`: each store defines its own options;
- a word contains `password`, `passwd`, `passphrase`, `secret`, `credential`, `jaas` or `oauthbearer`, or is `pem`,
  `pwd` or `sas`, or ends with `token`;
- the last word is `key` (`fs.s3a.access.key`), or `key` follows a word such as `access` or `account`
  (`fs.azure.account.key.NAME`), or both are one word (`apikey`).

The value stays readable if the last word says that it is a place or a choice: `rest.auth.token-file`,
`fs.s3a.aws.credentials.provider`. `key.group` and `keys.max` stay readable, because `key` is not their last word.

In texts and in all other values, the passwords of URIs (`postgresql://user:password@host`) and the values of
assignments such as `password=...` and `"password": "..."` are masked. An assignment to a name that only ends with `key`
stays readable: such texts usually show the key of a record.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from penstock.common.options.checkpoints import STORE_OPTIONS

MASK = "***"

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SECRET_PART = re.compile(r"password|passwd|passphrase|secret|credential|jaas|oauthbearer|^pem$|^pwd$|^sas$|token$")
_OPENS = "access|account|api|auth|encryption|license|master|private|shared|signing|storage"
_OPENING_KEY = re.compile(rf"(?:{_OPENS}) ?key\b")
_READABLE = frozenset(
    {"file", "files", "path", "dir", "directory", "location", "provider", "class", "type", "enabled", "enable"}
)

_URI = re.compile(
    # A user name without a bracket, so not an IPv6 address; then a colon and no port.
    r"(://[^\s/?#:@\[\]]*:)(?!\d{1,5}(?:[/?#\s]|$|[\"'`)\]}>](?:[,;:\s)\]}>]|$)))((?:(?!://)\S)+)@"
)
_ASSIGNED = re.compile(
    r"(?P<name>[A-Za-z_][\w.-]*)(?P<between>[\"']\s*:\s*|=)"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s&;,]+)"
)
_SHORTEST = 4
"""Shorter values of secret settings are not searched in texts: they would mask ordinary words."""


def is_secret(key: str) -> bool:
    """Return whether the value of a setting is a secret."""
    if key.startswith(STORE_OPTIONS):
        return True
    words = _words(key)
    return _names_secret(words) or words[-1:] == ["key"]


def masked_setting(key: str, value: str) -> str:
    """Return the value of a setting for printing."""
    if not value:
        return value
    return MASK if is_secret(key) else masked_text(value)


def masked_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings for printing."""
    return {key: masked_setting(key, value) for key, value in settings.items()}


def secrets_of(settings: Mapping[str, str]) -> set[str]:
    """Return the secret values in settings, for `masked_text`: those of secret keys and the passwords of URIs."""
    found: set[str] = set()
    for key, value in settings.items():
        found.update(_secrets_in(key.removeprefix(STORE_OPTIONS), value))
    return found


def masked_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without these secrets, and without those that its URIs and assignments contain."""
    forms = {form for secret in secrets for form in _forms(secret) if len(form) >= _SHORTEST}
    if forms:
        # The longest first: one secret can begin with another.
        text = re.sub("|".join(map(re.escape, sorted(forms, key=len, reverse=True))), MASK, text)
    return _ASSIGNED.sub(_masked_assignment, _URI.sub(rf"\1{MASK}@", text))


class SecretFilter(logging.Filter):
    """Masks secrets in log records. Add it to handlers: the filters of a logger do not see records of its children."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        """Mask the secrets of these settings, in addition to those that can be recognized in any text."""
        super().__init__()
        self._secrets = secrets_of(settings or {})

    def learn(self, settings: Mapping[str, str]) -> None:
        """Mask the secrets of these settings as well."""
        self._secrets = self._secrets | secrets_of(settings)

    def masked(self, text: str) -> str:
        """Return a text without the secrets."""
        return masked_text(text, self._secrets)

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the message, the traceback and the stack of a record."""
        record.msg, record.args = masked_text(record.getMessage(), self._secrets), None
        if record.exc_info and not record.exc_text:
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        if record.exc_text:
            # Formatters print this text. Without it, they would format the error again.
            record.exc_text, record.exc_info = masked_text(record.exc_text, self._secrets), None
        if record.stack_info:
            record.stack_info = masked_text(record.stack_info, self._secrets)
        return True


_FORMATTER = logging.Formatter()


def _words(key: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(key)]


def _names_secret(words: list[str]) -> bool:
    if not words or words[-1] in _READABLE:
        return False
    return any(map(_SECRET_PART.search, words)) or _OPENING_KEY.search(" ".join(words)) is not None


def _masked_assignment(match: re.Match[str]) -> str:
    value = match["value"]
    if not _names_secret(_words(match["name"])) or value == MASK:
        return match[0]
    mark = value[0] if value[0] in "\"'" else ""
    return f"{match['name']}{match['between']}{mark}{MASK}{mark}" if value.strip("\"'") else match[0]


def _secrets_in(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _secrets_in(name, inner)
    elif isinstance(value, str):
        if value.startswith("{"):
            try:
                yield from _secrets_in(key, json.loads(value))
            except ValueError:
                pass
        if is_secret(key):
            yield value
        for match in _URI.finditer(value):
            yield match[2]
        for match in _ASSIGNED.finditer(value):
            if _names_secret(_words(match["name"])):
                yield match["value"].strip("\"'")


def _forms(secret: str) -> Iterator[str]:
    """Yield how texts can contain a secret: as in URIs, in JSON and in the repr of a string."""
    yield secret
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield json.dumps(secret)[1:-1]
    yield repr(secret)[1:-1]
