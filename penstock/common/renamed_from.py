"""`RenamedFrom`: the name that a field of a state's type had before."""

from __future__ import annotations

import typing
from typing import Any

__all__ = ["RenamedFrom", "former_names"]


class RenamedFrom:
    """Put it into a field's annotation when the field is renamed: `amount: Annotated[float, RenamedFrom("price")]`.

    State that was stored with one of these names is then read into the field (docs/operate/upgrades.md). It may stay there:
    where the field has its present name already, it means nothing.
    """

    __slots__ = ("names",)

    def __init__(self, *names: str) -> None:
        if not names or not all(isinstance(name, str) and name for name in names):
            raise TypeError("RenamedFrom takes the former names of the field, each a non-empty string")
        self.names = names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RenamedFrom) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"RenamedFrom({', '.join(map(repr, self.names))})"


def former_names(annotation: Any) -> tuple[str, ...]:
    """The names that an annotation says its field had, in the order it says them."""
    if typing.get_origin(annotation) in (typing.Required, typing.NotRequired):
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) is not typing.Annotated:
        return ()
    return tuple(name for each in annotation.__metadata__ if isinstance(each, RenamedFrom) for name in each.names)
