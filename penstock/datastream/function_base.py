"""The base of all functions users write."""

from __future__ import annotations

from abc import ABC

from penstock.runtime.context import RuntimeContext


class Function(ABC):  # noqa: B024  methods to override, none required
    """`open` is called once before the first record of a subtask in a worker process, `close` when it is dropped.

    The same object serves many epochs. What must survive a failure belongs in state, not in attributes.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Prepare the function; called before the first record, in each worker process that runs a subtask of it.

        Args:
            runtime_context: Gives state, metrics and the number of the subtask.
        """

    def close(self) -> None:
        """Release what `open` acquired; called when the job ends or fails."""
