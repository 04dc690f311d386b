"""AsyncDataStream validates its arguments while the program is built, and each error names a fix."""

import functools
import re
from datetime import timedelta

import pytest

from penstock.common import Duration, Time
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    MapFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.async_retry_predicates import has_exception_predicate
from penstock.datastream.async_retry_strategies import FixedDelayRetryStrategy
from penstock.graph.logical import GraphError
from penstock.testing import JobHarness

TEN = Time.seconds(10)


async def fetch(value):
    return [value]


def plain(value):
    return [value]


async def streaming(value):
    yield value


class Fetch(AsyncFunction):
    async def async_invoke(self, value):
        return [value]


class Plain(AsyncFunction):
    def async_invoke(self, value):
        return [value]


class AsyncTimeout(Fetch):
    async def timeout(self, value):
        return []


class Upper(MapFunction):
    def map(self, value):
        return value.upper()


class NoPredicate(AsyncRetryStrategy):
    def can_retry(self, current_attempts):
        return True

    def get_backoff_time_millis(self, current_attempts):
        return 1

    def get_retry_predicate(self):
        return None


@pytest.fixture
def stream():
    return StreamExecutionEnvironment.get_execution_environment().from_collection([1, 2])


@pytest.mark.parametrize(
    ("function", "options", "problem", "fix"),
    [
        (plain, {}, "plain is not an async function", "Write `async def plain(value)`"),
        (Plain(), {}, "async_invoke of Plain is not an async function", "Write `async def async_invoke(self, value)`"),
        (lambda value: [value], {}, "<lambda> is not an async function", "Write `async def fetch(value)`"),
        (streaming, {}, "streaming is an async generator", "Write `return [value, ...]`."),
        (Fetch, {}, "unordered_wait received the class Fetch", "Write unordered_wait(stream, Fetch()"),
        (Upper(), {}, "needs an AsyncFunction or an async function, not Upper", "Write `async def fetch(value)"),
        (5, {}, "needs an AsyncFunction or an async function, not int", "Write `async def fetch(value)"),
        (AsyncTimeout(), {}, "timeout of AsyncTimeout is an async function", "Write `def timeout(self, value)`."),
        (fetch, {"timeout": None}, "unordered_wait needs a timeout, not None", "such as Time.seconds(10)"),
        (fetch, {"timeout": "10 s"}, "unordered_wait needs a timeout, not '10 s'", "such as Time.seconds(10)"),
        (fetch, {"capacity": 0}, "at least 1, not 0", "omit it to use 100"),
        (fetch, {"capacity": "many"}, "at least 1, not 'many'", "omit it to use 100"),
        (fetch, {"capacity": True}, "at least 1, not True", "omit it to use 100"),
    ],
)
def test_an_invalid_argument_is_refused_at_the_call_with_a_fix(stream, function, options, problem, fix):
    with pytest.raises(GraphError, match=re.escape(problem)) as caught:
        AsyncDataStream.unordered_wait(stream, function, **{"timeout": TEN, **options})
    assert fix in caught.value.fix


def test_a_retry_strategy_must_be_valid_and_needs_a_timeout(stream):
    again = FixedDelayRetryStrategy(3, 100, None, has_exception_predicate)
    for strategy, timeout, problem in [
        (None, TEN, "ordered_wait_with_retry needs an AsyncRetryStrategy, not None"),
        (3, TEN, "ordered_wait_with_retry needs an AsyncRetryStrategy, not a int"),
        (NoPredicate(), TEN, "get_retry_predicate of NoPredicate returned None"),
        (again, Time.seconds(0), "without one, a record could be retried forever"),
    ]:
        with pytest.raises(GraphError, match=problem):
            AsyncDataStream.ordered_wait_with_retry(stream, fetch, timeout, strategy)


@pytest.mark.parametrize("numbers", [(0, 100), (3, 0)])
def test_a_retry_strategy_rejects_numbers_that_are_not_positive(numbers):
    with pytest.raises(GraphError, match="must be greater than zero, not 0"):
        FixedDelayRetryStrategy(*numbers, None, None)


def test_the_first_argument_must_be_a_stream(stream):
    with pytest.raises(GraphError, match="ordered_wait needs a DataStream as its first argument, not function"):
        AsyncDataStream.ordered_wait(fetch, stream, TEN)


@pytest.mark.parametrize("timeout", [TEN, Duration.of_seconds(10), timedelta(seconds=10), 10_000])
def test_the_timeout_accepts_any_duration_type(stream, timeout):
    with JobHarness(AsyncDataStream.ordered_wait(stream, fetch, timeout)) as job:
        assert job.run() == [1, 2]


class CalledObject:
    async def __call__(self, value):
        return [value]


async def pair(first, second):
    return [(first, second)]


def test_any_awaitable_callable_is_accepted(stream):
    given = []
    for function in (CalledObject(), functools.partial(pair, "a")):
        env = StreamExecutionEnvironment.get_execution_environment()
        with JobHarness(AsyncDataStream.ordered_wait(env.from_collection([1]), function, TEN)) as job:
            given += job.run()
    assert given == [1, ("a", 1)]


class Always(AsyncRetryPredicate):
    def result_predicate(self):
        return lambda results: results == [1]

    def exception_predicate(self):
        return None


class OwnStrategy(NoPredicate):
    def can_retry(self, current_attempts):
        return current_attempts < 3

    def get_retry_predicate(self):
        return Always()


def test_a_user_defined_retry_strategy_is_accepted(stream):
    class Count(AsyncFunction):
        def open(self, runtime_context):
            self.calls = []

        async def async_invoke(self, value):
            self.calls.append(value)
            return [value] if value == 1 else [sorted(self.calls)]

    with JobHarness(AsyncDataStream.ordered_wait_with_retry(stream, Count(), TEN, OwnStrategy(), capacity=1)) as job:
        assert job.run() == [1, [1, 1, 1, 2]]
