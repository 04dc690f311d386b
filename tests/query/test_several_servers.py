"""Several state servers of one job: they divide its blocks, and take over from each other."""

import contextlib
import os
import signal
import threading

import msgspec
import pytest
from certificates import self_signed
from query_jobs import divided, free_ports, served_blocks, sizes, until

import penstock.query.server
from penstock.query.client import QueryableStateClient
from penstock.query.connection import Connection
from penstock.query.errors import CheckpointGone, NotServed, QueryError, UnknownJob, Unreachable
from penstock.query.launching import Launch, LaunchedServer
from penstock.query.protocol import Found, Get
from penstock.state.keys import encode_key

KEYS = [f"k{i}" for i in range(300)]
FAST = {"queryable-state.heartbeat.timeout": "400 ms"}
NEVER = {"queryable-state.heartbeat.timeout": "1 h"}


def records(offset=1):
    return [(key, number) for number, key in enumerate(KEYS, offset)]


def die(server):
    """Stop a server in this process as a SIGKILL would: it says nothing any more, and withdraws nothing."""
    server._stopping.set()
    server._thread.join()
    for job in server.service._jobs.values():
        job._stopping.set()
        for thread in job._threads:
            thread.join()
    server._listener.close()


def test_servers_divide_the_blocks_and_answer_at_one_checkpoint(job, serve, client):
    job.run(*records())
    servers = [serve(job) for _ in range(3)]
    divided(servers)
    assert sizes(servers) == [5, 5, 6]
    expected = dict(records())
    assert client.get_many("id0", "the value", [*KEYS, "none"]) == expected
    assert {key: client.get("id0", "the value", key) for key in KEYS[:40]} == dict(records()[:40])
    table = client.scan("id0", "the value").read_all().to_pydict()
    assert dict(zip(table["key"], table["value"], strict=True)) == expected
    changes = client.subscribe("id0", "the value")
    assert {change.key: change.value for change in next(changes).changes} == expected
    with client.pinned("id0") as pinned:
        job.run(("k1", 1000), ("k2", 1000), ("k3", -1))
        assert client.get("id0", "the value", "k1", at_least=2) == 1000
        assert pinned.get("the value", "k1") == 2
        assert pinned.scan("the value").read_all().num_rows == 300
        assert pinned.entries("the map", "k1").entries == {"n2": 2}
        following = next(changes)
    assert (following.checkpoint, following.reset) == (2, False)
    assert {(change.key, change.value) for change in following.changes} == {("k1", 1000), ("k2", 1000), ("k3", None)}
    assert sorted(client.describe("id0").blocks) == list(range(16))
    assert len(client.jobs()) == 1


def test_the_blocks_of_a_state_are_scanned_one_by_one_in_an_order_that_does_not_depend_on_the_servers(
    job, serve, client
):
    job.run(*records())
    first = serve(job)

    def by_block():
        tables = [client.scan("id0", "the value", blocks=[block]).read_all() for block in range(16)]
        return [table["key"].to_pylist() for table in tables]

    alone = by_block()
    assert sorted(key for keys in alone for key in keys) == sorted(KEYS)
    divided([first, serve(job)])
    assert by_block() == alone
    assert client.scan("id0", "the value", blocks=[]).read_all().num_rows == 0


def test_a_server_that_joins_takes_its_part_and_no_read_fails(job, serve, client):
    job.run(*records())
    first = serve(job)
    # Reads go on while a second server joins.
    stop, failed, reads = threading.Event(), [], []

    def read():
        number = 0
        while not stop.is_set():
            number += 1
            key = KEYS[number % len(KEYS)]
            try:
                value, checkpoint = client.read("id0", "the value", key)
                reads.append(value == number % len(KEYS) + checkpoint)
                if number % 20 == 0:
                    rows = client.scan("id0", "the value").read_all()
                    reads.append(rows.num_rows == len(KEYS) == len(set(rows["key"].to_pylist())))
            except QueryError as error:
                failed.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        second = serve(job)
        offset = 1
        until(lambda: len(served_blocks([second])[0]) == 8)
        while sizes([first, second]) != [8, 8]:
            offset += 1
            job.run(*records(offset))
        count = len(reads)
        until(lambda: len(reads) > count + 50)
    finally:
        stop.set()
        thread.join()
    assert failed == []
    assert all(reads)
    assert {*served_blocks([first])[0], *served_blocks([second])[0]} == set(range(16))


