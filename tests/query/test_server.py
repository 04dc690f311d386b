"""State servers, the proxy and the client over the network, next to a running job."""

import socket
import threading

import pytest
from pyarrow import flight
from query_jobs import descriptors, every_kind, free_ports

from penstock.checkpoint.lineages import Lineages
from penstock.common.typeinfo import Types
from penstock.query.client import QueryableStateClient
from penstock.query.connection import ACTION, Connection
from penstock.query.errors import (
    BadRequest,
    CheckpointGone,
    CheckpointNotReached,
    NotAllowed,
    NotServed,
    QueryError,
    ResultTooLarge,
    UnknownJob,
    UnknownKey,
    UnknownQueryableState,
    Unreachable,
    WrongKeyType,
    WrongKind,
)
from penstock.query.flight_server import CannotServeState, QueryListener
from penstock.query.protocol import Get, Jobs, Register, decode_failure, encode
from penstock.query.server import StateServer
from penstock.state.keys import encode_key


def test_a_value_is_read_by_job_name_and_key_as_in_flink(job, serve, settings, connect):
    job.run(("ann", 3), ("ann", 4))
    serve(job)
    known = descriptors()
    with connect() as client:
        futures = {
            name: client.get_kv_state("id0", name, "ann", Types.STRING(), descriptor)
            for name, descriptor in known.items()
        }
        assert {name: future.result() for name, future in futures.items()} == {
            "the value": 4,
            "the list": [3, 4],
            "the map": {"n3": 3, "n4": 4},
            "the reducing": 7,
            "the aggregating": 3.5,
        }
        assert client.get("job0", "the aggregating", "ann") == {"f0": 7, "f1": 2}


def test_each_mistake_has_an_error_of_its_own(job, serve, settings, connect):
    job.run(("ann", 3))
    serve(job)
    with connect(timeout=0.3) as client:
        with pytest.raises(UnknownQueryableState, match="no queryable state 'sum'"):
            client.get("id0", "sum", "ann")
        with pytest.raises(UnknownKey, match="nothing for key 'bob' at checkpoint 1"):
            client.get("id0", "the value", "bob")
        with pytest.raises(WrongKeyType, match="of type str, but 1 is of type int"):
            client.get("id0", "the value", 1)
        with pytest.raises(WrongKeyType, match=r"Use a sorted tuple"):
            client.get("id0", "the value", {1})
        with pytest.raises(WrongKeyType, match="not of the type passed"):
            client.get("id0", "the value", "ann", key_type=Types.LONG())
        with pytest.raises(CheckpointNotReached, match="Checkpoint 2 is not complete"):
            client.get("id0", "the value", "ann", at_least=2)
        with pytest.raises(UnknownJob, match="No job 'other' is served on this host, only job0"):
            client.get("other", "the value", "ann")
        with pytest.raises(WrongKind, match="only maps have entries"):
            client.entries("id0", "the value", "ann")
        with pytest.raises(BadRequest, match="is not a window"):
            client.get("id0", "the value", "ann", window="today")
        assert client.get("id0", "the value", "ann") == 3
    with pytest.raises(Unreachable, match="No server answers"):
        QueryableStateClient("127.0.0.1", free_ports(1)[0], token="x" * 40).jobs()


def test_requests_need_the_token_also_on_loopback(job, serve, settings, tmp_path):
    job.run(("ann", 3))
    server = serve(job)
    port = int(settings["queryable-state.proxy.ports"])
    for token in ("", "wrong" * 8):
        with pytest.raises(NotAllowed, match="The token is missing or wrong"):
            QueryableStateClient("127.0.0.1", port, token=token).get("id0", "the value", "ann")
        with pytest.raises(NotAllowed):
            Connection(server.address, token).call(Jobs(), 5)
    with pytest.raises(NotAllowed, match="does not exist"):
        QueryableStateClient("127.0.0.1", port, token_file=str(tmp_path / "none"))


def test_a_read_waits_for_a_checkpoint(job, serve, client):
    job.run(("ann", 3))
    serve(job)
    done = client.submit(lambda: client.read("id0", "the value", "ann", at_least=2))
    job.run(("ann", 4))
    assert done.result() == (4, 2)


def test_a_checkpoint_can_be_read_until_it_is_gone(job, serve, client):
    job.run(("ann", 3))
    server = serve(job, **{"queryable-state.retained-checkpoints": "2"})
    followed = next(iter(server.service._jobs.values()))
    for number in range(4, 8):
        server.await_checkpoint(followed, job.run(("ann", number)))
    assert client.get("id0", "the value", "ann", checkpoint=4) == 6
    with pytest.raises(CheckpointGone, match="Checkpoint 1 is not readable any more; the oldest is 4"):
        client.get("id0", "the value", "ann", checkpoint=1)


