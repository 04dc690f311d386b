"""Functions that hold operator state: what they implement, and what they are given. See docs/write/operator-state.md."""

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
"""The name Flink has for the list of a ListCheckpointed."""


class Restored(NamedTuple):
    """What an operator's subtask goes on from."""

    checkpoint: int | None
    """None where the job begins."""
    states: dict[str, Share]


class CheckpointedFunction(ABC):
    """Mixed into a function, gives it operator state: state of a subtask, not of a key.

    `initialize_state` is called once in the life of the object, before `open`; `snapshot_state` at the end of every
    epoch. What is in the states then is in the checkpoint. An epoch may begin with another object, in another worker,
    at any time: it is given what the last checkpoint holds, as after a failure. One with a union list is made anew for
    every epoch, for all subtasks must be given the union together.
    """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None: ...

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None: ...


class ListCheckpointed(ABC):
    """As CheckpointedFunction, for one list that is dealt out in even runs when the parallelism changes.

    `restore_state` is called once in the life of the object, before `open`, unless the job begins.
    """

    state_type: Any = Types.PICKLED_BYTE_ARRAY()
    """Of the elements: a `Types.…` or a type hint."""

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]: ...

    @abstractmethod
    def restore_state(self, state: list[Any]) -> None: ...


class FunctionInitializationContext:
    """Given to `initialize_state`."""

    def __init__(self, runtime: RuntimeContext, store: OperatorStateStore, restored: Restored) -> None:
        self._runtime = runtime
        self._store = store
        self._restored = restored

    def is_restored(self) -> bool:
        """Whether there is a checkpoint that the function goes on from."""
        return self._restored.checkpoint is not None

    def get_restored_checkpoint_id(self) -> int | None:
        return self._restored.checkpoint

    def get_operator_state_store(self) -> OperatorStateStore:
        return self._store

    def get_keyed_state_store(self) -> StateGetters:
        """For functions on keyed streams: what `open` is given has the same getters."""
        return self._runtime

    def get_runtime_context(self) -> RuntimeContext:
        """What `open` will be given."""
        return self._runtime

    def get_raw_operator_state_inputs(self) -> list[io.BytesIO]:
        """A stream for each partition of raw state that is this subtask's now."""
        return raw_inputs(self._restored.states.get(RAW))

    def get_raw_keyed_state_inputs(self) -> list[tuple[int, io.BytesIO]]:
        """(key group, stream) for each key group of this subtask that raw state was written for."""
        return raw_keyed_inputs(self._restored.states.get(RAW_KEYED))


class FunctionSnapshotContext:
    """Given to `snapshot_state`. Raw state is written anew each time; what is not written is gone."""

    def __init__(self, runtime: RuntimeContext, checkpoint_id: int, timestamp: int) -> None:
        self._runtime = runtime
        self._checkpoint_id = checkpoint_id
        self._timestamp = timestamp
        self._raw: dict[str, RawOutput | RawKeyedOutput] = {}

    def get_checkpoint_id(self) -> int:
        return self._checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        """The epoch's clock, in milliseconds."""
        return self._timestamp

    def get_raw_operator_state_output(self) -> RawOutput:
        output = self._raw.setdefault(RAW, RawOutput())
        assert isinstance(output, RawOutput)
        return output

    def get_raw_keyed_operator_state_output(self) -> RawKeyedOutput:
        """For functions on keyed streams."""
        if RAW_KEYED not in self._raw:
            self._raw[RAW_KEYED] = RawKeyedOutput(*self._runtime.key_groups("raw keyed state"))
        output = self._raw[RAW_KEYED]
        assert isinstance(output, RawKeyedOutput)
        return output

    def raw_shares(self) -> dict[str, Share]:
        return {name: output.share() for name, output in self._raw.items()}


def holds_operator_state(function: Any) -> bool:
    return isinstance(function, (CheckpointedFunction, ListCheckpointed))


def initialize(function: Any, runtime: RuntimeContext, store: OperatorStateStore, restored: Restored) -> None:
    """Give a new function what its subtask goes on from."""
    if isinstance(function, CheckpointedFunction):
        function.initialize_state(FunctionInitializationContext(runtime, store, restored))
    elif isinstance(function, ListCheckpointed):
        elements = store.get_list_state(_list_of(function))
        if restored.checkpoint is not None:
            function.restore_state(list(elements.get()))


def snapshot(
    function: Any, runtime: RuntimeContext, store: OperatorStateStore, checkpoint_id: int, timestamp: int
) -> dict[str, Share]:
    """All operator state of a function at the end of an epoch."""
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
