"""The general window operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError
from penstock.runtime.context import RuntimeContext
from penstock.runtime.metrics import LATE_RECORDS
from penstock.runtime.moment import NoTimestamp
from penstock.runtime.operators import Emit, EpochInfo, Operator
from penstock.runtime.output_tag import OutputTag
from penstock.runtime.timers import TimeDomain
from penstock.runtime.watermarks import GREATEST, LEAST
from penstock.runtime.windows.assigners import MergingWindowAssigner, WindowAssigner
from penstock.runtime.windows.contents import NAME, Accumulated, Combiner, Contents, Evicted, Listed
from penstock.runtime.windows.contexts import AssignerContext, EvictingContext, TriggeringContext, WindowContext
from penstock.runtime.windows.evictors import Evictor
from penstock.runtime.windows.merging import MergingWindowSet
from penstock.runtime.windows.scopes import KeyedStateStore, Scopes
from penstock.runtime.windows.triggers import ContinuousEventTimeTrigger, EventTimeTrigger, Trigger, TriggerResult
from penstock.runtime.windows.window import TimeWindow
from penstock.state.descriptors import ValueStateDescriptor
from penstock.state.entries import StateTypeChanged
from penstock.state.keys import decode_key
from penstock.state.serializers import Hinted

NO_END_TIMERS = ValueStateDescriptor("_no timers at ends", bytes)
"""Always empty. The presence of this state records how the operator's windows were kept."""

WITH_TIMES = ValueStateDescriptor("_records with times", bytes)
"""Always empty. The presence of this state records that windows hold records with timestamps, for an evictor."""


class WrongTriggerResult(PenstockError):
    """A trigger returned something other than a TriggerResult.

    Operator action: return a member of `TriggerResult` from each method of the trigger.
    """


class MergedIntoThePast(PenstockError):
    """An assigner merged windows into one that has already ended.

    Operator action: change the assigner, so that merged windows end after the watermark.
    """


@dataclass(kw_only=True)
class WindowDescription:
    """The declaration of a windowed operation in the user's program. Pickled with the operator."""

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any]
    evictor: Evictor[Any, Any] | None
    allowed_lateness: int
    late_tag: OutputTag | None
    combiner: Combiner | None
    """None if windows keep their records."""
    value_type: Any
    """Type of the accumulator or the records in state; values of a Hinted type can be pickled."""
    call: str = ""
    """The method of the function: `apply` or `process`; empty if the combined value is the result."""
    of_all: bool = False
    """Whether the function is called without a key."""


