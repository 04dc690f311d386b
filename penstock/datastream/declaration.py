"""What a program says of an operator after it has declared it: name, uid, parallelism, chaining."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from penstock.graph.logical import Node


class Declaration(ABC):
    """What streams and sinks have in common: both stand for the operator that was declared last."""

    @property
    @abstractmethod
    def _node(self) -> Node:
        """The operator in the graph."""

    def name(self, name: str) -> Self:
        """Name the operator, for plans, errors and the web page."""
        self._node.set_name(name)
        return self

    def uid(self, uid: str) -> Self:
        """Set the operator's identity: a changed program finds the operator's state by it."""
        self._node.set_uid(uid)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set how many subtasks the operator has, instead of the environment's parallelism."""
        self._node.set_parallelism(parallelism)
        return self

    def set_description(self, description: str) -> Self:
        """Describe the operator in more words than its name; shown in the plan."""
        self._node.set_description(description)
        return self

    def disable_chaining(self) -> Self:
        """Chain this operator to nothing, before or after it."""
        self._node.disable_chaining()
        return self

    def slot_sharing_group(self, slot_sharing_group: str) -> Self:
        """Accepted and shown in the plan; Spark shares cores among all tasks."""
        self._node.set_slot_sharing_group(slot_sharing_group)
        return self