def test_pinned_reads_see_one_checkpoint_over_all_states(job, serve, client):
    job.run(("ann", 3), ("bob", 1))
    server = serve(job, **{"queryable-state.retained-checkpoints": "1"})
    followed = next(iter(server.service._jobs.values()))
    with client.pinned("id0") as pinned:
        for number in range(5):
            server.await_checkpoint(followed, job.run(("ann", number), ("bob", number)))
        assert client.get("id0", "the value", "ann") == 4
        assert pinned.checkpoint == 1
        assert pinned.get("the value", "ann") == 3
        assert pinned.get_many("the reducing", ["ann", "bob", "eve"]) == {"ann": 3, "bob": 1}
        assert pinned.entries("the map", "ann").entries == {"n3": 3}
        assert pinned.scan("the value").read_all().num_rows == 2
    server.await_checkpoint(followed, job.run(("ann", 9)))
    with pytest.raises(CheckpointGone):
        pinned.get("the value", "ann")


def test_a_scan_streams_all_rows(job, serve, client):
    job.run(*((f"k{i}", i) for i in range(1, 3001)))
    serve(job)
    table = client.scan("id0", "the value").read_all()
    assert dict(zip(*table.to_pydict().values(), strict=True)) == {f"k{i}": i for i in range(1, 3001)}
    assert table.schema.metadata[b"penstock.checkpoint"] == b"1"
    with pytest.raises(UnknownQueryableState):
        client.scan("id0", "sum")


def test_subscribe_yields_the_changes_of_each_checkpoint_once_and_in_order(job, serve, client):
    job.run(("ann", 3), ("bob", 1))
    # More than the job completes: a slow subscriber would get a reset.
    serve(job, **{"queryable-state.retained-checkpoints": "100"})
    got, states = [], []

    def follow():
        state = {}
        for changes in client.subscribe("id0", "the value", until=21):
            got.append((changes.checkpoint, changes.reset))
            for change in changes.changes:
                state.pop(change.key, None)
                if change.value is not None:
                    state[change.key] = change.value
            states.append(dict(state))

    thread = threading.Thread(target=follow)
    thread.start()
    oracle = {1: job.harness.states("value")}
    for number in range(2, 22):
        job.run((f"k{number % 4}", number), ("ann", -1 if number % 3 else number))
        oracle[number] = job.harness.states("value")
    thread.join()
    first = got[0][0]
    assert got == [(first, True), *((number, False) for number in range(first + 1, 22))]
    assert states == [oracle[number] for number, _ in got]


def test_a_subscription_ends_with_the_job(job, serve, client):
    job.run(("ann", 3))
    serve(job)
    seen = client.subscribe("id0", "the value")
    assert next(seen).checkpoint == 1
    job.harness.push(("bob", 4)).end()
    rest = list(seen)
    assert [each.checkpoint for each in rest] == [2, 3]
    assert client.describe("id0").ended
    assert client.get("id0", "the value", "bob") == 4


def test_one_proxy_serves_all_jobs_of_a_host(job, make_job, serve, client):
    other = make_job("other")
    job.run(("ann", 3))
    other.run(("ann", 30))
    first, second = serve(job), serve(job, other)
    assert (bool(first.proxy_address), bool(second.proxy_address)) == (True, False)
    assert client.get("job1", "the value", "ann") == 30
    assert {each.job_name for each in client.jobs()} == {"job0", "job1"}


def test_a_job_without_a_checkpoint_is_known_and_not_served_yet(job, serve, connect):
    serve(job)
    with connect(timeout=0.1) as client:
        with pytest.raises(NotServed, match=r"Job .job0. has no completed checkpoint in .* yet"):
            client.get("id0", "the value", "ann")
        assert [(each.job_name, each.newest) for each in client.jobs()] == [("job0", 0)]
    with connect() as client:
        waiting = client.submit(lambda: client.get("id0", "the value", "ann"))
        job.run(("ann", 3))
        assert waiting.result() == 3


def test_another_server_becomes_the_proxy_when_the_first_one_goes(job, serve, client):
    job.run(("ann", 3))
    first, second = serve(job), serve(job)
    assert (bool(first.proxy_address), bool(second.proxy_address)) == (True, False)
    first.close()
    second.register()
    assert second.proxy_address
    assert client.get("id0", "the value", "ann") == 3


def test_a_server_follows_a_job_into_its_next_lineage(job, serve, client, tmp_path):
    job.run(("ann", 3))
    job.run(("ann", 4))
    server = serve(job)
    assert client.read("id0", "the value", "ann") == (4, 2)
    changes = client.subscribe("id0", "the value")
    assert next(changes).checkpoint == 2
    lineages = Lineages(job.root)
    lineages.end(lineages.current(), last=2, retain=True)
    job.harness = every_kind(storage=lineages.storage_of(lineages.current()))
    job.run(("ann", 70))
    followed = next(iter(server.service._jobs.values()))
    followed._asked = -10.0
    while followed.lineage != lineages.newest():
        threading.Event().wait(0.01)
    # The number is smaller, but of another lineage.
    assert client.read("id0", "the value", "ann") == (70, 1)
    following = next(changes)
    assert (following.checkpoint, following.reset) == (1, True)
    assert [(change.key, change.value) for change in following.changes] == [("ann", 70)]


