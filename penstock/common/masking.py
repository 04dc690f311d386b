"""Masks secrets in settings, arguments, texts and log records.

The key of a setting decides whether its value is a secret. A key is split into words at dots, dashes, underscores and
capital letters. Its value is a secret if

- the key starts with `state.checkpoints.fs.`: each store defines its own options;
- a word contains `password`, `passwd`, `passphrase`, `secret`, `credential`, `jaas` or `oauthbearer`, is `pem`, `pwd`
  or `sas`, or ends with `token`, with or without a number;
- the last word is `tokens` or `authorization`, or the last words are `key pair`;
- the last word is `key` (`fs.s3a.access.key`), or `key` or `keys` follows a word such as `access` or `account`
  (`fs.azure.account.key.NAME`), or both are one word (`apikey`).

The value stays readable if the last word says that it is a place, a choice or a number: `rest.auth.token-file`,
`fs.s3a.aws.credentials.provider`, `password.min-length`, and `max_tokens`. `key.group` and `keys.max` stay readable,
because `key` is not their last word.

In texts and in all other values, the secrets of URIs (`postgresql://user:password@host`), of assignments
(`password=...`, `"password": "..."`), of options (`--password ...`) and of the header `Authorization` are masked. What
follows a colon or a space can also be prose (`the token: expected a number`); it is masked if it looks like a secret.
An assignment to a name that only ends with `key` stays readable: such texts usually show the key of a record.

All searches take time in proportion to the text: it comes from users, and masking blocks other requests.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any
from urllib.parse import quote, quote_plus

from penstock.common.options.checkpoints import STORE_OPTIONS

MASK = "***"

_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SECRET_PART = re.compile(r"password|passwd|passphrase|secret|credential|jaas|oauthbearer|^pem$|^pwd$|^sas$|token\d*$")
_OPENS = "access|account|api|auth|encryption|license|master|private|shared|signing|storage"
_SECRET_WORDS = re.compile(rf"(?:{_OPENS}) ?keys?\b|\bkey ?pair$|\bauthorization$|(?<!max )(?<!min )(?<!num )\btokens$")
_READABLE = frozenset(
    {"file", "files", "path", "dir", "directory", "location", "provider", "class", "type", "enabled", "enable"}
) | frozenset({"bits", "count", "interval", "length", "limit", "max", "min", "size", "timeout", "ttl"})

_URI = re.compile(
    # A user name without a bracket, so not an IPv6 address; then a colon and no port.
    r"(://[^\s/?#:@\[\]]*:)(?!\d{1,5}(?:[/?#\s]|$|[\"'`)\]}>](?:[,;:\s)\]}>]|$)))((?:(?!://)\S)+)@"
)
_URI_TOKEN = re.compile(
    # A token in place of a user name: one of a known form, or a long one with a digit.
    r"(https?://)((?=(?:gh[a-z]|github_pat|glpat|hf|npm|pypi|sk)[_-]|[\w-]{0,99}?\d)[\w.~%-]{20,255}|gh[a-z]_\w+)@"
)
_NAMED = re.compile(
    # The possessive name and the lookbehind make the search linear.
    r"(?<![\w.-])(?:(?P<option>-[\w.-]++)[ \t]{1,8}(?=[^\s-])|(?P<name>[\w.-]++)(?P<between>"
    r"\\{0,8}[\"']\s{0,8}[:=]\s{0,8}|\\{0,8}[\"']\s{0,8},\s{0,8}(?=\\{0,8}[\"'])|[ \t]{0,8}[:=](?![=/])[ \t]{0,8}))"
)
_HINT = re.compile(r"pass|pwd|secret|cred|jaas|bearer|pem|sas|token|key|authorization", re.IGNORECASE)
_PASSWORD = re.compile(r"password|passwd|passphrase|pwd", re.IGNORECASE)
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*+)(?:\"|\\?$)|'((?:[^'\\]|\\.)*+)(?:'|\\?$)", re.DOTALL)
_ESCAPED = re.compile(r"(\\{1,8})([\"'])(.*?)(?:(?<!\\)\1\2|$)", re.DOTALL)
"""A string in JSON that is itself a string in JSON."""
_BARE = re.compile(r"((?:(?:basic|bearer|digest|negotiate)[ \t]+)?)([^\s&;,]+)", re.IGNORECASE)
_GLUED = re.compile(r"[^\s&;,)\]}>:\\]+")
"""What follows a quoted string without a delimiter."""
_LAST = re.compile(r"[ \t]*(?:$|[\n,;-])")
_CONSTANTS = frozenset({"True", "False", "None", "true", "false", "null", "str", "bytes", "int", "<token>"})
"""Values that are never secrets: also the types of arguments in the source lines of a traceback."""
_SHORTEST = 4
"""Shorter values of secret settings are not searched in texts: they would mask ordinary words."""
_MARGIN = 16 << 10
"""Characters behind the part of a text that is kept. A secret that begins before them ends within them."""


def is_secret(key: str) -> bool:
    """Return whether the value of a setting is a secret."""
    if key.startswith(STORE_OPTIONS):
        return True
    words = _words(key)
    return _names_secret(words) or words[-1:] == ["key"]


def masked_setting(key: str, value: str) -> str:
    """Return the value of a setting for printing."""
    if not value or value in _CONSTANTS:
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
    return found - _CONSTANTS


def secrets_of_arguments(arguments: Sequence[str]) -> set[str]:
    """Return the secret values in arguments of a program: `--password VALUE`, `--password=VALUE`, `PASSWORD=VALUE`."""
    found: set[str] = set()
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = argument.partition("=")
        if not equals and name.startswith("-") and not following.startswith("--"):
            value = following
        if _names_secret(_words(name)):
            found.add(value.strip("\"'"))
        found.update(_secrets_in("", argument))
    return found - {""} - _CONSTANTS


def masked_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without these secrets, and without those that can be recognized in any text."""
    forms = {form for secret in secrets for form in _forms(secret) if len(form) >= _SHORTEST}
    if forms:
        # The longest first: one secret can begin with another.
        text = re.sub("|".join(map(re.escape, sorted(forms, key=len, reverse=True))), MASK, text)
    text = _URI_TOKEN.sub(rf"\1{MASK}@", _URI.sub(rf"\1{MASK}@", text))
    parts, end = [], 0
    for start, stop in _assigned(text):
        parts += [text[end:start], MASK]
        end = stop
    return "".join([*parts, text[end:]])


