"""Asynchronous calls inside a chain: one task waits for the results of many records concurrently.

The user's function runs in an event loop in a dedicated thread: `open`, the calls, `timeout`, the retry predicates and
`close` all run there. Only the task's thread takes records in and passes results on, so the rest of the chain is
unaware of the loop. Nothing is in flight at the end of an epoch, so the operator has no state to checkpoint.

The thread lets calls make progress while the task reads, computes or waits for Spark, and makes timeouts accurate. A
loop driven only by incoming records would see results late and time out early.
"""

from __future__ import annotations

import asyncio
import reprlib
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.runtime.async_lines import AsCompleted, Call, InOrder, Passing
from penstock.runtime.event_loop import GRACE_S, EventLoop
from penstock.runtime.operators import Emit, Operator, WrongResult, describe, method_of
from penstock.runtime.sharing import independent
from penstock.runtime.watermarks import GREATEST

if TYPE_CHECKING:
    from penstock.runtime.context import RuntimeContext


class CallTimedOut(PenstockError, TimeoutError):
    """An asynchronous call returned no result in time, retries included, and the function has no timeout handler.

    Operator action: set a longer timeout, or return fallback results from the function's `timeout` method.
    """


class CallCancelled(PenstockError):
    """An asynchronous call was cancelled by something other than Penstock.

    Operator action: catch asyncio.CancelledError in the function, or do not cancel its tasks.
    """


