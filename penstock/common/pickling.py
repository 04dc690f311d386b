"""Pickling of users' objects, also of classes that exist only in the user's script."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle


def to_pickle(content: Any) -> bytes:
    try:
        return pickle.dumps(content, protocol=5)
    except (pickle.PicklingError, AttributeError):
        # A class of the user's script or of a function: it exists in no module of a worker and must travel along.
        return cloudpickle.dumps(content, protocol=5)  # type: ignore[no-any-return]
