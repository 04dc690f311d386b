"""RedisSink against a real server: every command takes effect once, whatever dies in the middle."""

import pytest
import redis
from files_helpers import context

from chaos.servers.redis import RedisServer
from penstock.checkpoint.wal import WriteAheadLog
from penstock.common import Configuration
from penstock.connectors.redis import redis_sink, server
from penstock.connectors.redis.commands import commands_of, put_aside
from penstock.connectors.redis.server import RedisRefused, RedisUnavailable
from penstock.connectors.write_ahead import WriteAhead
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.connectors.redis import RedisSink
from penstock.driver.committing import Commit, CommitContext
from penstock.errors import PenstockError
from penstock.runtime.operators import EpochInfo
from penstock.state.driver_storage import DriverStorage
from penstock.testing import JobHarness

NUMBERS = range(40)
POINTS = [
    *(f"level1.{point}" for point in ("received", "processed", "snapshot", "reported")),
    *(f"driver.{point}" for point in ("triggered", "collected", "published", "committed")),
]


def effects(n):
    """Return commands that are not idempotent, and one that is."""
    return [
        ("HSET", f"number:{n}", "square", n * n),
        ("INCRBY", "sum", n),
        ("RPUSH", f"list:{n % 3}", n),
        ("XADD", "entries", "*", "n", n),
    ]


def seen(server):
    client = server.client(decode_responses=True)
    return {
        "squares": {n: int(client.hget(f"number:{n}", "square") or -1) for n in NUMBERS},
        "sum": int(client.get("sum")),
        "lists": [[int(n) for n in client.lrange(f"list:{part}", 0, -1)] for part in range(3)],
        "entries": sorted(int(fields["n"]) for _, fields in client.xrange("entries")),
    }


EVERYTHING_ONCE = {
    "squares": {n: n * n for n in NUMBERS},
    "sum": sum(NUMBERS),
    "lists": [[n for n in NUMBERS if n % 3 == part] for part in range(3)],
    "entries": list(NUMBERS),
}


def job(sink, parallelism=1, restarts=0, **options):
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": restarts,
                "restart-strategy.fixed-delay.delay": "0 s",
            }
        )
    )
    numbers = env.from_collection(NUMBERS).uid("numbers")
    numbers.key_by(lambda n: n % 3).map(lambda n: n).uid("by list").sink_to(sink).uid("out")
    return JobHarness(env, parallelism=parallelism, **options)


@pytest.fixture
def small_chunks(monkeypatch):
    """Split an epoch into many chunks, and a commit into several steps."""
    monkeypatch.setattr(redis_sink, "_CHUNK_COMMANDS", 3)
    monkeypatch.setattr(redis_sink, "_AT_ONCE", 2)


class TestAJob:
    @pytest.mark.parametrize("point", POINTS)
    @pytest.mark.parametrize("late", [False, True])
    def test_every_command_takes_effect_once_after_a_crash_at_any_point(self, redis_server, point, late):
        with job(RedisSink(redis_server.url, effects), parallelism=2, commits_late=late) as harness:
            harness.epoch(10)
            harness.crash_at(point)
            harness.epoch(10)
            harness.run(10)
        assert seen(redis_server) == EVERYTHING_ONCE

    def test_a_job_resumes_at_another_parallelism(self, redis_server):
        first = job(RedisSink(redis_server.url, effects), parallelism=3)
        first.epoch(20)
        with job(RedisSink(redis_server.url, effects), parallelism=1, storage=first.storage) as harness:
            harness.run(7)
        assert seen(redis_server) == EVERYTHING_ONCE

    def test_nothing_is_written_before_the_checkpoint_is_complete(self, redis_server):
        with job(RedisSink(redis_server.url, effects)) as harness:
            harness.crash_at("driver.collected")
            harness.epoch(10)
            assert redis_server.client().keys() == []

    def test_the_ledger_is_kept_by_lineage_and_uid(self, redis_server):
        with job(RedisSink(redis_server.url, effects, ledger="app:ledger")) as harness:
            harness.epoch(4)
            harness.epoch(4)
            [ledger] = redis_server.client().keys("app:ledger:*:out")
            assert redis_server.client().hget(ledger, "0").startswith(b"2:")

    def test_a_record_can_produce_no_command(self, redis_server):
        with job(RedisSink(redis_server.url, lambda n: ("SET", "last", n) if n % 2 else None)) as harness:
            harness.run()
        assert int(redis_server.client().get("last")) % 2 == 1


class DyingServer:
    """Kills the server at the n-th request of a commit, before it or after it, when the response is lost."""

    def __init__(self, server, monkeypatch, at, after):
        self.calls = 0
        send = redis_sink._apply

        def apply(ledger, questions, client):
            self.calls += 1
            if self.calls != at:
                return send(ledger, questions, client)
            if after:
                send(ledger, questions, client)
            server.kill()
            raise redis.ConnectionError("gone") if after else self._refused(client)

        monkeypatch.setattr(redis_sink, "_apply", apply)

    def _refused(self, client):
        with pytest.raises(redis.ConnectionError) as caught:
            client.ping()
        return caught.value


