"""Asynchronous calls that fail, hang or return bad results: retries, timeouts and error messages."""

import asyncio
import os

import pytest

import penstock
from penstock.common import Time, Types
from penstock.datastream import AsyncDataStream, AsyncFunction, AsyncRetryStrategy, StreamExecutionEnvironment
from penstock.datastream.async_retry_predicates import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from penstock.datastream.async_retry_strategies import (
    NO_RETRY_STRATEGY,
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
)
from penstock.driver.epoch_errors import UserFunctionFailed
from penstock.testing import JobHarness

OURS = os.path.dirname(penstock.__file__)
LONG = Time.minutes(5)
SHORT = Time.milliseconds(1)
"""For calls that never end: any timeout is reached."""
WAITS = {"ordered": AsyncDataStream.ordered_wait, "unordered": AsyncDataStream.unordered_wait}
RETRIES = {
    "ordered": AsyncDataStream.ordered_wait_with_retry,
    "unordered": AsyncDataStream.unordered_wait_with_retry,
}
both = pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
both_with_retry = pytest.mark.parametrize("wait", RETRIES.values(), ids=RETRIES)


@pytest.fixture
def env():
    return StreamExecutionEnvironment.get_execution_environment()


def failure_of(stream):
    with JobHarness(stream) as job, pytest.raises(UserFunctionFailed) as caught:
        job.epoch()
    text = str(caught.value)
    assert OURS not in text, "the message shows a frame of Penstock"
    assert "base_events.py" not in text, "the message shows a frame of the event loop"
    assert "concurrent/futures" not in text, "the message shows a frame of the thread hand-over"
    return text, caught.value.failures[0]


class Hangs(AsyncFunction):
    """Returns all numbers except negative ones, for which it hangs."""

    async def async_invoke(self, value):
        if value < 0:
            await asyncio.Event().wait()
        return [value]


class HangsWithFallback(Hangs):
    def timeout(self, value):
        return [("late", value)]


class TestTimeOuts:
    @both
    def test_the_timeout_method_returns_the_results_to_emit(self, env, wait):
        with JobHarness(wait(env.from_collection([-1, -2]), HangsWithFallback(), SHORT)) as job:
            assert job.run() == [("late", -1), ("late", -2)]

    def test_a_timed_out_call_makes_room_for_another(self, env):
        stream = AsyncDataStream.ordered_wait(env.from_collection([-1, -2, -3]), HangsWithFallback(), SHORT, 1)
        with JobHarness(stream) as job:
            assert job.run(2) == [("late", -1), ("late", -2), ("late", -3)]

    def test_a_timed_out_call_is_cancelled(self, env):
        class Notes(HangsWithFallback):
            def open(self, runtime_context):
                self.notes = []

            async def async_invoke(self, value):
                try:
                    await super().async_invoke(value)
                except asyncio.CancelledError:
                    self.notes.append(value)
                    raise
                return list(self.notes)

        with JobHarness(AsyncDataStream.ordered_wait(env.from_collection([-1, 5]), Notes(), SHORT, 1)) as job:
            assert job.run() == [("late", -1), -1]

    def test_each_call_has_its_own_start_time(self, env):
        """When the timeout of the first call would expire, that of the second one, which hangs, has not expired."""

        class TakesTime(HangsWithFallback):
            async def async_invoke(self, value):
                if value == 1:
                    loop = asyncio.get_running_loop()
                    clock = loop.time
                    loop.time = lambda: clock() + 0.08
                return await super().async_invoke(value)

        stream = AsyncDataStream.ordered_wait(env.from_collection([1, -2]), TakesTime(), Time.milliseconds(100), 1)
        with JobHarness(stream) as job:
            assert job.run() == [1, ("late", -2)]

    @both
    def test_the_error_of_a_timeout_names_operator_record_and_timeout(self, env, wait):
        stream = wait(env.from_collection([-7]), Hangs(), SHORT).name("ask").uid("asking")
        text, failure = failure_of(stream)
        assert (failure.operator, failure.uid, failure.record) == ("ask", "asking", "-7")
        assert "Hangs of operator 'ask' (uid 'asking') returned no result within its timeout of 1 ms" in text
        assert "for the record -7. Set a longer timeout" in text
        assert failure.locations[0].file == __file__

    def test_a_plain_async_function_can_time_out(self, env):
        async def hang(value):
            await asyncio.Event().wait()

        text, _ = failure_of(AsyncDataStream.unordered_wait(env.from_collection([1]), hang, SHORT))
        assert "hang of operator 'async wait operator'" in text

    def test_an_error_in_timeout_is_reported_as_a_user_error(self, env):
        class Raises(Hangs):
            def timeout(self, value):
                raise LookupError("too late")

        text, failure = failure_of(AsyncDataStream.ordered_wait(env.from_collection([-1]), Raises(), SHORT).uid("ask"))
        assert (failure.uid, failure.record) == ("ask", "-1")
        assert "in timeout" in text
        assert text.endswith("LookupError: too late")

    def test_a_function_can_call_the_default_timeout_method(self, env):
        class Passes(Hangs):
            def timeout(self, value):
                return super().timeout(value)

        text, _ = failure_of(AsyncDataStream.ordered_wait(env.from_collection([-1]), Passes(), SHORT))
        assert text.endswith("TimeoutError: The asynchronous call for -1 timed out.")

    @both_with_retry
    def test_the_timeout_covers_all_attempts_and_delays(self, env, wait):
        class Never(AsyncFunction):
            async def async_invoke(self, value):
                return []

            def timeout(self, value):
                return ["gave up"]

        strategy = FixedDelayRetryStrategy(10**9, 10**6, empty_result_predicate, None)
        with JobHarness(wait(env.from_collection([1]), Never(), SHORT, strategy)) as job:
            assert job.run() == ["gave up"]

    @both
    def test_a_result_after_the_timeout_is_dropped(self, env, wait):
        class Deaf(AsyncFunction):
            """Does not end when it is cancelled, but then returns a result or fails."""

            async def async_invoke(self, value):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if value == 2:
                        raise LookupError from None
                return ["too late"]

            def timeout(self, value):
                return [value]

        with JobHarness(wait(env.from_collection([1, 2]), Deaf(), SHORT)) as job:
            assert job.run(1) == [1, 2]

    def test_a_timeout_of_zero_means_no_timeout(self, env):
        async def answer(value):
            await asyncio.sleep(0)
            return [value]

        with JobHarness(AsyncDataStream.ordered_wait(env.from_collection([1, 2]), answer, Time.milliseconds(0))) as job:
            assert job.run() == [1, 2]


