"""Asynchronous calls on Spark: in the source's chain, and behind an exchange."""

import asyncio
from typing import Any

import pytest
from enrich_async import SAMPLE, build, price_server

from penstock.common import Time
from penstock.datastream import AsyncDataStream, AsyncFunction, RuntimeContext

pytestmark = pytest.mark.spark

PRICED = [("apple", 3, 90), ("apple", 10, 300), ("bread", 1, 250), ("coffee", 2, 960)]


@pytest.mark.parametrize("exchanged", [False, True], ids=["in the source's chain", "behind an exchange"])
def test_the_example_queries_the_server_from_spark(make_env: Any, exchanged: bool) -> None:
    env = make_env(records=2, checkpoints=True)
    orders = env.from_collection(SAMPLE)
    with (
        price_server() as port,
        build(orders.rebalance() if exchanged else orders, port).execute_and_collect("enrich") as results,
    ):
        assert sorted(results) == PRICED


class Numbered(AsyncFunction):
    """Emits each record with its number among those that this object has seen."""

    async def open(self, runtime_context: RuntimeContext) -> None:
        self.loop = asyncio.get_running_loop()
        self.calls = 0

    async def async_invoke(self, value: int) -> list[tuple[int, int]]:
        assert asyncio.get_running_loop() is self.loop
        self.calls += 1
        return [(value, self.calls)]


def test_one_event_loop_serves_successive_epochs_of_its_worker(make_env: Any) -> None:
    env = make_env(parallelism=1, records=3)
    numbers = env.from_collection(range(24)).rebalance()
    stream = AsyncDataStream.ordered_wait(numbers, Numbered(), Time.seconds(30))
    with stream.execute_and_collect("numbered") as results:
        given = sorted(results)
    assert [value for value, _ in given] == list(range(24))
    assert max(number for _, number in given) > 3, "no object has served two epochs"


async def refuse(value: int) -> list[int]:
    raise LookupError(f"no {value}")


def test_a_failure_shows_the_users_line(make_env: Any) -> None:
    env = make_env()
    stream = AsyncDataStream.unordered_wait(env.from_collection([7]), refuse, Time.seconds(30)).name("ask").uid("ask")
    stream.print()
    with pytest.raises(Exception, match="no 7") as caught:
        env.execute("refused")
    assert "Operator 'ask' (uid 'ask') failed" in str(caught.value)
    assert "in refuse" in str(caught.value)