@pytest.mark.usefixtures("small_chunks")
class TestAServerThatDiesInTheMiddleOfACommit:
    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize("at", [1, 2, 5, 9])
    def test_a_server_that_dies_during_a_commit_is_waited_for(self, mortal_redis, monkeypatch, at, after):
        dying = DyingServer(mortal_redis, monkeypatch, at, after)
        monkeypatch.setattr("penstock.connectors.redis.server.sleep", lambda _: mortal_redis.start())
        with job(RedisSink(mortal_redis.url, effects)) as harness:
            harness.run(20)
        assert dying.calls > at
        assert seen(mortal_redis) == EVERYTHING_ONCE

    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize("at", [2, 9])
    def test_a_server_that_stays_down_restarts_the_job_which_commits_the_rest(
        self, mortal_redis, monkeypatch, at, after
    ):
        DyingServer(mortal_redis, monkeypatch, at, after)
        with job(RedisSink(mortal_redis.url, effects, retry_for=0), restarts=1) as harness:
            # While the job waits for its restart.
            monkeypatch.setattr(harness.clock, "wait", lambda seconds: mortal_redis.start())
            harness.run(20)
            assert harness.restarts == 1
            assert isinstance(harness.last_failure, RedisUnavailable)
        assert seen(mortal_redis) == EVERYTHING_ONCE

    def test_a_server_and_a_driver_that_die_together_lose_and_duplicate_nothing(self, mortal_redis, monkeypatch):
        DyingServer(mortal_redis, monkeypatch, 3, after=True)
        first = job(RedisSink(mortal_redis.url, effects, retry_for=0))
        with pytest.raises(RedisUnavailable):
            first.epoch(20)
        mortal_redis.start()
        with job(RedisSink(mortal_redis.url, effects), storage=first.storage) as harness:
            harness.run(20)
        assert seen(mortal_redis) == EVERYTHING_ONCE

    def test_a_server_that_loses_acknowledged_writes_is_an_error(self, tmp_path):
        with RedisServer(tmp_path) as forgetful, job(RedisSink(forgetful.url, effects)) as harness:
            harness.epoch(10)
            forgetful.kill()
            forgetful.start()
            with pytest.raises(
                RedisRefused, match=r"'out': Redis at 127.* has lost acknowledged writes.*epoch 1,"
            ) as e:
                harness.epoch(10)
            assert not e.value.retryable


def commit(epoch, *chunks, subtask=0):
    """Return the commit of a writer that logged these chunks of commands."""
    log = WriteAhead(context(subtask))
    log.begin(EpochInfo("lineage", epoch, 0))
    for chunk in chunks:
        log.add(put_aside([next(commands_of(command)) for command in chunk]))
    return Commit(lineage="lineage", epoch=epoch, subtask=subtask, payload=log.seal())


OUT = CommitContext(uid="out", wal=WriteAheadLog(DriverStorage()))


def sink_of(server, **options):
    return RedisSink(server.url, effects, **options)


