"""The base class of all user functions."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from typing import TypeAlias

from penstock.common.type_parameters import OUT
from penstock.runtime.context import RuntimeContext
from penstock.runtime.output_tag import SideOutput

Results: TypeAlias = Iterable[OUT] | None
"""Any number of results. None means no results."""
ResultsAndSideOutputs: TypeAlias = Iterable[OUT | SideOutput] | None
"""Any number of results, with ``tag, value`` for side outputs. None means no results."""


class Function(ABC):  # noqa: B024  methods to override, none required
    """The base class of all user functions.

    ``open`` runs once in each worker process before the first record of a subtask, and ``close`` when the function is
    discarded. The same object serves many epochs. Keep anything that must survive a failure in state, not in
    attributes.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare the function, for example by obtaining state or opening connections.

        It is called before the first record, in each worker process that runs a subtask of the function.

        Args:
            runtime_context: Provides state, metrics and the subtask index.
        """

    def close(self) -> None:
        """Release the resources that ``open`` acquired. It is called when the job ends or fails."""