def test_the_blocks_of_a_dead_server_fail_with_an_error_that_can_pass(job, serve, connect):
    job.run(*records())
    first, second = (serve(job, **NEVER) for _ in range(2))
    divided([first, second])
    die(second)
    with connect(timeout=0.2) as client:
        answers = []
        for number, key in enumerate(KEYS[:20], 1):
            try:
                answers.append(client.get("id0", "the value", key) == number)
            except (NotServed, Unreachable) as error:
                answers.append(error.again)
        assert answers == [True] * 20
        with pytest.raises(NotServed, match="No living state server has all blocks of the job"):
            client.scan("id0", "the value")


def test_another_server_takes_the_blocks_of_a_dead_one(job, serve, client):
    job.run(*records())
    servers = [serve(job, **FAST) for _ in range(3)]
    divided(servers)
    kept = served_blocks(servers)[:2]
    die(servers.pop())
    assert client.get_many("id0", "the value", KEYS) == dict(records())
    until(lambda: sizes(servers) == [8, 8])
    assert all(before <= after for before, after in zip(kept, served_blocks(servers), strict=True))
    job.run(*records(10))
    assert client.get_many("id0", "the value", KEYS, at_least=2) == dict(records(10))


def test_a_server_that_ends_hands_over_at_once(job, serve, client):
    job.run(*records())
    first, second = (serve(job, **NEVER) for _ in range(2))
    divided([first, second])
    second.hand_over(60)
    assert (sizes([first]), sizes([second])) == ([16], [0])
    second.close()
    first.register()
    assert client.get_many("id0", "the value", KEYS) == dict(records())
    assert [name.split("-")[0] for name in job.root.list("servers/")] == [f"servers/{first._id}"]


def test_a_pinned_checkpoint_stays_readable_while_its_blocks_move(job, serve, client):
    job.run(*records())
    other = {"queryable-state.retained-checkpoints": "1"}
    first = serve(job, **other)
    with client.pinned("id0") as pinned:
        job.run(*records(10))
        second = serve(job, **other)
        until(lambda: sizes([second]) == [8])
        for number in range(20, 25):
            job.run(*records(number))
            client.get("id0", "the value", "k1", at_least=job.harness.checkpoint)
        second.register()
        # The second server has later checkpoints only.
        pinned.lease = client.renew("id0", pinned.lease, 60)
        assert pinned.get_many("the value", KEYS) == dict(records())
        assert pinned.scan("the value").read_all().num_rows == 300
    divided([first, second])
    with pytest.raises(CheckpointGone):
        pinned.get_many("the value", KEYS)


def test_servers_follow_a_job_into_its_next_lineage_together(job, serve, client):
    job.run(*records())
    job.run(*records(2))
    servers = [serve(job) for _ in range(2)]
    divided(servers)
    assert client.read("id0", "the value", "k0") == (2, 2)
    job.start_over()
    job.run(*records(100))
    seen = set()
    # Each server notices it when it looks, and none shows the former run after another has shown the new one.
    while seen != {100}:
        found = client.get_many("id0", "the value", KEYS)
        offsets = {found[key] - place for place, key in enumerate(KEYS)}
        assert len(offsets) == 1
        assert not (offsets == {2} and 100 in seen)
        seen = offsets
    assert client.scan("id0", "the value").read_all().num_rows == 300


def test_a_server_that_cannot_write_to_the_storage_has_everything(job, serve, client, monkeypatch):
    job.run(*records())
    job.root.write = lambda name, data: (_ for _ in ()).throw(OSError(30, "read-only"))
    first = serve(job)
    until(lambda: sizes([first]) == [16])
    assert client.get_many("id0", "the value", KEYS) == dict(records())


# -- real processes --------------------------------------------------------------------------------------------------


def kill(server):
    """Kill a process without notice, and start no other instead."""
    server._ended.set()
    server.process.kill()
    server.process.wait()