def masked_start(text: str, length: int, mask: Callable[[str], str]) -> str:
    """Return the start of a masked text. The rest, which can have any length, is not masked.

    No part of a secret remains: `mask` gets more than is kept, and what it could have missed at the end is cut off.
    """
    if len(text) <= length + _MARGIN:
        masked, most = mask(text), length
    else:
        masked = mask(text[: length + _MARGIN])
        most = min(length, len(masked) - _MARGIN)
    return masked if len(masked) <= most else f"{masked[:most]}…"


class SecretFilter(logging.Filter):
    """Masks secrets in log records. Add it to handlers: the filters of a logger do not see records of its children."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        """Mask the secrets of these settings, in addition to those that can be recognized in any text."""
        super().__init__()
        self._secrets = secrets_of(settings or {})

    def learn(self, settings: Mapping[str, str], arguments: Sequence[str] = ()) -> None:
        """Mask the secrets of these settings, and of these arguments of a program, as well."""
        self._secrets = self._secrets | secrets_of(settings) | secrets_of_arguments(arguments)

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
    return any(map(_SECRET_PART.search, words)) or _SECRET_WORDS.search(" ".join(words)) is not None


def _assigned(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the secrets of assignments, options and headers are in a text, in order."""
    at = 0
    while (found := _NAMED.search(text, at)) is not None:
        # The value of another name can contain an assignment itself.
        at = found.end()
        name = found["name"] or found["option"]
        if _HINT.search(name) is None or not _names_secret(_words(name)):
            continue
        span = _value(text, found, name)
        if span is not None:
            yield span
            at = span[1]


def _value(text: str, found: re.Match[str], name: str) -> tuple[int, int] | None:
    """Return where the value of a secret name is in a text, or None if it is not one."""
    between, at = found["between"] or "", found.end()
    quoted = _QUOTED.match(text, at) or _ESCAPED.match(text, at)
    if "," in between:
        pair = found.start() > 1 and text[found.start() - 2] == "("
        if quoted is None or not (name.startswith("-") or (pair and text.startswith(")", quoted.end()))):
            return None
    if quoted is not None:
        start, end = quoted.span(quoted.lastindex or 0)
        certain, ends = False, True
        rest = _GLUED.match(text, quoted.end())
        if rest is not None and (start == end or rest[0].strip("\"'")):
            # Not a quoted value, but one that begins with quotes.
            start, end = at, rest.end()
    else:
        bare = _BARE.match(text, at)
        if bare is None or bare[2].strip("\"')") in _CONSTANTS:
            return None
        start, end = bare.span(2)
        certain, ends = bool(bare[1]), _LAST.match(text, end) is not None
    value = text[start:end]
    if value in ("", MASK) or not (certain or _is_value(name, between, value, ends)):
        return None
    return start, end


def _is_value(name: str, between: str, value: str, ends: bool) -> bool:
    """Return whether the text after a secret name is its value, and not prose or code. `ends`: no words follow it."""
    if between == "=" or between[:1] in ("'", '"', "\\"):
        return True
    digits = any(map(str.isdigit, value))
    if between and _PASSWORD.search(name) is None:
        return len(value) >= 20 or (len(value) >= 6 and digits)
    return digits or ends or "=" in between


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
        for pattern in (_URI, _URI_TOKEN):
            for match in pattern.finditer(value):
                yield match[2]
        for start, end in _assigned(value):
            yield value[start:end]


def _forms(secret: str) -> Iterator[str]:
    """Yield how texts can contain a secret: as in URIs, in JSON and in the repr of a string."""
    yield secret
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield json.dumps(secret)[1:-1]
    yield repr(secret)[1:-1]
