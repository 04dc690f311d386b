"""Properties of an operator that a program sets after declaring it: name, uid, parallelism, chaining."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Self

from penstock.common.tuning import accept
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.graph.logical import GraphError, Node


class Declaration(ABC):
    """The base of streams and sinks. Both stand for the operator declared last."""

    @property
    @abstractmethod
    def _node(self) -> Node:
        """The operator in the graph."""

    def name(self, name: str) -> Self:
        """Name the operator.

        Args:
            name: The name shown in plans, log lines, error messages and the web page.
        """
        self._node.set_name(name)
        return self

    def uid(self, uid: str) -> Self:
        """Set the unique ID under which the operator's state is stored.

        Args:
            uid: An ID that no other operator of the program uses.
        """
        self._node.set_uid(uid)
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks of the operator, overriding the environment's parallelism.

        Args:
            parallelism: The number of subtasks.
        """
        self._node.set_parallelism(parallelism)
        return self

    def set_description(self, description: str) -> Self:
        """Describe the operator in the plan, in more detail than its name.

        Args:
            description: The text to show.
        """
        self._node.set_description(description)
        return self

    def disable_chaining(self) -> Self:
        """Keep this operator out of any chain."""
        self._node.disable_chaining()
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Accept a slot sharing group and show it in the plan. Spark shares cores among all tasks anyway.

        Args:
            slot_sharing_group: The group, or its name.
        """
        group = slot_sharing_group
        self._node.set_slot_sharing_group(group.get_name() if isinstance(group, SlotSharingGroup) else group)
        accept("DataStream.slot_sharing_group")
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Accept the call without effect: state is stored under ``uid``.

        Args:
            uid_hash: A hash of 32 hexadecimal digits.

        Raises:
            GraphError: If it is not such a hash.
        """
        if not re.fullmatch("[0-9A-Fa-f]{32}", uid_hash):
            raise GraphError(f"A uid hash has 32 hexadecimal digits, but is {uid_hash!r}.")
        accept("DataStream.set_uid_hash")
        return self
