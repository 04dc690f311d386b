"""Which error replies of Redis are retried."""

import pickle

import pytest
from redis import exceptions

from penstock.connectors.redis import server as server_module
from penstock.connectors.redis.server import RedisEndpoint, RedisRefused, RedisUnavailable, is_for_now

FOR_NOW = [
    "READONLY You can't write against a read only replica.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "NOREPLICAS Not enough good replicas to write.",
    "LOADING Redis is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "CLUSTERDOWN The cluster is down",
    "CLUSTERDOWN Hash slot not served",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "UNBLOCKED client unblocked via CLIENT UNBLOCK",
    "NOSCRIPT No matching script. Please use EVAL.",
    "ERR max number of clients reached",
    "READONLY You can't write against a read only replica. script: 5f3a, on @user_script:24.",
    "ERR Error running script (call to f_5f3a): @user_script:24: -READONLY You can't write against a read only slave.",
    "@user_script: 24: -OOM command not allowed when used memory > 'maxmemory'.",
]
FOR_GOOD = [
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "NOPERM User default has no permissions to run the 'hset' command",
    "ERR value is not an integer or out of range",
    "ERR unknown command 'XADDD'",
    "ERR no such key READONLY",
    "BUSYGROUP Consumer Group name already exists",
    "BUSYKEY Target key name already exists.",
    "MOVED 3999 127.0.0.1:6381",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "EXECABORT Transaction discarded because of previous errors.",
    "ERR Error running script (call to f_5f3a): @user_script:24: -WRONGTYPE Operation against a key",
]


@pytest.fixture
def server(monkeypatch):
    """Return an endpoint with simulated time, for questions that the test answers."""
    now = [0.0]
    monkeypatch.setattr(server_module, "monotonic", lambda: now[0])
    monkeypatch.setattr(server_module, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return RedisEndpoint("RedisSink 'out'", "redis://localhost:1", None, 5000)


class TestAnswers:
    @pytest.mark.parametrize("answer", FOR_NOW)
    def test_a_transient_reply_is_recognized(self, answer):
        assert is_for_now(answer)

    @pytest.mark.parametrize("answer", FOR_GOOD)
    def test_a_permanent_reply_is_recognized(self, answer):
        assert not is_for_now(answer)

    @pytest.mark.parametrize("answer", FOR_NOW)
    def test_a_transient_reply_is_retried_on_a_new_connection(self, server, answer):
        clients = []

        def question(client):
            clients.append(client)
            if len(clients) < 4:
                raise exceptions.ResponseError(answer)
            return "done"

        assert server.ask(question, "the key 'k'") == "done"
        assert len(set(map(id, clients))) == 4

    @pytest.mark.parametrize("answer", FOR_NOW)
    def test_a_lasting_transient_reply_is_left_to_the_restart_strategy(self, server, answer):
        def question(client):
            raise exceptions.ResponseError(answer)

        with pytest.raises(RedisUnavailable, match=r"was unavailable for 5\.0 s \(the key 'k'\)") as caught:
            server.ask(question, "the key 'k'")
        assert caught.value.retryable

    @pytest.mark.parametrize("answer", FOR_GOOD)
    def test_a_permanent_reply_is_not_retried(self, server, answer):
        asked = []

        def question(client):
            asked.append(client)
            raise exceptions.ResponseError(answer)

        with pytest.raises(RedisRefused, match="rejects the key 'k'") as caught:
            server.ask(question, "the key 'k'")
        assert not caught.value.retryable
        assert len(asked) == 1


def test_a_server_is_pickled_without_its_connections(server):
    assert pickle.loads(pickle.dumps(server))._client is None
