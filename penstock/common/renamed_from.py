"""``RenamedFrom``: the former name of a field in a state's type."""

from __future__ import annotations

import typing
from typing import Any

__all__ = ["RenamedFrom", "former_names"]


class RenamedFrom:
    """Annotation that gives a renamed field its former names: ``amount: Annotated[float, RenamedFrom("price")]``.

    State stored under a former name is then read into the field (docs/operate/upgrades.md). The annotation can stay in
    place after the migration: it has no effect on state that already uses the current name.
    """

    __slots__ = ("names",)

    def __init__(self, *names: str) -> None:
        if not names or not all(isinstance(name, str) and name for name in names):
            raise TypeError("RenamedFrom requires one or more former names of the field, each a non-empty string")
        self.names = names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RenamedFrom) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"RenamedFrom({', '.join(map(repr, self.names))})"


def former_names(annotation: Any) -> tuple[str, ...]:
    """Return a field's former names, in the order its annotation lists them."""
    if typing.get_origin(annotation) in (typing.Required, typing.NotRequired):
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) is not typing.Annotated:
        return ()
    return tuple(name for each in annotation.__metadata__ if isinstance(each, RenamedFrom) for name in each.names)
