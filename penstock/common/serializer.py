"""The base class of serializers that programs define."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import BinaryIO, Generic, TypeVar

from penstock.absent import explain_absent

__all__ = ["TypeSerializer"]

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes values to a stream and reads them. Penstock chooses its serializers by type and calls none of these."""

    @abstractmethod
    def serialize(self, element: T, stream: BinaryIO) -> None:
        """Write a value.

        Args:
            element: The value.
            stream: The stream to write to.
        """

    @abstractmethod
    def deserialize(self, stream: BinaryIO) -> T:
        """Read a value.

        Args:
            stream: The stream to read from.
        """


explain_absent(__name__)
