"""The runtime contexts of user functions: RuntimeContext in `open`, and the context passed with each record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic

from penstock.common.type_parameters import K_co
from penstock.errors import PenstockError
from penstock.runtime.metrics import MetricGroup, MetricRegistry
from penstock.runtime.state_getters import StateGetters
from penstock.runtime.timers import OfTimer, TimerService
from penstock.state.descriptors import StateDescriptor
from penstock.state.key_groups import range_of_subtask
from penstock.state.keys import decode_key
from penstock.state.operator_state import OperatorStateStore
from penstock.state.overlay import Overlay
from penstock.state.shares import Share

if TYPE_CHECKING:
    from penstock.runtime.operators import Operator


class NotKeyed(PenstockError):
    """Keyed state was requested on a stream that is not keyed.

    Operator action: call `key_by(...)` before the operator.
    """


class NoSubtask(PenstockError):
    """A subtask's index was requested in a source's first chain, which runs once per Spark partition.

    Operator action: move the operator behind an exchange, for example with `rebalance()`.
    """


class RuntimeContext(StateGetters):
    """Passed to ``open`` of every user function. Describes the subtask and provides its keyed states."""

    def __init__(
        self,
        *,
        task_name: str,
        uid: str,
        subtask: int | None,
        parallelism: int,
        max_parallelism: int,
        overlay: Overlay | None,
        metrics: MetricRegistry,
        job_parameters: dict[str, str] | None = None,
    ) -> None:
        self._task_name = task_name
        self.uid = uid
        self.subtask = subtask
        """None in the first chain of a source, which runs once per Spark partition."""
        self.parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._overlay = overlay
        self._metrics = metrics
        self._job_parameters = job_parameters or {}
        self.of_record: FunctionContext | None = None
        """For sink writers: the context of the current record."""

    def get_task_name(self) -> str:
        """Return the name of the operator."""
        return self._task_name

    def get_number_of_parallel_subtasks(self) -> int:
        """Return the operator's parallelism."""
        self._require_subtask()
        return self.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the operator's max parallelism: the number of its key groups."""
        return self._max_parallelism

    def get_index_of_this_subtask(self) -> int:
        """Return the index of this subtask, starting at 0."""
        return self._require_subtask()

    def get_attempt_number(self) -> int:
        """Return 0: functions cannot see how often their epoch was attempted."""
        return 0

    def get_task_name_with_subtasks(self) -> str:
        """Return the operator's name with the subtask, counted from 1, and the parallelism: ``count (2/4)``."""
        return f"{self._task_name} ({self._require_subtask() + 1}/{self.parallelism})"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a global job parameter of the program, or ``default_value`` if it is not set."""
        return self._job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        """Return the group in which to register metrics, in ``open`` or later.

        Tasks report their metrics to the driver at the end of each epoch.
        """
        return MetricGroup(self._metrics)

    def function_context(self, operator: Operator) -> FunctionContext:
        """Return the context that is passed with each record. Called by operators."""
        return FunctionContext(operator, self._overlay)

    def timer_context(self, operator: Operator) -> OnTimerContext:
        """Return the context that is passed with each timer. Called by operators."""
        return OnTimerContext(operator, self._overlay)

    def each_key(self, state: str) -> Iterator[None]:
        """Make each key of this subtask that has the value state current, in turn. Called at the end of an epoch."""
        assert self._overlay is not None
        groups = range_of_subtask(self._require_subtask(), self.parallelism, self._max_parallelism)
        for key in self._overlay.keys(state, groups):
            self._overlay.key = key
            yield
        self._overlay.key = None

    def operator_state_store(self, restored: dict[str, Share]) -> OperatorStateStore:
        """Return an empty store on top of the restored checkpoint state. Called by operators."""
        return OperatorStateStore(self.described(), self._require_subtask(), restored)

    def key_groups(self, wanted: str) -> tuple[str, range, int]:
        """Return the operator's description, this subtask's key groups and their total number.

        Raises:
            NotKeyed: The operator's stream is not keyed.
        """
        if self._overlay is None:
            raise NotKeyed(not_keyed(self._task_name, self.uid, wanted), fix=KEY_BY_FIX)
        groups = range_of_subtask(self._require_subtask(), self.parallelism, self._max_parallelism)
        return self.described(), groups, self._max_parallelism

    def described(self) -> str:
        """Return the operator's name and uid, for messages."""
        return f"operator '{self._task_name}' (uid '{self.uid}')"

    def _register(self, descriptor: StateDescriptor) -> Any:
        if self._overlay is None:
            raise NotKeyed(not_keyed(self._task_name, self.uid, f"state '{descriptor.name}'"), fix=KEY_BY_FIX)
        return self._overlay.register(descriptor)

    def _require_subtask(self) -> int:
        if self.subtask is None:
            raise NoSubtask(
                f"Operator '{self._task_name}' (uid '{self.uid}') requests its subtask index, but it runs in the first "
                f"chain of a source, once per Spark partition. Call set_parallelism(n) on it to make it a task."
            )
        return self.subtask


KEY_BY_FIX = "Call key_by(...) before this operator: keyed state belongs to a key."


def not_keyed(name: str, uid: str, wanted: str) -> str:
    """Return the message of NotKeyed."""
    return f"Operator '{name}' (uid '{uid}') requests {wanted}, but its stream is not keyed."


class FunctionContext(Generic[K_co]):
    """Passed to process functions with each record. A subtask uses one object for all records."""

    def __init__(self, operator: Operator, overlay: Overlay | None) -> None:
        self._overlay = overlay
        self._moment = operator.moment
        self._timer_service = TimerService(operator, overlay)

    def get_current_key(self) -> K_co:
        """Return the key of the current record or timer."""
        if self._overlay is None or self._overlay.key is None:
            raise NotKeyed("The stream is not keyed, so it has no current key.")
        return decode_key(self._overlay.key)  # type: ignore[no-any-return]

    def timestamp(self) -> int | None:
        """Return the record's event time in milliseconds, or None if no timestamps were assigned."""
        return self._moment.timestamp

    def timer_service(self) -> TimerService:
        """Return the service that registers and deletes timers and reports the current times."""
        return self._timer_service


class OnTimerContext(OfTimer, FunctionContext[K_co]):
    """Passed to ``on_timer``. The current key is the timer's key."""
