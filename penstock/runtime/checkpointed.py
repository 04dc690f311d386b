"""Interfaces of functions with operator state, and the contexts passed to them. See docs/write/operator-state.md."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.common.typeinfo import Types
from penstock.runtime.raw_state import RawKeyedOutput, RawOutput, raw_inputs, raw_keyed_inputs
from penstock.state.descriptors import ListStateDescriptor
from penstock.state.operator_state import RAW, RAW_KEYED, OperatorStateStore
from penstock.state.shares import Share

if TYPE_CHECKING:
    from penstock.runtime.context import RuntimeContext
    from penstock.runtime.state_getters import StateGetters

_LIST_CHECKPOINTED = "_default_"
"""Flink's name for the list of a ListCheckpointed function."""


class Restored(NamedTuple):
    """The state that an operator's subtask resumes from."""

    checkpoint: int | None
    """None if the job starts without a checkpoint."""
    states: dict[str, Share]


class CheckpointedFunction(ABC):
    """Mixin that gives a function operator state: state that belongs to a subtask, not to a key.

    ``initialize_state`` is called once per object, before ``open``. ``snapshot_state`` is called at the end of every
    epoch; the checkpoint holds the contents of the states at that point. Any epoch can start with a new object in
    another worker, which is initialized from the last checkpoint, as after a failure. A function with a union list
    state is recreated for every epoch, because all subtasks must receive the union together.
    """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Bring the operator state up to date before the checkpoint is taken."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Get the function's states from ``context`` and restore its fields from them."""


class ListCheckpointed(ABC):
    """Like ``CheckpointedFunction``, for a single list that is split into even runs when the parallelism changes.

    ``restore_state`` is called once per object, before ``open``, if there is a checkpoint to restore.
    """

    state_type: Any = Types.PICKLED_BYTE_ARRAY()
    """The type of the elements: a ``Types.…`` or a type hint."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        """Return the elements to store in the checkpoint."""

    @abstractmethod
    def restore_state(self, state: list[Any]) -> None:
        """Restore the function from the elements that this subtask received."""


class FunctionInitializationContext:
    """Passed to ``initialize_state``."""

    def __init__(self, runtime: RuntimeContext, store: OperatorStateStore, restored: Restored) -> None:
        self._runtime = runtime
        self._store = store
        self._restored = restored

    def is_restored(self) -> bool:
        """Return whether the function resumes from a checkpoint."""
        return self._restored.checkpoint is not None

    def get_restored_checkpoint_id(self) -> int | None:
        """Return the id of the restored checkpoint, or None if the job starts without one."""
        return self._restored.checkpoint

    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the store of the function's list, union list and broadcast states."""
        return self._store

    def get_keyed_state_store(self) -> StateGetters:
        """Return the keyed states, for functions on keyed streams. ``open`` receives the same getters."""
        return self._runtime

    def get_runtime_context(self) -> RuntimeContext:
        """Return the runtime context that ``open`` will receive."""
        return self._runtime

    def get_raw_operator_state_inputs(self) -> list[io.BytesIO]:
        """Return one stream for each partition of raw state that this subtask received."""
        return raw_inputs(self._restored.states.get(RAW))

    def get_raw_keyed_state_inputs(self) -> list[tuple[int, io.BytesIO]]:
        """Return ``(key group, stream)`` for each key group of this subtask that has raw state."""
        return raw_keyed_inputs(self._restored.states.get(RAW_KEYED))


class FunctionSnapshotContext:
    """Passed to ``snapshot_state``. Each snapshot must write all raw state again; raw state not written is dropped."""

    def __init__(self, runtime: RuntimeContext, checkpoint_id: int, timestamp: int) -> None:
        self._runtime = runtime
        self._checkpoint_id = checkpoint_id
        self._timestamp = timestamp
        self._raw: dict[str, RawOutput | RawKeyedOutput] = {}

    def get_checkpoint_id(self) -> int:
        """Return the id of the checkpoint that is being taken, which is the number of its epoch."""
        return self._checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        """Return the epoch's processing time, in milliseconds."""
        return self._timestamp

    def get_raw_operator_state_output(self) -> RawOutput:
        """Return the output for raw operator state."""
        output = self._raw.setdefault(RAW, RawOutput())
        assert isinstance(output, RawOutput)
        return output

    def get_raw_keyed_operator_state_output(self) -> RawKeyedOutput:
        """Return the output for raw keyed state, for functions on keyed streams."""
        if RAW_KEYED not in self._raw:
            self._raw[RAW_KEYED] = RawKeyedOutput(*self._runtime.key_groups("raw keyed state"))
        output = self._raw[RAW_KEYED]
        assert isinstance(output, RawKeyedOutput)
        return output

    def raw_shares(self) -> dict[str, Share]:
        """Return the raw state that the function has written, by name. For internal use."""
        return {name: output.share() for name, output in self._raw.items()}


def holds_operator_state(function: Any) -> bool:
    return isinstance(function, (CheckpointedFunction, ListCheckpointed))


def initialize(function: Any, runtime: RuntimeContext, store: OperatorStateStore, restored: Restored) -> None:
    """Initialize a new function from the state that its subtask resumes from."""
    if isinstance(function, CheckpointedFunction):
        function.initialize_state(FunctionInitializationContext(runtime, store, restored))
    elif isinstance(function, ListCheckpointed):
        elements = store.get_list_state(_list_of(function))
        if restored.checkpoint is not None:
            function.restore_state(list(elements.get()))


def snapshot(
    function: Any, runtime: RuntimeContext, store: OperatorStateStore, checkpoint_id: int, timestamp: int
) -> dict[str, Share]:
    """Return all operator state of a function at the end of an epoch."""
    raw: dict[str, Share] = {}
    if isinstance(function, CheckpointedFunction):
        context = FunctionSnapshotContext(runtime, checkpoint_id, timestamp)
        function.snapshot_state(context)
        raw = context.raw_shares()
    elif isinstance(function, ListCheckpointed):
        store.get_list_state(_list_of(function)).update(list(function.snapshot_state(checkpoint_id, timestamp)))
    return store.snapshot() | raw


def _list_of(function: ListCheckpointed) -> ListStateDescriptor:
    return ListStateDescriptor(_LIST_CHECKPOINTED, function.state_type)
