"""Tags of side outputs. A process function yields `tag, value` to send a value to a side output."""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, overload

from penstock.common.names import check_name
from penstock.common.type_parameters import T
from penstock.common.typeinfo import TypeOf, Types, TypeSpec


class OutputTag(Generic[T]):
    """Names a side output. Tags with the same id refer to the same side output.

    Args:
        tag_id: Id of the side output.
        type_info: Type of its records; pickled if omitted.

    Example:
        ``yield tag, value`` in a process function sends a value to the side output, and
        ``stream.get_side_output(tag)`` reads it.
    """

    @overload
    def __init__(self, tag_id: str, type_info: TypeOf[T]) -> None: ...

    @overload
    def __init__(self: OutputTag[Any], tag_id: str, type_info: TypeSpec = None) -> None: ...

    def __init__(self, tag_id: str, type_info: TypeSpec = None) -> None:
        self.tag_id = check_name(tag_id, "The id of an OutputTag")
        self.declared = Types.ROW(type_info) if isinstance(type_info, list) else type_info
        """The type passed by the user; None for pickled records."""

    @property
    def type_info(self) -> Any:
        """The type of the side output's records."""
        return Types.PICKLED_BYTE_ARRAY() if self.declared is None else self.declared

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"


SideOutput: TypeAlias = tuple[OutputTag[Any], Any]
"""A tag and a value, which a function yields to send the value to a side output."""