class Flaky(AsyncFunction):
    """Fails or returns nothing the first times for each record, then returns (record, number of attempts)."""

    def __init__(self, times, fails_with=None):
        self.times = times
        self.fails_with = fails_with

    def open(self, runtime_context):
        self.attempts = {}

    async def async_invoke(self, value):
        self.attempts[value] = self.attempts.get(value, 0) + 1
        await asyncio.sleep(0)
        if self.attempts[value] <= self.times:
            if self.fails_with is not None:
                raise self.fails_with(f"{value} is not there")
            return []
        return [(value, self.attempts[value])]


class TestRetries:
    @both_with_retry
    def test_a_call_is_retried_while_the_exception_is_retryable(self, env, wait):
        strategy = AsyncRetryStrategy.fixed_delay(
            2, 1, None, lambda error: exception_type_predicate(error, ConnectionError)
        )
        with JobHarness(wait(env.from_collection(range(5)), Flaky(2, ConnectionError), LONG, strategy)) as job:
            assert sorted(job.run()) == [(value, 3) for value in range(5)]

    def test_a_call_is_not_retried_after_another_exception(self, env):
        strategy = FixedDelayRetryStrategy(2, 1, None, lambda error: isinstance(error, ConnectionError))
        stream = AsyncDataStream.ordered_wait_with_retry(
            env.from_collection([1]), Flaky(1, LookupError), LONG, strategy
        )
        text, failure = failure_of(stream)
        assert text.endswith("LookupError: 1 is not there")
        assert failure.record == "1"

    def test_retries_end_when_the_attempts_are_used_up(self, env):
        strategy = FixedDelayRetryStrategy(2, 1, None, has_exception_predicate)
        stream = AsyncDataStream.ordered_wait_with_retry(
            env.from_collection([1]), Flaky(3, LookupError), LONG, strategy
        )
        text, _ = failure_of(stream)
        assert text.count("LookupError: 1 is not there") == 1
        assert "in async_invoke" in text

    @both_with_retry
    def test_a_call_is_retried_while_the_result_matches_the_predicate(self, env, wait):
        strategy = AsyncRetryStrategy.exponential_backoff(3, 1, 2, 2.0, empty_result_predicate, None)
        with JobHarness(wait(env.from_collection(range(5)), Flaky(2), LONG, strategy)) as job:
            assert sorted(job.run()) == [(value, 3) for value in range(5)]

    def test_the_last_result_is_emitted_even_if_it_matches_the_retry_predicate(self, env):
        strategy = FixedDelayRetryStrategy(1, 1, empty_result_predicate, None)
        stream = AsyncDataStream.ordered_wait_with_retry(env.from_collection([1, 2]), Flaky(9), LONG, strategy)
        with JobHarness(stream) as job:
            assert job.run() == []

    def test_the_no_retry_strategy_never_retries(self, env):
        assert AsyncRetryStrategy.no_restart() is NO_RETRY_STRATEGY
        stream = AsyncDataStream.ordered_wait_with_retry(
            env.from_collection([1]), Flaky(1, LookupError), LONG, NO_RETRY_STRATEGY
        )
        failure_of(stream)

    def test_exponential_delays_grow_to_the_maximum_for_each_record(self):
        strategy = ExponentialBackoffDelayRetryStrategy(5, 10, 50, 2.0, None, has_exception_predicate)
        assert [strategy.get_backoff_time_millis(attempt) for attempt in (1, 2, 3, 4, 5)] == [10, 20, 40, 50, 50]
        assert strategy.get_backoff_time_millis(2) == 20
        assert [strategy.can_retry(attempt) for attempt in (5, 6)] == [True, False]


