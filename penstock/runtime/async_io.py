"""Asynchronous calls inside a chain: many records wait for their answers at once, in one task.

The user's function runs in an event loop, which has a thread of its own; everything of it runs there: `open`, the
calls, `timeout`, the retry predicates, `close`. Records come and results go in the task's thread alone, so the rest of
the chain knows nothing of it. At the end of an epoch nothing is in flight, so there is no state to keep.

Why a thread: calls go on while the task reads, works or waits for Spark, and a time-out means what it says. A loop
that is only turned when a record comes would see answers late, and time-outs early.
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
    """An asynchronous call had no result in time, retries included, and the function does not say what to do then."""


class CallCancelled(PenstockError):
    """An asynchronous call was cancelled, and not by Penstock."""


class AsyncOperator(Operator):
    """Calls an async function for each record, for at most `capacity` records at a time.

    A record counts until its results have gone on, as in Flink, also where they wait for those of a record before it.
    """

    reads_only = True
    """It keeps a copy."""

    def __init__(
        self, function: Any, *, ordered: bool, timeout_ms: int, capacity: int, retry: Any, handles_timeout: bool
    ) -> None:
        """`timeout_ms` is 0 for none. `retry` is an AsyncRetryStrategy, or None."""
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
        """Records whose results have not gone on."""
        self._given: deque[Call] = deque()
        """To the loop: calls to begin."""
        self._woken = False
        """Whether the loop knows of them."""
        self._finished: SimpleQueue[Call] = SimpleQueue()
        """From the loop: calls that have come to an end."""
        self._running: dict[Call, asyncio.Task[None]] = {}
        """In the order they began; the loop's own."""
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
        # Its own: who gave the record may change it while the call is under way.
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
        """A watermark takes its place in the line: what came before it goes before it. Nothing waits for that here.

        But for the last one, after which there is no `end_epoch`.
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
        """Wait until a call has finished, then pass on all that may go."""
        finished, line, moment = self._finished, self._line, self.moment
        while True:
            call = finished.get()
            if call.error is not None:
                # At once, out of order too: nothing of this epoch will be seen.
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
        """`value` is for error messages: they name the record of the innermost frame that has one."""
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
        # In this order: a call that is given after the last look at the line wakes the loop again.
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
        except BaseException as error:  # it is raised again in the task's thread
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
        # One that has timed out is out of the running, and what it gives comes too late.
        if self._running.pop(call, None) is not None:
            call.results = results
            self._finished.put(call)

    def _fail(self, call: Call, error: BaseException) -> None:
        if isinstance(error, GeneratorExit):
            raise error
        if self._running.pop(call, None) is None:
            # As in `_finish`; but asyncio must see a cancellation through.
            if isinstance(error, asyncio.CancelledError):
                raise error
            return
        if isinstance(error, asyncio.CancelledError):
            cancelled = CallCancelled(
                f"{describe(self.function)} was cancelled while it waited, by itself or by what it waited for.",
                fix="Catch asyncio.CancelledError where the function awaits what it may cancel.",
            )
            error = cancelled.with_traceback(error.__traceback__)
        call.error = error
        self._finished.put(call)

    def _expire(self) -> None:
        """Time out what is due. All have the same time, so whoever began first is due first: one timer does."""
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
                    f"{describe(self.function)} of operator '{self.name}' (uid '{self.uid}') gave no result within its "
                    f"time-out of {self.timeout_ms} ms for the record {_brief.repr(call.value)}.",
                    fix="Give a longer timeout, or say what results to go on with: def timeout(self, value) of an "
                    "AsyncFunction returns them.",
                )
            call.results = self._checked(self.function.timeout(call.value), "timeout")
        except BaseException as error:  # as above
            call.error = error
        self._finished.put(call)

    def _checked(self, results: Any, method: str) -> list[Any]:
        """The results as they are now: the function may use its objects again before they go on."""
        if isinstance(results, (str, bytes)) or not hasattr(results, "__iter__"):
            raise WrongResult(
                f"{describe(self.function)} returned {type(results).__name__} from {method}, which must return a list "
                f"of results.",
                fix="Write `return [value]`, or `return []` for none.",
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
