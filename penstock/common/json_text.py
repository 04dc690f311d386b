"""JSON of texts that UTF-8 does not have.

Python decodes file names and arguments that are not UTF-8 into unpaired surrogates, and errors quote them. JSON cannot
contain them. A process can nevertheless report such an error, and decide the end of its job.
"""

from __future__ import annotations

from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode


def in_utf_8(text: str) -> str:
    """Return the text with its unpaired surrogates as escapes, as `repr` shows them."""
    return text.encode(errors="backslashreplace").decode()


def to_json(value: Any) -> bytes:
    """Encode structs and plain values as JSON, with unpaired surrogates as escapes."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_in_utf_8(msgspec.to_builtins(value, enc_hook=_decoded)))


def _decoded(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _in_utf_8(value: Any) -> Any:
    if isinstance(value, str):
        return in_utf_8(value)
    if isinstance(value, list):
        return [_in_utf_8(each) for each in value]
    if isinstance(value, dict):
        return {_in_utf_8(key): _in_utf_8(each) for key, each in value.items()}
    return value
