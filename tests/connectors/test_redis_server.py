"""The Redis server of the tests is real: it can die, keeps acknowledged writes and checks its password."""

import pytest
import redis

from chaos.servers.redis import RedisServer


def test_a_killed_server_keeps_acknowledged_writes(mortal_redis):
    mortal_redis.client().set("kept", 1)
    mortal_redis.kill()
    with pytest.raises(redis.ConnectionError):
        mortal_redis.client().get("kept")
    mortal_redis.start()
    assert mortal_redis.client().get("kept") == b"1"


def test_a_server_without_a_log_restarts_empty(tmp_path):
    with RedisServer(tmp_path) as server:
        server.client().set("lost", 1)
        server.kill()
        server.start()
        assert server.client().get("lost") is None


def test_a_wrong_password_is_rejected(tmp_path):
    with RedisServer(tmp_path, password="right") as server:
        assert server.client().ping()
        with pytest.raises(redis.AuthenticationError):
            server.client(password="wrong").ping()
