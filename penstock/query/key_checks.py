"""Check keys against the type of a state's keys: 1, 1.0, True and "1" are four different keys."""

from __future__ import annotations

from typing import Any

from penstock.query.errors import BadRequest, UnknownKey, WrongKeyType
from penstock.query.registry import QueryableState
from penstock.tables.keys import KeyShape, decode_key, key_shape

_KINDS = {
    "string": "str",
    "char": "str",
    "boolean": "bool",
    "bytes": "bytes",
    "byte": "int",
    "short": "int",
    "int": "int",
    "long": "int",
    "bigint": "int",
    "double": "float",
    "float": "float",
    "decimal": "Decimal",
    "date": "date",
    "time": "time",
    "uuid": "UUID",
}
"""The kinds of keys, as state tables name them, by the declared type of `key_by`."""


def decoded(key: bytes) -> Any:
    """Return a key that a client sent. Raises BadRequest."""
    try:
        return decode_key(key)
    except Exception as error:  # arbitrary bytes can raise anything in a decoder
        raise BadRequest(
            f"The key {key[:32].hex()} of the request cannot be decoded: {type(error).__name__}: {error}.",
            fix="Encode keys with penstock.state.keys.encode_key, as the client does.",
        ) from None


def declares_kind(state: QueryableState) -> bool:
    """Return whether the declared type of the keys is enough to check a key. Otherwise stored keys are needed."""
    return state.key_type in _KINDS


def missing(state: QueryableState, key: Any, checkpoint: int, stored: list[bytes]) -> UnknownKey | WrongKeyType:
    """Return the error for a key that has no state. `stored` are some keys that have."""
    kind = key_shape([key]).kind
    wanted = _KINDS.get(state.key_type)
    if wanted is None:
        sample = key_shape(map(decode_key, stored)) if stored else None
        if sample is not None and not _fits(sample, key):
            wanted = sample.kind
    elif kind == wanted or (wanted == "int" and kind == "large int"):
        wanted = None
    if wanted is not None:
        return WrongKeyType(
            f"The keys of queryable state '{state.name}' are of type {wanted}, but {key!r} is of type {kind}.",
            fix=f"Pass a key of type {wanted}.",
        )
    return UnknownKey(
        f"Queryable state '{state.name}' has nothing for key {key!r} at checkpoint {checkpoint}.",
        fix="Read it again after the job has processed a record with this key.",
    )


def _fits(shape: KeyShape, key: Any) -> bool:
    try:
        shape.to_arrow(key)
    except ValueError:
        return False
    return True
