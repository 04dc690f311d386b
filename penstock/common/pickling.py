"""Pickling of users' objects, also of classes that exist only in the user's script."""

from __future__ import annotations

import pickle
from typing import Any

from penstock.common.program import dump_by_name


class Frozen:
    """An object that had to be written to be kept as it was."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def thaw(self) -> Any:
        """Only for what this job wrote: reading a pickle runs whatever code it names."""
        return pickle.loads(self.data)


def to_pickle(content: Any) -> bytes:
    try:
        return pickle.dumps(content, protocol=5)
    except (pickle.PicklingError, AttributeError):
        # A function or a class that no module holds.
        return dump_by_name(content)