@contextlib.contextmanager
def processes(job, settings, client, count):
    """Servers in processes; the first one has the proxy."""
    launch = Launch(job_id="id0", job_name="job0", root=job.root.where, settings=settings)
    servers = []
    try:
        for _ in range(count):
            servers.append(LaunchedServer(launch))
            until(lambda: is_known(client))
        yield servers
    finally:
        for server in servers:
            kill(server)


def is_known(client):
    try:
        return client.get("id0", "the value", "k1") is not None
    except (Unreachable, UnknownJob):
        return False


def blocks_of(job, dead=()):
    """Return how many blocks each server has announced."""
    return sorted(len(each.description.blocks) for each in job.announced() if each.server not in dead)


def ids(job):
    return {each.server for each in job.announced()}


def read_or_passing(read):
    """Return what a read returns, or None if it fails with an error that can pass."""
    try:
        return read()
    except QueryError as error:
        if not error.again:
            raise
        return None


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_the_blocks_of_a_killed_process_are_answered_by_another_one(job, settings, client, victim):
    job.run(*records())
    with processes(job, settings | FAST, client, 2) as servers:
        until(lambda: blocks_of(job) == [8, 8])
        assert client.get_many("id0", "the value", KEYS) == dict(records())
        kill(servers[victim])
        job.run(*records(10))
        answered = set()
        while answered != set(KEYS[:40]):
            for number, key in enumerate(KEYS[:40]):
                found = read_or_passing(lambda key=key: client.read("id0", "the value", key))
                if found is not None:
                    assert found.value == number + {1: 1, 2: 10}[found.checkpoint]
                    answered.add(key)
        assert client.get_many("id0", "the value", KEYS, at_least=2) == dict(records(10))


@pytest.mark.slow
def test_a_process_that_was_stopped_shows_nothing_old_when_it_wakes(job, settings, client):
    job.run(*records())
    with processes(job, settings | FAST, client, 2) as servers:
        until(lambda: blocks_of(job) == [8, 8])
        addresses = {each.address for each in job.announced()}
        servers[1].process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, servers[1].process.pid, os.WSTOPPED)
        before = {each.server: each.beat for each in job.announced()}
        # The other one has everything after that.
        until(lambda: 16 in blocks_of(job))
        for offset in range(11, 61):
            job.run(*records(offset))
        assert client.get_many("id0", "the value", KEYS, at_least=51) == dict(records(60))
        stopped = next(each for each in job.announced() if each.beat == before[each.server])
        assert stopped.address in addresses
        direct = Connection(stopped.address, client._connection._headers[0][1].decode().removeprefix("Bearer "))
        servers[1].process.send_signal(signal.SIGCONT)
        answers = []
        while len(answers) < 100:
            for key in KEYS[:20]:
                try:
                    request = Get(job="id0", state="the value", key=encode_key(key), deadline_ms=0)
                    answers.append(msgspec.msgpack.decode(direct.call(request, 5), type=Found).checkpoint)
                except NotServed:
                    pass
        assert set(answers) == {51}
        until(lambda: blocks_of(job) == [8, 8])
        assert client.get_many("id0", "the value", KEYS) == dict(records(60))


@pytest.mark.slow
def test_processes_join_and_are_killed_while_keys_are_read(job, settings, client):
    offset = 1

    def run_and_read():
        nonlocal offset
        job.run(*records(offset))
        offset += 1
        found = read_or_passing(lambda: client.get_many("id0", "the value", KEYS))
        if found is not None:
            assert found == dict(records(found["k0"]))
        table = read_or_passing(lambda: client.scan("id0", "the value").read_all())
        if table is not None:
            rows = dict(zip(*table.to_pydict().values(), strict=True))
            assert rows == dict(records(rows["k0"]))

    run_and_read()
    with processes(job, settings | FAST, client, 1) as servers:
        dead = set()
        for _ in range(3):
            before = ids(job)
            servers.append(
                LaunchedServer(Launch(job_id="id0", job_name="job0", root=job.root.where, settings=settings | FAST))
            )
            while blocks_of(job, dead) != [8, 8]:
                run_and_read()
            dead |= ids(job) - before
            kill(servers.pop())
            while blocks_of(job, dead) != [16]:
                run_and_read()
        assert client.get_many("id0", "the value", KEYS, at_least=offset - 1) == dict(records(offset - 1))


