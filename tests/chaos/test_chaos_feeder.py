"""Records reach a server exactly once and in order by key, whatever happens to the server and its answers."""

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from chaos.ends import postgres as postgres_ends
from chaos.ends.feeder import AHEAD, SPREAD, Away, Feeder
from chaos.ends.postgres import Inserting
from chaos.ends.redis import Adding
from chaos.program import record
from chaos.servers.postgres import PostgresServer
from chaos.servers.redis import RedisServer

NUMBERS = [number for number in range(40) if record(number).key % 4 == 0]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.ends.feeder._POLL_S", 0.001)


class Unreliable:
    """A lane that fails every third call, alternately before and after it writes."""

    def __init__(self, brought: list[int], lane: int) -> None:
        self.brought = brought
        self.mine: list[int] = []
        self.calls = lane

    def reached(self) -> int:
        return self.mine[-1] + 1 if self.mine else 0

    def put(self, numbers: list[int], dice: random.Random) -> None:
        self.calls += 1
        fails = self.calls % 3 == 0
        if fails and self.calls % 2:
            raise Away
        for number in numbers:
            if number not in self.mine:
                self.mine.append(number)
                self.brought.append(number)
        if fails:
            raise Away

    def close(self) -> None: ...


def until(true: Callable[[], bool]) -> None:
    met = threading.Event()
    while not true():
        met.wait(0.005)


def test_records_are_written_once_in_order_by_key_and_not_too_far_ahead() -> None:
    brought: list[int] = []
    lanes = [Unreliable(brought, lane) for lane in range(4)]
    feeder = Feeder(lanes, read=lambda: max(0, len(brought) - 10))
    feeder.start()
    until(lambda: len(brought) > AHEAD)
    total = feeder.end(100)
    until(lambda: len(brought) == total)
    feeder.stop()
    assert feeder.failure is None
    assert sorted(brought) == list(range(total))
    by_key = defaultdict(list)
    for place, number in enumerate(brought):
        by_key[record(number).key].append(number)
        assert number < SPREAD + min(set(range(total)) - set(brought[:place]))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_the_feeder_stays_a_limited_distance_ahead_of_the_job() -> None:
    brought: list[int] = []
    feeder = Feeder([Unreliable(brought, 0)], read=lambda: 50)
    feeder.start()
    until(lambda: len(brought) == 50 + AHEAD)
    feeder.stop()
    assert brought == list(range(50 + AHEAD))


def test_another_feeder_continues_where_the_first_stopped() -> None:
    brought: list[int] = []
    lanes = [Unreliable(brought, lane) for lane in range(2)]
    first = Feeder(lanes, read=lambda: 0)
    first.start()
    until(lambda: len(brought) > SPREAD)
    first.stop()
    second = Feeder(lanes, read=lambda: 0)
    second.end_at(1000)
    second.start()
    until(lambda: len(brought) >= 1000)
    second.stop()
    assert sorted(brought) == list(range(1000))


def test_a_failing_lane_reports_its_error() -> None:
    class Broken(Unreliable):
        def put(self, numbers: list[int], dice: random.Random) -> None:
            raise ValueError("no such table")

    feeder = Feeder([Broken([], 0)], read=lambda: 0)
    feeder.start()
    until(lambda: feeder.failure is not None)
    feeder.stop()
    assert "no such table" in repr(feeder.failure)


class Careful(random.Random):
    """Neither rolls back transactions nor holds them open."""

    def random(self) -> float:
        return 1.0

    def randrange(self, *bounds: int) -> int:
        return 0


@pytest.fixture
def table(postgres: str) -> str:
    with psycopg.connect(postgres) as connection:
        connection.execute(postgres_ends._TABLES)
    return postgres


def rows(conninfo: str) -> list[int]:
    with psycopg.connect(conninfo) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM events ORDER BY id")]


def test_a_transaction_lost_with_the_server_is_repeated() -> None:
    server = PostgresServer().start()
    try:
        with psycopg.connect(server.conninfo()) as connection:
            connection.execute(postgres_ends._TABLES)
        lane = Inserting(server.conninfo(), 0)
        lane.put(NUMBERS[:2], Careful())
        server.kill()
        with pytest.raises(Away):
            lane.put(NUMBERS[2:5], Careful())
        with pytest.raises(Away):
            lane.put(NUMBERS[2:5], Careful())
        server.start()
        lane.put(NUMBERS[2:5], Careful())
        assert rows(server.conninfo()) == NUMBERS[:5]
        assert lane.reached() == NUMBERS[4] + 1
        lane.close()
    finally:
        server.close()


def test_a_transaction_without_confirmation_is_not_repeated_if_it_committed(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = Inserting(table, 0)
    commit = psycopg.Connection.commit

    def committed_but_unheard(connection: Any) -> None:
        commit(connection)
        raise psycopg.OperationalError("the connection is lost")

    with monkeypatch.context() as lost:
        lost.setattr(psycopg.Connection, "commit", committed_but_unheard)
        with pytest.raises(Away):
            lane.put(NUMBERS[:3], Careful())
    lane.put(NUMBERS[:3], Careful())
    lane.put(NUMBERS[3:4], Careful())
    lane.close()
    assert rows(table) == NUMBERS[:4]


def test_a_partially_visible_transaction_is_reported(table: str) -> None:
    lane = Inserting(table, 0)
    lane.put(NUMBERS[:1], Careful())
    lane._doubtful = True
    with pytest.raises(AssertionError, match="1 of the 2 rows of one transaction"):
        lane.put(NUMBERS[:2], Careful())
    lane.close()


def test_an_entry_without_confirmation_is_not_added_twice(mortal_redis: RedisServer) -> None:
    lane = Adding(mortal_redis, "records:0")
    lane.put([0, 1, 2], Careful())
    lane.put([1, 2, 3], Careful())
    mortal_redis.kill()
    with pytest.raises(Away):
        lane.put([4], Careful())
    mortal_redis.start()
    lane.put([4, 5], Careful())
    entries: Any = mortal_redis.client().xrange("records:0")
    assert [int(fields[b"number"]) for _, fields in entries] == [0, 1, 2, 3, 4, 5]
    assert lane.reached() == 6
    lane.close()


def test_an_entry_that_can_never_be_added_is_reported(mortal_redis: RedisServer) -> None:
    import redis

    lane = Adding(mortal_redis, "records:0")
    lane.put([5], Careful())
    with pytest.raises(redis.ResponseError, match="equal or smaller"):
        lane.put([2], Careful())
    lane.close()
