"""Asynchronous calls that fail, hang or answer badly: retries, time-outs, and what the user is told."""

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
"""For calls that never end: whatever it is, it is reached."""
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
    assert OURS not in text, "a frame of Penstock is shown"
    assert "base_events.py" not in text, "a frame of the event loop is shown"
    assert "concurrent/futures" not in text, "a frame of what joins the threads is shown"
    return text, caught.value.failures[0]


class Hangs(AsyncFunction):
    """Answers all but negative numbers."""

    async def async_invoke(self, value):
        if value < 0:
            await asyncio.Event().wait()
        return [value]


class HangsAndSaysSo(Hangs):
    def timeout(self, value):
        return [("late", value)]


class TestTimeOuts:
    @both
    def test_the_function_says_what_to_go_on_with(self, env, wait):
        with JobHarness(wait(env.from_collection([-1, -2]), HangsAndSaysSo(), SHORT)) as job:
            assert job.run() == [("late", -1), ("late", -2)]

    def test_a_timed_out_call_gives_its_place_to_another(self, env):
        stream = AsyncDataStream.ordered_wait(env.from_collection([-1, -2, -3]), HangsAndSaysSo(), SHORT, 1)
        with JobHarness(stream) as job:
            assert job.run(2) == [("late", -1), ("late", -2), ("late", -3)]

    def test_a_timed_out_call_is_cancelled(self, env):
        class Notes(HangsAndSaysSo):
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

    def test_each_call_has_its_own_beginning(self, env):
        """When the first's time would be over, that of the second, which hangs, is not."""

        class TakesTime(HangsAndSaysSo):
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
    def test_without_that_the_error_names_operator_record_and_time_out(self, env, wait):
        stream = wait(env.from_collection([-7]), Hangs(), SHORT).name("ask").uid("asking")
        text, failure = failure_of(stream)
        assert (failure.operator, failure.uid, failure.record) == ("ask", "asking", "-7")
        assert "Hangs of operator 'ask' (uid 'asking') gave no result within its time-out of 1 ms" in text
        assert "for the record -7. Give a longer timeout" in text
        assert failure.locations[0].file == __file__

    def test_a_plain_async_function_can_time_out_too(self, env):
        async def hang(value):
            await asyncio.Event().wait()

        text, _ = failure_of(AsyncDataStream.unordered_wait(env.from_collection([1]), hang, SHORT))
        assert "hang of operator 'async wait operator'" in text

    def test_an_error_in_timeout_is_the_users(self, env):
        class Raises(Hangs):
            def timeout(self, value):
                raise LookupError("too late")

        text, failure = failure_of(AsyncDataStream.ordered_wait(env.from_collection([-1]), Raises(), SHORT).uid("ask"))
        assert (failure.uid, failure.record) == ("ask", "-1")
        assert "in timeout" in text
        assert text.endswith("LookupError: too late")

    def test_the_default_may_be_called(self, env):
        class Passes(Hangs):
            def timeout(self, value):
                return super().timeout(value)

        text, _ = failure_of(AsyncDataStream.ordered_wait(env.from_collection([-1]), Passes(), SHORT))
        assert text.endswith("TimeoutError: The asynchronous call for -1 has timed out.")

    @both_with_retry
    def test_it_covers_all_attempts_and_the_times_between(self, env, wait):
        class Never(AsyncFunction):
            async def async_invoke(self, value):
                return []

            def timeout(self, value):
                return ["gave up"]

        strategy = FixedDelayRetryStrategy(10**9, 10**6, empty_result_predicate, None)
        with JobHarness(wait(env.from_collection([1]), Never(), SHORT, strategy)) as job:
            assert job.run() == ["gave up"]

    @both
    def test_what_comes_after_it_is_too_late(self, env, wait):
        class Deaf(AsyncFunction):
            """Does not end when it is cancelled, but then gives a result, or fails."""

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

    def test_zero_is_none(self, env):
        async def answer(value):
            await asyncio.sleep(0)
            return [value]

        with JobHarness(AsyncDataStream.ordered_wait(env.from_collection([1, 2]), answer, Time.milliseconds(0))) as job:
            assert job.run() == [1, 2]


class Flaky(AsyncFunction):
    """Fails or gives nothing the first times for each record, then gives (record, number of attempts)."""

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
    def test_while_the_exception_is_one_to_retry(self, env, wait):
        strategy = AsyncRetryStrategy.fixed_delay(
            2, 1, None, lambda error: exception_type_predicate(error, ConnectionError)
        )
        with JobHarness(wait(env.from_collection(range(5)), Flaky(2, ConnectionError), LONG, strategy)) as job:
            assert sorted(job.run()) == [(value, 3) for value in range(5)]

    def test_another_exception_is_not(self, env):
        strategy = FixedDelayRetryStrategy(2, 1, None, lambda error: isinstance(error, ConnectionError))
        stream = AsyncDataStream.ordered_wait_with_retry(
            env.from_collection([1]), Flaky(1, LookupError), LONG, strategy
        )
        text, failure = failure_of(stream)
        assert text.endswith("LookupError: 1 is not there")
        assert failure.record == "1"

    def test_until_the_attempts_are_used_up(self, env):
        strategy = FixedDelayRetryStrategy(2, 1, None, has_exception_predicate)
        stream = AsyncDataStream.ordered_wait_with_retry(
            env.from_collection([1]), Flaky(3, LookupError), LONG, strategy
        )
        text, _ = failure_of(stream)
        assert text.count("LookupError: 1 is not there") == 1
        assert "in async_invoke" in text

    @both_with_retry
    def test_while_the_result_is_one_to_retry(self, env, wait):
        strategy = AsyncRetryStrategy.exponential_backoff(3, 1, 2, 2.0, empty_result_predicate, None)
        with JobHarness(wait(env.from_collection(range(5)), Flaky(2), LONG, strategy)) as job:
            assert sorted(job.run()) == [(value, 3) for value in range(5)]

    def test_the_last_result_counts_though_it_was_one_to_retry(self, env):
        strategy = FixedDelayRetryStrategy(1, 1, empty_result_predicate, None)
        stream = AsyncDataStream.ordered_wait_with_retry(env.from_collection([1, 2]), Flaky(9), LONG, strategy)
        with JobHarness(stream) as job:
            assert job.run() == []

    def test_none_at_all_with_the_strategy_of_none(self, env):
        assert AsyncRetryStrategy.no_restart() is NO_RETRY_STRATEGY
        stream = AsyncDataStream.ordered_wait_with_retry(
            env.from_collection([1]), Flaky(1, LookupError), LONG, NO_RETRY_STRATEGY
        )
        failure_of(stream)

    def test_exponential_delays_grow_up_to_the_greatest_and_are_each_records_own(self):
        strategy = ExponentialBackoffDelayRetryStrategy(5, 10, 50, 2.0, None, has_exception_predicate)
        assert [strategy.get_backoff_time_millis(attempt) for attempt in (1, 2, 3, 4, 5)] == [10, 20, 40, 50, 50]
        assert strategy.get_backoff_time_millis(2) == 20
        assert [strategy.can_retry(attempt) for attempt in (5, 6)] == [True, False]