class AsyncOperator(Operator):
    """Calls an async function for each record, with at most `capacity` records in flight.

    As in Flink, a record counts as in flight until its results are emitted, even while they wait for the results of an
    earlier record.
    """

    reads_only = True
    """The operator copies the record."""

    def __init__(
        self, function: Any, *, ordered: bool, timeout_ms: int, capacity: int, retry: Any, handles_timeout: bool
    ) -> None:
        """`timeout_ms` is 0 for no timeout. `retry` is an AsyncRetryStrategy, or None."""
        super().__init__(function)
        self.ordered = ordered
        self.timeout_ms = timeout_ms
        self.capacity = capacity
        self.retry = retry
        self.handles_timeout = handles_timeout
        self._events: EventLoop | None = None

    def open(self, context: RuntimeContext, emit: Emit) -> None:
        self.emit = emit
        self.call = method_of(self.function, "async_invoke")
        self._line = InOrder() if self.ordered else AsCompleted()
        self._held = 0
        """Records whose results have not been emitted yet."""
        self._given: deque[Call] = deque()
        """Calls for the loop to start."""
        self._woken = False
        """Whether the loop has been woken to start them."""
        self._finished: SimpleQueue[Call] = SimpleQueue()
        """Completed calls, put here by the loop."""
        self._running: dict[Call, asyncio.Task[None]] = {}
        """In start order. Owned by the loop."""
        self._timer: asyncio.TimerHandle | None = None
        if self.retry is not None:
            predicate = self.retry.get_retry_predicate()
            self._poor = predicate.result_predicate() or _never
            self._passing = predicate.exception_predicate() or _never
        finished = self._finished
        self._events = EventLoop(f"async {self.uid}", lambda error: finished.put(Call.dead(error)))
        self._loop = self._events.loop
        if hasattr(self.function, "open"):
            try:
                self._events.call(self.function.open, context)
            except BaseException:
                self._events.close()
                raise

    # -- in the task's thread ------------------------------------------------------------------------------------------

    def process(self, value: Any) -> None:
        while self._held >= self.capacity:
            self._go_on()
        moment = self.moment
        # A copy: the upstream operator can change the record while the call is in flight.
        call = Call(independent(value), moment.timestamp, moment.channel)
        self._held += 1
        self._line.add(call)
        self._given.append(call)
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._begin)
        if not self._finished.empty():
            self._go_on()

    def advance(self, watermark: int | None, channel: str = "") -> None:
        """Queue a watermark behind the records that arrived before it, without waiting for them.

        The final watermark waits, because no `end_epoch` follows it.
        """
        if watermark == GREATEST:
            self.end_epoch()
        if self._held:
            self._line.mark(Passing(watermark, channel))
        else:
            super().advance(watermark, channel)

    def end_epoch(self) -> None:
        while self._held:
            self._go_on()

    def _go_on(self) -> None:
        """Wait until a call has finished, then emit everything that is ready."""
        finished, line, moment = self._finished, self._line, self.moment
        while True:
            call = finished.get()
            if call.error is not None:
                # Fail immediately, even out of order: no output of this epoch will be visible.
                self.emit_results(call.value, call)
            line.finished(call)
            if finished.empty():
                break
        before = moment.timestamp, moment.channel
        for each in line.ready():
            if isinstance(each, Passing):
                super().advance(each.watermark, each.channel)
            else:
                self._held -= 1
                moment.timestamp, moment.channel = each.timestamp, each.channel
                self.emit_results(each.value, each)
        moment.timestamp, moment.channel = before

    def emit_results(self, value: Any, call: Call) -> None:
        """Emit the results of a call. `value` is here for error messages, which show the innermost frame's record."""
        if call.error is not None:
            raise call.error
        for result in call.results:
            self.emit(result)

    def close(self) -> None:
        events, self._events = self._events, None
        if events is None:
            return
        try:
            if events.alive:
                events.call(self._cancel_all)
                if hasattr(self.function, "close"):
                    events.call(self.function.close)
        finally:
            events.close()

    def abandon(self) -> None:
        events, self._events = self._events, None
        if events is not None:
            events.close()

    # -- in the loop's thread ------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        # In this order: a call added after the loop below has seen an empty queue wakes the loop again.
        self._woken = False
        given, running, loop = self._given, self._running, self._loop
        deadline = loop.time() + self.timeout_ms / 1000
        run = self._once if self.retry is None else self._with_retries
        while given:
            call = given.popleft()
            call.deadline = deadline
            running[call] = loop.create_task(run(call))
        if self.timeout_ms and self._timer is None:
            self._timer = loop.call_at(deadline, self._expire)

    async def _once(self, call: Call) -> None:
        try:
            results = self._checked(await self.call(call.value), "async_invoke")
        except BaseException as error:  # re-raised in the task's thread
            self._fail(call, error)
        else:
            self._finish(call, results)

    async def _with_retries(self, call: Call) -> None:
        attempt = 1
        try:
            while True:
                try:
                    given = await self.call(call.value)
                except Exception as error:
                    if not (self._passing(error) and self.retry.can_retry(attempt)):
                        raise
                else:
                    if not (self._poor(given) and self.retry.can_retry(attempt)):
                        break
                await asyncio.sleep(self.retry.get_backoff_time_millis(attempt) / 1000)
                attempt += 1
            results = self._checked(given, "async_invoke")
        except BaseException as error:  # as above
            self._fail(call, error)
        else:
            self._finish(call, results)

    def _finish(self, call: Call, results: list[Any]) -> None:
        # A call that has timed out is not in `_running` any more; its results come too late and are dropped.
        if self._running.pop(call, None) is not None:
            call.results = results
            self._finished.put(call)

    def _fail(self, call: Call, error: BaseException) -> None:
        if isinstance(error, GeneratorExit):
            raise error
        if self._running.pop(call, None) is None:
            # Timed out, as in `_finish`; but asyncio must see a cancellation through.
            if isinstance(error, asyncio.CancelledError):
                raise error
            return
        if isinstance(error, asyncio.CancelledError):
            cancelled = CallCancelled(
                f"{describe(self.function)} was cancelled while it was awaiting, by itself or by what it awaited.",
                fix="Catch asyncio.CancelledError where the function awaits something that can be cancelled.",
            )
            error = cancelled.with_traceback(error.__traceback__)
        call.error = error
        self._finished.put(call)

    def _expire(self) -> None:
        """Time out calls that are due. All have the same timeout, so one timer for the oldest call is enough."""
        self._timer = None
        now = self._loop.time()
        for call, task in list(self._running.items()):
            if call.deadline > now:
                self._timer = self._loop.call_at(call.deadline, self._expire)
                return
            del self._running[call]
            task.cancel()
            self._time_out(call)

    def _time_out(self, call: Call) -> None:
        try:
            if not self.handles_timeout:
                raise CallTimedOut(
                    f"{describe(self.function)} of operator '{self.name}' (uid '{self.uid}') returned no result within "
                    f"its timeout of {self.timeout_ms} ms for the record {_brief.repr(call.value)}.",
                    fix="Set a longer timeout, or subclass AsyncFunction and return fallback results from "
                    "timeout(self, value).",
                )
            call.results = self._checked(self.function.timeout(call.value), "timeout")
        except BaseException as error:  # as above
            call.error = error
        self._finished.put(call)

    def _checked(self, results: Any, method: str) -> list[Any]:
        """Return copies of the results: the function can reuse its objects before they are emitted."""
        if isinstance(results, (str, bytes)) or not hasattr(results, "__iter__"):
            raise WrongResult(
                f"{describe(self.function)} returned {type(results).__name__} from {method}, which must return a list "
                f"of results.",
                fix="Write `return [value]`, or `return []` for no result.",
            )
        return [independent(result) for result in results]

    async def _cancel_all(self) -> None:
        tasks = list(self._running.values())
        self._running.clear()
        self._given.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_S)


def _never(given: Any) -> bool:
    return False


_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 120