def test_a_server_does_not_need_the_job(job, serve, client):
    job.run(("ann", 3))
    serve(job)
    job.harness.crash_at("driver.collected")
    job.run(("ann", 4))
    assert client.read("id0", "the value", "ann") == (3, 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\xc1" * 10,
        b"\x91" * 100_000,
        encode({"read": "get"}),
        encode({"read": "get", "job": 1, "state": "s", "key": b"k"}),
        encode({"read": "get", "job": "id0", "state": "the value", "key": b"\xc1"}),
        encode({"read": "get", "job": "id0", "state": "the value", "key": b"k", "more": 1}),
        encode({"read": "get", "job": "id0", "state": "the value", "key": b"k", "deadline_ms": 10**9}),
        encode({"read": "unknown", "job": "id0"}),
        encode({"read": "scan", "job": "id0", "state": "the value"}),
        encode(
            {"read": "entries", "job": "id0", "state": "the map", "key": encode_key("ann"), "wanted": {"limit": "x"}}
        ),
        encode([1, 2, 3]),
        bytes(5_000_000),
    ],
)
def test_a_bad_request_gets_an_error_and_the_server_lives_on(job, serve, settings, client, body):
    job.run(("ann", 3))
    server = serve(job)
    token = client._connection._headers
    for address in (server.address, server.proxy_address):
        raw = flight.connect(address)
        with pytest.raises(flight.FlightError) as refused:
            list(raw.do_action(flight.Action(ACTION, body), flight.FlightCallOptions(headers=token, timeout=10)))
        assert decode_failure(refused.value.extra_info).code == "bad-request"
    assert client.get("id0", "the value", "ann") == 3


def test_garbage_on_the_port_does_not_stop_the_server(job, serve, settings, client):
    job.run(("ann", 3))
    server = serve(job)
    port = int(server.address.rsplit(":", 1)[1])
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"\xff" * 100_000):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(garbage)
    assert client.get("id0", "the value", "ann") == 3


def test_an_answer_that_is_too_large_is_an_error(job, serve, client):
    job.run(*((f"k{i}", i) for i in range(1, 200)), *(("big", i) for i in range(1, 2000)))
    serve(job, **{"queryable-state.max-result-size": "2000"})
    with pytest.raises(ResultTooLarge, match="limit is 2,000"):
        client.get("id0", "the list", "big")
    with pytest.raises(ResultTooLarge):
        client.get_many("id0", "the value", [f"k{i}" for i in range(1, 200)] * 20)
    assert client.get("id0", "the value", "k1") == 1
    assert client.scan("id0", "the list").read_all().num_rows == 2198


def test_an_unexpected_error_tells_no_details(job, serve, client, monkeypatch):
    job.run(("ann", 3))
    server = serve(job)
    monkeypatch.setattr(server.service, "_read", lambda request: {}["a secret"])
    with pytest.raises(
        QueryError, match=r"^The server failed with KeyError\. The log of the server has the details\.$"
    ):
        client.get("id0", "the value", "ann")


def test_beyond_this_host_tls_is_required(job, serve, settings):
    with pytest.raises(
        CannotServeState, match=r"queryable-state.bind-address is '0.0.0.0', which other hosts can reach"
    ):
        StateServer(settings | {"queryable-state.bind-address": "0.0.0.0"})


def test_the_error_for_ports_that_are_all_taken_names_the_settings(settings):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotServeState, match=f"port {port}: Address already in use.*server.ports"):
            QueryListener(None, settings, [port], "token")


def test_a_client_cannot_register_a_server_without_the_token(job, serve, settings):
    job.run(("ann", 3))
    server = serve(job)
    with pytest.raises(NotAllowed):
        Connection(server.proxy_address, "x" * 40).call(Register(address="grpc://127.0.0.1:1", jobs=[]), 5)


def test_a_request_to_a_state_server_itself_is_answered(job, serve, client):
    job.run(("ann", 3))
    server = serve(job)
    token = client._connection._headers[0][1].decode().removeprefix("Bearer ")
    request = Get(job="id0", state="the value", key=encode_key("ann"))
    assert b"the value" not in Connection(server.address, token).call(request, 5)


def test_a_pin_never_shows_an_earlier_checkpoint_than_the_last_read(job, serve, connect):
    job.run(("ann", 3))
    serve(job)
    client = connect(timeout=0.2)
    # As if another server, which is ahead, had answered.
    client._note("id0", client.describe("id0").lineage, 2)
    with pytest.raises(CheckpointNotReached), client.pinned("id0"):
        pass
    job.run(("ann", 4))
    with client.pinned("id0") as pinned:
        assert (pinned.checkpoint, pinned.get("the value", "ann")) == (2, 4)