class WindowOperator(Operator):
    """Runs windows with any assigner, trigger and evictor."""

    keyed = True

    def __init__(self, description: WindowDescription, function: Any) -> None:
        super().__init__(function)
        self.described = description
        hint = description.value_type
        self.state_hint = hint if isinstance(hint, Hinted) else None

    @property
    def kind(self) -> str:
        return "Window"

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        super().open(context, emit)
        described = self.described
        assert self.overlay is not None
        combiner = described.combiner
        if combiner is not None and combiner.function is not self.function and hasattr(combiner.function, "open"):
            combiner.function.open(context)
        self.assigner, self.trigger = described.assigner, described.trigger
        self.event_time = self.assigner.is_event_time()
        self.serializer = self.assigner.get_window_serializer()
        self.scopes = Scopes(self.overlay)
        self.former_states = self.scopes.trigger.leftovers()
        """State of triggers in an earlier version of the program."""
        self.assigner_context = AssignerContext(self, context)
        self.trigger_context = TriggeringContext(self, context, self.scopes)
        self.contents: Contents
        if described.evictor is not None:
            evicting = EvictingContext(self, context)
            self.contents = Evicted(self.scopes.contents, described.evictor, evicting, combiner)
        elif combiner is not None:
            self.contents = Accumulated(self.scopes.contents, combiner, described.value_type)
        else:
            self.contents = self._records()
        self.merging = isinstance(self.assigner, MergingWindowAssigner)
        self.trigger_context.merging = self.merging
        if self.merging:
            self.merged_windows = self.overlay.register(ValueStateDescriptor("_merging windows", bytes))
        store = KeyedStateStore(self.scopes.function, self.merging)
        self.window_context: WindowContext[Any] = WindowContext(self, context, store, None)
        self._call = getattr(self.function, described.call, self.function) if described.call else None
        self._clears = described.call == "process" and hasattr(self.function, "clear")
        self.late_records = context.get_metrics_group().counter(LATE_RECORDS)
        if not self._sets_timers_at_ends():
            self.overlay.register(NO_END_TIMERS)
        if described.evictor is not None:
            self.overlay.register(WITH_TIMES)

    def begin_epoch(self, epoch: EpochInfo) -> None:
        super().begin_epoch(epoch)
        self._check_contents()

    def _check_contents(self) -> None:
        """Raise StateTypeChanged if an evictor was added to or removed from windows that are stored."""
        overlay, evictor = self.overlay, self.described.evictor
        assert overlay is not None
        with_times = overlay.is_stored(WITH_TIMES.name)
        if evictor is None:
            other = with_times
        else:
            # Earlier versions did not record this; records kept without a type had another schema.
            other = not with_times and overlay.stored_schema(f"{self.scopes.contents.name} {NAME}") == "list any"
        if other:
            had, has = ("without", "with") if evictor is not None else ("with", "without")
            raise StateTypeChanged(
                f"The stored windows of operator '{self.name}' (uid '{self.uid}') were kept {had} an evictor, and the "
                f"program now runs them {has} one. Only windows with an evictor keep the timestamps of their records.",
                fix="Restore with the previous evictor setting, or change the uid of the windows to start without the "
                "stored ones.",
            )

    def _sets_timers_at_ends(self) -> bool:
        """Return whether every open window with an accumulator has a timer for its last time; see PaneOperator."""
        described = self.described
        return (
            described.combiner is None
            or described.evictor is not None
            or not self.event_time
            or described.allowed_lateness == 0
            or type(described.trigger) in (EventTimeTrigger, ContinuousEventTimeTrigger)
        )

    # -- records -------------------------------------------------------------------------------------------------------

    def process(self, value: Any) -> None:
        timestamp = self.moment.timestamp
        if timestamp is None and self.event_time:
            raise self._no_timestamp()
        given = LEAST if timestamp is None else timestamp
        windows = self.assigner.assign_windows(value, given, self.assigner_context)
        if self.merging:
            skipped = self._add_merging(value, given, windows)
        else:
            skipped = True
            for window in windows:
                if not self._is_late(window):
                    skipped = False
                    self._enter(window)
                    self._add(value, given, window)
        if skipped and self.event_time and given + self.described.allowed_lateness <= self.watermark:
            self._late(value)

    def _add_merging(self, value: Any, timestamp: int, windows: Any) -> bool:
        """Add a record to windows that merge. Return whether none of its windows is still open."""
        known = self._merging_set()
        for window in [each for each in known.windows() if self._is_late(each)]:
            # Kept because of the allowed lateness in an earlier version of the program.
            self._enter(window, known.state_window(window))
            self._forget(window, known)
        skipped = True
        for window in windows:
            actual = known.add(window, self._merge)
            if self._is_late(actual):
                known.retire(actual)
                continue
            skipped = False
            if known.changed:
                self.merged_windows.update(known.dump())
            self._enter(actual, known.state_window(actual))
            self._add(value, timestamp, actual)
        return skipped

    def _add(self, value: Any, timestamp: int, window: Any) -> None:
        self.contents.add(value, None if timestamp == LEAST else timestamp)
        self._act(self.trigger.on_element(value, timestamp, window, self.trigger_context), window)
        time = self._cleanup_time(window)
        if time != GREATEST:
            if self.event_time:
                self.trigger_context.register_event_time_timer(time)
            else:
                self.trigger_context.register_processing_time_timer(time)

    def _late(self, value: Any) -> None:
        tag = self.described.late_tag
        if tag is None:
            self.late_records.inc()
        else:
            emit = self.sides.get(tag.tag_id)
            if emit is not None:
                emit(value)

    # -- timers --------------------------------------------------------------------------------------------------------

    def on_timer(self, time: int, namespace: bytes, domain: TimeDomain) -> None:
        window = self.serializer.decode(namespace)
        known = None
        if self.merging:
            known = self._merging_set()
            state_window = known.state_window(window)
            if state_window is None:
                # The trigger did not delete the timer of a window that is gone.
                return
            self._enter(window, state_window)
        else:
            self._enter(window)
            if self.trigger_context.name != namespace:
                self._forget_former(namespace)
                return
        by_event_time = domain is TimeDomain.EVENT_TIME
        cleanup = self._cleanup_time(window)
        # An earlier version of the program might have set the timer, for another lateness or another kind of time.
        decides = by_event_time == self.event_time
        if time > cleanup if decides else self._is_over(cleanup):
            self._forget(window, known)
            return
        trigger = self.trigger
        asked = trigger.on_event_time if by_event_time else trigger.on_processing_time
        self._act(asked(time, window, self.trigger_context), window)
        if decides and time == cleanup:
            self._forget(window, known)
        elif cleanup != GREATEST:
            timers = self.overlay.timers["EVENT_TIME" if self.event_time else "PROCESSING_TIME"]  # type: ignore[union-attr]
            timers.ensure(cleanup, namespace)

    def _is_over(self, cleanup: int) -> bool:
        return cleanup <= (self.watermark if self.event_time else self.moment.processing_time)

    def _forget(self, window: Any, known: MergingWindowSet | None) -> None:
        """Remove all state of the current window."""
        self.contents.clear()
        self.trigger.clear(window, self.trigger_context)
        self._forget_former_states()
        if self._clears:
            self.function.clear(self.window_context.begin(window))
        if known is not None:
            known.retire(window)
            self.merged_windows.update(known.dump() or None)

    def _forget_former(self, name: bytes) -> None:
        """Remove a window of a kind that only an earlier version of the program had."""
        assert self.overlay is not None
        assert self.overlay.key is not None
        self.scopes.enter(self.overlay.key, name)
        self.contents.clear()
        self._forget_former_states()

    def _forget_former_states(self) -> None:
        assert self.overlay is not None
        names = self.overlay.unclaimed(self.scopes.trigger.name)
        if names:
            self.former_states.remove(names)

    def _records(self) -> Contents:
        """Return the contents for windows that keep their records."""
        return Listed(self.scopes.contents, self.described.value_type)

    # -- current window ------------------------------------------------------------------------------------------------

    def _enter(self, window: Any, state_window: Any = None) -> None:
        """Make a window of the current key the current window."""
        assert self.overlay is not None
        assert self.overlay.key is not None
        encode: Any = self.serializer.encode
        name = self.trigger_context.name = encode(window)
        self.scopes.enter(self.overlay.key, name, None if state_window is None else encode(state_window))

    def _act(self, result: TriggerResult, window: Any) -> None:
        if result is TriggerResult.CONTINUE:
            return
        if type(result) is not TriggerResult:
            raise WrongTriggerResult(
                f"{type(self.trigger).__name__} returned {result!r}; a trigger must return a TriggerResult.",
                fix="Return TriggerResult.CONTINUE to do nothing.",
            )
        if result.is_fire():
            self.contents.fire(lambda values: self._evaluate(window, values), window)
        if result.is_purge():
            self.contents.clear()

    def _evaluate(self, window: Any, values: list[Any]) -> None:
        moment = self.moment
        before = moment.timestamp
        if type(window) is TimeWindow:
            moment.timestamp = window.end - 1
        call = self._call
        if call is None:
            for value in values:
                self.emit(value)
        else:
            described = self.described
            about = window if described.call == "apply" else self.window_context.begin(window)
            if described.of_all:
                results = call(about, values)
            else:
                assert self.overlay is not None
                assert self.overlay.key is not None
                results = call(decode_key(self.overlay.key), about, values)
            self._emit_all(results, described.call)
        moment.timestamp = before

    def _cleanup_time(self, window: Any) -> int:
        time: int = window.max_timestamp()
        return min(time + self.described.allowed_lateness, GREATEST) if self.event_time else time

    def _is_late(self, window: Any) -> bool:
        return self.event_time and self._cleanup_time(window) <= self.watermark

    def _merging_set(self) -> MergingWindowSet:
        assert isinstance(self.assigner, MergingWindowAssigner)
        return MergingWindowSet(self.assigner, self.serializer, self.merged_windows.value() or b"")

    def _merge(self, window: Any, merged: list[Any], state_window: Any, moved: list[Any]) -> None:
        """Merge windows: the states and timers of their triggers, then their contents."""
        if self._is_late(window):
            raise MergedIntoThePast(
                f"{type(self.assigner).__name__} merged windows of '{self.name}' (uid '{self.uid}') into {window!r}, "
                f"which ended before the watermark {self.watermark}.",
                fix="Make the merged window cover all windows that it replaces.",
            )
        assert self.overlay is not None
        key = self.overlay.key
        assert key is not None
        encode: Any = self.serializer.encode
        context = self.trigger_context
        self._enter(window, state_window)
        context.merged = [key + encode(each) for each in merged]
        self.trigger.on_merge(window, context)
        for each in merged:
            self._enter(each)
            self.trigger.clear(each, context)
            self._forget_former_states()
            time = self._cleanup_time(each)
            if time != GREATEST:
                if self.event_time:
                    context.delete_event_time_timer(time)
                else:
                    context.delete_processing_time_timer(time)
        self._enter(window, state_window)
        self.contents.merge(key + encode(state_window), [key + encode(each) for each in moved])

    def _no_timestamp(self) -> NoTimestamp:
        return NoTimestamp(
            f"A record without a timestamp reached '{self.name}' (uid '{self.uid}'), which has event-time windows.",
            fix="Call assign_timestamps_and_watermarks(...) before key_by, or use processing-time windows.",
            locations=(self.location,),
        )

    def close(self) -> None:
        super().close()
        combiner = self.described.combiner
        if combiner is not None and combiner.function is not self.function and hasattr(combiner.function, "close"):
            combiner.function.close()