def test_two_jobs_on_one_host_share_a_proxy_and_divide_their_blocks(job, make_job, settings, connect):
    other = make_job("other")
    job.run(*records())
    other.run(*records(1000))
    with connect() as client, contextlib.ExitStack() as stack:
        servers = []
        for number, each in enumerate([job, other, job, other]):
            launch = Launch(
                job_id=f"id{number % 2}", job_name=f"job{number % 2}", root=each.root.where, settings=settings
            )
            servers.append(LaunchedServer(launch))
            stack.callback(kill, servers[-1])
        until(lambda: blocks_of(job) == [8, 8])
        until(lambda: blocks_of(other) == [8, 8])
        until(lambda: is_known(client))
        assert client.get_many("id0", "the value", KEYS) == dict(records())
        assert client.get_many("job1", "the value", KEYS) == dict(records(1000))
        ports = {each.address.rsplit(":", 1)[1] for each in job.announced() + other.announced()}
        assert ports == set(settings["queryable-state.server.ports"].split(","))
        assert {each.job_name for each in client.jobs()} == {"job0", "job1"}


# -- several hosts ---------------------------------------------------------------------------------------------------


@pytest.fixture
def hosts(settings, tmp_path):
    """`hosts(n)`: the settings of servers on n hosts, each with a proxy port that only it uses."""
    certificate, key = self_signed(tmp_path)
    secured = {
        "queryable-state.bind-address": "0.0.0.0",
        "queryable-state.advertised-address": "localhost",
        "queryable-state.ssl.certificate": certificate,
        "queryable-state.ssl.private-key": key,
        "queryable-state.ssl.ca": certificate,
    }
    return lambda number: [
        settings | secured | {"queryable-state.proxy.ports": str(port)} for port in free_ports(number)
    ]


def client_of(settings):
    return QueryableStateClient(
        "localhost",
        int(settings["queryable-state.proxy.ports"]),
        token_file=settings["queryable-state.auth.token-file"],
        authorities=settings["queryable-state.ssl.ca"],
    )


def test_the_proxy_of_each_host_reads_the_blocks_of_all_hosts(job, serve, hosts):
    job.run(*records())
    places = hosts(2)
    servers = [serve(job, **each) for each in places]
    until(lambda: sizes(servers) == [8, 8])
    for server in servers:
        server.register()
        assert server.proxy_address
        assert server.address.startswith("grpc+tls://localhost:")
    for each in places:
        with client_of(each) as client:
            assert client.get_many("id0", "the value", KEYS) == dict(records())
            assert [client.get("id0", "the value", key) for key in KEYS[:20]] == list(range(1, 21))
            assert client.scan("id0", "the value").read_all().num_rows == 300
            assert len(next(client.subscribe("id0", "the value")).changes) == 300
            with client.pinned("id0") as pinned:
                assert pinned.get_many("the value", KEYS) == dict(records())


def test_a_host_that_dies_is_replaced_by_the_others(job, serve, hosts):
    job.run(*records())
    places = hosts(3)
    servers = [serve(job, **each, **FAST) for each in places]
    until(lambda: sizes(servers) == [5, 5, 6])
    dead = servers.pop(0)
    dead._proxy_listener.close()
    die(dead)
    for each in places[1:]:
        with client_of(each) as client:
            assert client.get_many("id0", "the value", KEYS) == dict(records())
    until(lambda: sizes(servers) == [8, 8])


def test_hosts_whose_servers_listen_on_loopback_have_everything_each(job, serve, settings, monkeypatch):
    job.run(*records())
    places = [settings | {"queryable-state.proxy.ports": str(port)} for port in free_ports(2)]
    servers = []
    for number, each in enumerate(places):
        monkeypatch.setattr(penstock.query.server, "this_host", lambda number=number: f"host {number}")
        servers.append(serve(job, **each))
        until(lambda: sizes(servers)[0] == 16)
    for server in servers:
        server.register()
        assert {each.address for each in server.proxy._registered.values()} == {server.address}
