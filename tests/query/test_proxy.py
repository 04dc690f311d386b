"""The proxy, over servers that the test plays."""

import msgspec
import pyarrow as pa
import pytest

from penstock.query.errors import NotServed, TooManyReads, UnknownJob, UnknownKey, Unreachable
from penstock.query.protocol import Description, Found, Get, Release, Scan, encode
from penstock.query.proxy import Proxy
from penstock.query.registry import QueryableState

ROWS = pa.record_batch([pa.array([1])], ["value"])
FOUND = encode(Found(checkpoint=1, lineage="l", kind="value", type="long", parts=[(b"", b"\x01")]))
GET = Get(job="orders", state="totals", key=b"\x01", deadline_ms=1000)


class Clock:
    def __init__(self):
        self.now = 0.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


class Server:
    """Gives prepared answers in turn; the last one stays."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def call(self, request, seconds):
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stream(self, request, seconds):
        self.asked.append(request)
        return ROWS.schema, iter([ROWS])


def described(share=(0, 1), kind="value"):
    state = QueryableState(
        name="totals", uid="u", operator="o", state="s", kind=kind, type="long", key_type="", max_parallelism=32
    )
    return Description(
        job_id="id",
        job_name="orders",
        lineage="l",
        oldest=1,
        newest=1,
        ended=False,
        timestamp=0,
        states=[state],
        share=share,
    )


def proxy_of(clock, *servers, divided=False, **description):
    proxy = Proxy(lambda address: None, clock=clock, sleep=clock.sleep)
    for number, server in enumerate(servers):
        share = (number, len(servers)) if divided else (0, 1)
        proxy.register(f"server {number}", [described(share, **description)], server)
    return proxy


def test_a_read_that_can_succeed_later_is_repeated_with_growing_pauses():
    clock = Clock()
    server = Server(TooManyReads("busy"), NotServed("starting"), TooManyReads("busy"), FOUND)
    assert proxy_of(clock, server).answer(GET) == FOUND
    assert len(server.asked) == 4
    assert clock.slept == [0.01, 0.02, 0.04]


def test_a_read_is_repeated_until_its_deadline():
    clock = Clock()
    with pytest.raises(TooManyReads):
        proxy_of(clock, Server(TooManyReads("busy"))).answer(GET)
    assert 0.4 < clock.now < 1.0


def test_a_final_error_is_not_repeated():
    clock = Clock()
    server = Server(UnknownKey("no such key"))
    with pytest.raises(UnknownKey):
        proxy_of(clock, server).answer(GET)
    assert (len(server.asked), clock.slept) == (1, [])


def test_a_server_that_does_not_answer_is_not_asked_again():
    clock = Clock()
    dead, alive = Server(Unreachable("dead")), Server(FOUND)
    proxy = proxy_of(clock, dead, alive)
    assert [proxy.answer(GET) for _ in range(3)] == [FOUND] * 3
    assert (len(dead.asked), len(alive.asked)) == (1, 3)


def test_a_server_that_registers_no_more_is_forgotten():
    clock = Clock()
    server = Server(FOUND)
    proxy = proxy_of(clock, server)
    clock.now = 4.9
    assert proxy.answer(GET) == FOUND
    clock.now = 5.1
    with pytest.raises(NotServed, match="have not been heard of"):
        proxy.answer(GET)
    proxy.register("server 0", [described()])
    assert proxy.answer(GET) == FOUND


def test_a_proxy_that_has_just_started_waits_for_registrations():
    clock = Clock()
    proxy = proxy_of(clock)
    with pytest.raises(UnknownJob):
        proxy.answer(GET)
    assert clock.slept
    clock.now, clock.slept = 10.0, []
    with pytest.raises(UnknownJob):
        proxy.answer(GET)
    assert clock.slept == []


def test_operator_state_is_read_from_one_server():
    clock = Clock()
    servers = Server(FOUND), Server(FOUND)
    proxy = proxy_of(clock, *servers, divided=True, kind="broadcast")
    _, batches = proxy.stream(Scan(job="orders", state="totals"))
    assert [batch.num_rows for batch in batches] == [1]


def test_a_lease_of_several_servers_is_released_at_each():
    clock = Clock()
    servers = Server(b""), Server(b"")
    proxy = proxy_of(clock, *servers, divided=True)
    proxy.answer(Release(job="orders", lease="a,b"))
    assert [msgspec.structs.asdict(server.asked[0])["lease"] for server in servers] == ["a", "b"]