async def refuse(value):
    await asyncio.sleep(0)
    if value == "bad":
        raise LookupError("no such word")
    return [value]


class TestUserExceptions:
    @both
    @pytest.mark.parametrize("words", [["ok", "bad", "ok"], ["bad"] + ["ok"] * 300], ids=["at the end", "when full"])
    def test_an_exception_comes_with_the_users_line_and_its_record(self, env, wait, words):
        stream = wait(env.from_collection(words).map(str), refuse, LONG).name("check words").uid("check")
        text, failure = failure_of(stream.map(str))
        assert text.startswith("Operator 'check words' (uid 'check') failed in subtask 0 of epoch 1:\nTraceback")
        assert text.count("Traceback") == 1
        assert text.endswith('in refuse\n    raise LookupError("no such word")\nLookupError: no such word')
        assert failure.record == "'bad'"
        assert failure.locations[0].function == "refuse"

    @both
    def test_an_exception_behind_an_exchange_names_the_async_operator(self, env, wait):
        text, failure = failure_of(wait(env.from_collection(["bad"]).rebalance(), refuse, LONG).uid("check"))
        assert failure.uid == "check"
        assert text.endswith("LookupError: no such word")

    def test_an_exception_ends_the_epoch_while_an_earlier_record_hangs(self, env):
        async def hang_or_refuse(value):
            return await (asyncio.Event().wait() if value == "ok" else refuse(value))

        text, _ = failure_of(AsyncDataStream.ordered_wait(env.from_collection(["ok", "bad"]), hang_or_refuse, LONG))
        assert text.endswith("LookupError: no such word")

    def test_an_exception_downstream_names_the_downstream_operator_and_its_record(self, env):
        async def shout(value):
            return [value.upper()]

        def check(value):
            raise ValueError(value)

        stream = AsyncDataStream.ordered_wait(env.from_collection(["a", "b"]), shout, LONG).map(check).uid("behind")
        _, failure = failure_of(stream)
        assert (failure.uid, failure.record) == ("behind", "'A'")

    def test_a_call_that_cancels_itself_fails_instead_of_hanging_the_job(self, env):
        async def cancel(value):
            asyncio.current_task().cancel()
            await asyncio.sleep(0)

        text, failure = failure_of(AsyncDataStream.ordered_wait(env.from_collection([1]), cancel, LONG))
        assert "cancel was cancelled while it was awaiting" in text
        assert failure.locations[0].function == "cancel"

    def test_a_user_task_that_ends_the_loop_fails_the_job_instead_of_hanging_it(self, env):
        async def leave():
            raise SystemExit("leaving")

        async def hang(value):
            self_made = asyncio.ensure_future(leave())
            await asyncio.Event().wait()
            return [self_made]

        stream = AsyncDataStream.ordered_wait(env.from_collection([1]), hang, LONG).uid("hang")
        _, failure = failure_of(stream)
        assert (failure.uid, failure.headline) == ("hang", "SystemExit: leaving")
        assert failure.fix.startswith("Remove the call to sys.exit() from leave:")


class TestResults:
    @pytest.mark.parametrize(("result", "kind"), [(None, "NoneType"), ("word", "str"), (5, "int")])
    def test_results_must_be_a_list(self, env, result, kind):
        async def give(value):
            return result

        text, failure = failure_of(AsyncDataStream.ordered_wait(env.from_collection([1]), give, LONG).uid("give"))
        assert f"give returned {kind} from async_invoke, which must return a list of results." in text
        assert failure.fix == "Write `return [value]`, or `return []` for no result."
        assert (failure.uid, failure.record) == ("give", "1")

    def test_results_must_match_the_declared_type(self, env):
        async def give(value):
            return [value]

        stream = AsyncDataStream.ordered_wait(env.from_collection([1, "one"]), give, LONG, output_type=Types.INT())
        text, failure = failure_of(stream)
        assert "give returned a result that does not match the output_type of 'async wait operator'" in text
        assert failure.record == "'one'"

    def test_the_type_of_results_comes_from_the_annotation(self, env):
        async def give(value: int) -> list[tuple[int, str]]:
            return [(value, str(value))]

        assert AsyncDataStream.ordered_wait(env.from_collection([1]), give, LONG).get_type() == tuple[int, str]
