"""Redis to Redis on Spark: read in the tasks, written by the driver, each entry counted once despite crashes."""

from pathlib import Path
from typing import Any

import pytest

from penstock.datastream.connectors.redis import RedisSink, RedisStreamSource
from penstock.errors import PenstockError

pytestmark = pytest.mark.spark


class Died(Exception):
    pass


def test_every_entry_counts_once_although_driver_and_server_die(make_env: Any, mortal_redis: Any) -> None:
    pipeline = mortal_redis.client().pipeline(transaction=False)
    for n in range(1, 301):
        pipeline.xadd(f"numbers:{n % 2}", {"n": n}, id=f"{n}-0")
    pipeline.execute()

    def run(die_after: int | None) -> None:
        env = make_env(parallelism=2, records=50, checkpoints=True)
        source = RedisStreamSource(
            mortal_redis.url, "numbers:0", "numbers:1", bounded=True, decode=lambda entry: int(entry.fields[b"n"])
        )
        numbers = env.from_source(source, source_name="numbers").uid("numbers").key_by(lambda n: n % 5)
        sums = numbers.sum().uid("sums")
        sums.sink_to(RedisSink(mortal_redis.url, lambda total: [("RPUSH", "totals", total), ("INCR", "count")])).uid(
            "out"
        )

        def listen(epoch: Any) -> None:
            if epoch.number == 2:
                mortal_redis.kill()
                mortal_redis.start()
            if epoch.number == die_after:
                raise Died

        env.add_epoch_listener(listen)
        env.execute("redis")

    for die_after in (1, 3):
        with pytest.raises(Died):
            run(die_after)
    run(None)
    client = mortal_redis.client()
    assert client.get("count") == b"300"
    totals = sorted(int(total) for total in client.lrange("totals", 0, -1))
    assert totals[-5:] == sorted(sum(range(first, 301, 5)) for first in range(1, 6))
    assert len(totals) == 300


def test_a_wrong_password_is_reported_with_source_and_server_but_not_printed(make_env: Any, tmp_path: Path) -> None:
    from chaos.servers.redis import RedisServer

    with RedisServer(tmp_path / "redis", password="right-one") as server:
        env = make_env(checkpoints=True)
        url = f"redis://:wrong-one@127.0.0.1:{server.port}"
        env.from_source(RedisStreamSource(url, "orders"), source_name="orders").print()
        with pytest.raises(PenstockError) as raised:
            env.execute()
    text = str(raised.value)
    assert "Source 'orders' failed while planning an epoch" in text
    assert f"Redis at 127.0.0.1:{server.port}/0 rejects the login" in text
    assert "wrong-one" not in text