async def refuse(value):
    await asyncio.sleep(0)
    if value == "bad":
        raise LookupError("no such word")
    return [value]


class TestAUsersException:
    @both
    @pytest.mark.parametrize("words", [["ok", "bad", "ok"], ["bad"] + ["ok"] * 300], ids=["at the end", "when full"])
    def test_comes_with_the_users_line_and_its_own_record(self, env, wait, words):
        stream = wait(env.from_collection(words).map(str), refuse, LONG).name("check words").uid("check")
        text, failure = failure_of(stream.map(str))
        assert text.startswith("Operator 'check words' (uid 'check') failed in subtask 0 of epoch 1:\nTraceback")
        assert text.count("Traceback") == 1
        assert text.endswith('in refuse\n    raise LookupError("no such word")\nLookupError: no such word')
        assert failure.record == "'bad'"
        assert failure.locations[0].function == "refuse"

    @both
    def test_behind_an_exchange(self, env, wait):
        text, failure = failure_of(wait(env.from_collection(["bad"]).rebalance(), refuse, LONG).uid("check"))
        assert failure.uid == "check"
        assert text.endswith("LookupError: no such word")

    def test_ends_the_epoch_though_a_record_before_it_hangs(self, env):
        async def hang_or_refuse(value):
            return await (asyncio.Event().wait() if value == "ok" else refuse(value))

        text, _ = failure_of(AsyncDataStream.ordered_wait(env.from_collection(["ok", "bad"]), hang_or_refuse, LONG))
        assert text.endswith("LookupError: no such word")

    def test_of_an_operator_behind_it_is_of_that_operator_and_its_record(self, env):
        async def shout(value):
            return [value.upper()]

        def check(value):
            raise ValueError(value)

        stream = AsyncDataStream.ordered_wait(env.from_collection(["a", "b"]), shout, LONG).map(check).uid("behind")
        _, failure = failure_of(stream)
        assert (failure.uid, failure.record) == ("behind", "'A'")

    def test_a_call_that_cancels_itself_is_an_error_and_no_hanging_job(self, env):
        async def cancel(value):
            asyncio.current_task().cancel()
            await asyncio.sleep(0)

        text, failure = failure_of(AsyncDataStream.ordered_wait(env.from_collection([1]), cancel, LONG))
        assert "cancel was cancelled while it waited" in text
        assert failure.locations[0].function == "cancel"

    def test_a_task_of_the_users_that_ends_the_loop_is_an_error_and_no_hanging_job(self, env):
        async def leave():
            raise SystemExit("leaving")

        async def hang(value):
            self_made = asyncio.ensure_future(leave())
            await asyncio.Event().wait()
            return [self_made]

        stream = AsyncDataStream.ordered_wait(env.from_collection([1]), hang, LONG).uid("hang")
        _, failure = failure_of(stream)
        assert (failure.uid, failure.headline) == ("hang", "SystemExit: leaving")
        assert failure.fix.startswith("Remove the call of sys.exit() from leave:")


class TestResults:
    @pytest.mark.parametrize(("result", "kind"), [(None, "NoneType"), ("word", "str"), (5, "int")])
    def test_must_be_a_list(self, env, result, kind):
        async def give(value):
            return result

        text, failure = failure_of(AsyncDataStream.ordered_wait(env.from_collection([1]), give, LONG).uid("give"))
        assert f"give returned {kind} from async_invoke, which must return a list of results." in text
        assert failure.fix == "Write `return [value]`, or `return []` for none."
        assert (failure.uid, failure.record) == ("give", "1")

    def test_must_be_of_the_declared_type(self, env):
        async def give(value):
            return [value]

        stream = AsyncDataStream.ordered_wait(env.from_collection([1, "one"]), give, LONG, output_type=Types.INT())
        text, failure = failure_of(stream)
        assert "give gave a result that is not of the output_type of 'async wait operator'" in text
        assert failure.record == "'one'"

    def test_their_type_is_known_from_the_annotation(self, env):
        async def give(value: int) -> list[tuple[int, str]]:
            return [(value, str(value))]

        assert AsyncDataStream.ordered_wait(env.from_collection([1]), give, LONG).get_type() == tuple[int, str]