class TestACommit:
    def test_a_commit_of_an_old_driver_changes_nothing(self, redis_server):
        old, new = sink_of(redis_server), sink_of(redis_server)
        first, second = (
            commit(1, [("SET", "a", 1), ("INCRBY", "n", 1)]),
            commit(2, [("SET", "a", 2), ("INCRBY", "n", 1)]),
        )
        new.commit([first], OUT)
        new.commit([second], OUT)
        old.commit([first], OUT)
        assert redis_server.client().mget("a", "n") == [b"2", b"2"]

    def test_commits_of_different_subtasks_are_independent(self, redis_server):
        sink = sink_of(redis_server)
        sink.commit([commit(1, [("INCRBY", "n", 1)]), commit(1, [("INCRBY", "n", 1)], subtask=1)], OUT)
        sink.commit([commit(1, [("INCRBY", "n", 1)]), commit(1, [("INCRBY", "n", 1)], subtask=1)], OUT)
        assert redis_server.client().get("n") == b"2"

    def test_a_failed_command_is_named_and_a_retry_resumes_after_the_completed_ones(self, redis_server):
        redis_server.client().rpush("user:7", "x")
        sink = sink_of(redis_server)
        chunk = [("INCRBY", "n", 1), ("INCRBY", "n", 1), ("HSET", "user:7", "name", "Ann"), ("INCRBY", "n", 1)]
        for _ in range(2):
            with pytest.raises(RedisRefused) as caught:
                sink.commit([commit(1, [("INCRBY", "n", 1)], chunk, [("INCRBY", "n", 1)])], OUT)
            assert str(caught.value) == (
                f"RedisSink 'out': Redis at 127.0.0.1:{redis_server.port}/0 rejects HSET of key 'user:7': WRONGTYPE "
                f"Operation against a key holding the wrong kind of value. The key holds a value of another type: use "
                f"another key, or remove it (DEL)."
            )
            assert not caught.value.retryable
        redis_server.client().delete("user:7")
        sink.commit([commit(1, [("INCRBY", "n", 1)], chunk, [("INCRBY", "n", 1)])], OUT)
        assert redis_server.client().get("n") == b"5"
        assert redis_server.client().hget("user:7", "name") == b"Ann"

    @pytest.mark.parametrize(
        ("setting", "bad", "good", "said"),
        [
            ("maxmemory", 1, 0, "OOM command not allowed"),
            ("min-replicas-to-write", 1, 0, "NOREPLICAS"),
            ("replicaof", "127.0.0.1 1", "no one", "READONLY"),
        ],
    )
    def test_a_temporarily_rejected_commit_is_retried(self, redis_server, monkeypatch, setting, bad, good, said):
        client = redis_server.client()

        def change(value):
            if setting == "replicaof":
                client.execute_command("REPLICAOF", *value.split())
            else:
                client.config_set(setting, value)

        waits = []

        def wait(seconds):
            waits.append(seconds)
            if len(waits) == 3:
                change(good)

        monkeypatch.setattr(server, "sleep", wait)
        sink, chunks = sink_of(redis_server), [[("INCRBY", "n", 1), ("RPUSH", "list", number)] for number in range(20)]
        sink.commit([commit(1, *chunks[:2])], OUT)
        change(bad)
        try:
            sink.commit([commit(2, *chunks[2:])], OUT)
        finally:
            change(good)
        assert len(waits) == 3
        assert client.get("n") == b"20"
        assert client.lrange("list", 0, -1) == [b"%d" % number for number in range(20)]

    def test_a_server_without_memory_is_left_to_the_restart_strategy(self, redis_server):
        client = redis_server.client()
        client.config_set("maxmemory", 1)
        sink, waiting = sink_of(redis_server, retry_for=100), commit(1, [("INCRBY", "n", 1)])
        try:
            with pytest.raises(
                RedisUnavailable, match=r"was unavailable .*INCRBY of key 'n'\): OOM command not"
            ) as caught:
                sink.commit([waiting], OUT)
        finally:
            client.config_set("maxmemory", 0)
        assert caught.value.retryable
        sink.commit([waiting], OUT)
        assert client.get("n") == b"1"

    def test_a_repeated_batch_job_is_rejected(self, redis_server):
        sink_of(redis_server).commit([commit(1, [("INCRBY", "n", 1)])], OUT)
        with pytest.raises(RedisRefused, match=r"another run of epoch 1 of subtask 0.*Delete that key"):
            sink_of(redis_server).commit([commit(1, [("INCRBY", "n", 2)])], OUT)
        assert redis_server.client().get("n") == b"1"

    def test_a_wrong_password_is_rejected_without_being_shown(self, tmp_path):
        with RedisServer(tmp_path, password="right-one") as server:
            sink = RedisSink(f"redis://:wrong-one@127.0.0.1:{server.port}", effects)
            with pytest.raises(
                RedisRefused, match=r"RedisSink 'out': Redis at 127.0.0.1.* rejects the login"
            ) as caught:
                sink.commit([commit(1, [("INCRBY", "n", 1)])], OUT)
            assert "wrong-one" not in str(caught.value) + repr(sink)


class TestACommand:
    def test_a_command_accepts_text_bytes_and_numbers(self, redis_server):
        sink = RedisSink(
            redis_server.url, lambda n: ("hset", b"k\xff", "text", "ü", "float", 0.5, "int", 2**70, "b", b"\0")
        )
        with job(sink) as harness:
            harness.epoch(1)
        assert redis_server.client().hgetall(b"k\xff") == {
            b"text": "ü".encode(),
            b"float": b"0.5",
            b"int": str(2**70).encode(),
            b"b": b"\0",
        }

    @pytest.mark.parametrize(
        ("command", "message"),
        [
            ("SET a 1", "returned str, not a command"),
            ((), "returned tuple, not a command"),
            (("FLUSHALL",), "does not support the command 'FLUSHALL'"),
            (("EVAL", "return 1", 0), "does not support the command 'EVAL'"),
            (("SET", "a"), "SET with 1 arguments; expected 2 to 999"),
            (("SADD", "a", *range(1000)), "SADD with 1,001 arguments"),
            (("SET", "a", True), "an argument of SET is of type bool"),
            (("SET", "a", {"b": 1}), "an argument of SET is of type dict.*json.dumps"),
        ],
    )
    def test_an_invalid_command_fails_its_task(self, redis_server, command, message):
        with (
            job(RedisSink(redis_server.url, lambda n: command)) as harness,
            pytest.raises(PenstockError, match=message),
        ):
            harness.epoch(1)
        assert redis_server.client().keys() == []

    def test_a_sink_needs_a_function(self):
        with pytest.raises(PenstockError, match="needs a function of a record, not str"):
            RedisSink("redis://h", "SET")
