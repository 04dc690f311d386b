"""Redis to Redis through a keyed job, while server and driver die at random: every entry counts once."""

import random

import pytest
import redis

from penstock.connectors.redis import redis_sink, stream_source
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.redis import RedisSink, RedisStreamSource
from penstock.testing import JobHarness

STREAMS = ("numbers:0", "numbers:1")
NUMBERS = range(1, 401)
POINTS = [
    *(f"source.{point}" for point in ("processed", "snapshot", "reported")),
    *(f"level1.{point}" for point in ("processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


class Fate:
    """Kills the server at one of `every` requests, before or after it; the server restarts when it is waited for."""

    def __init__(self, server, seed, every):
        self._server = server
        self._chance = random.Random(seed)
        self._every = every
        self.deaths = 0

    def strikes(self):
        return self._chance.randrange(self._every) == 0

    def choose(self, things):
        return self._chance.choice(things)

    def over(self, ask):
        """Return the same request, which can fail to be answered."""

        def asked(*arguments):
            if not self.strikes():
                return ask(*arguments)
            if self._chance.random() < 0.5:
                ask(*arguments)
            self._server.kill()
            self.deaths += 1
            raise redis.ConnectionError("the server is gone")

        return asked


@pytest.mark.parametrize("seed", range(6))
def test_every_entry_counts_once_despite_random_deaths(mortal_redis, monkeypatch, seed):
    pipeline = mortal_redis.client().pipeline(transaction=False)
    for n in NUMBERS:
        pipeline.xadd(STREAMS[n % 2], {"n": n}, id=f"{n}-0")
    pipeline.execute()
    fate = Fate(mortal_redis, seed, every=6)
    monkeypatch.setattr("penstock.connectors.redis.server.sleep", lambda _: mortal_redis.start())
    monkeypatch.setattr(redis_sink, "_apply", fate.over(redis_sink._apply))
    monkeypatch.setattr(stream_source, "_entries", fate.over(stream_source._entries))
    monkeypatch.setattr(redis_sink, "_CHUNK_COMMANDS", 5)
    monkeypatch.setattr(redis_sink, "_AT_ONCE", 2)
    monkeypatch.setattr(stream_source, "_PAGE", 7)

    env = StreamExecutionEnvironment.get_execution_environment()
    source = RedisStreamSource(mortal_redis.url, *STREAMS, bounded=True, decode=lambda entry: int(entry.fields[b"n"]))
    sums = env.from_source(source, source_name="numbers").key_by(lambda n: n % 5).sum()
    sums.sink_to(RedisSink(mortal_redis.url, lambda total: [("RPUSH", "totals", total), ("INCR", "count")])).uid("out")
    with JobHarness(env, parallelism=2) as job:
        while job._feed.anything_waits(25):
            if fate.strikes():
                job.crash_at(fate.choose(POINTS))
            job.epoch(25)
        job.end()

    assert fate.deaths > 3
    client = mortal_redis.client()
    totals = sorted(int(total) for total in client.lrange("totals", 0, -1))
    assert len(totals) == int(client.get("count")) == len(NUMBERS)
    assert totals[-5:] == sorted(sum(range(first, 401, 5)) for first in range(1, 6))
