"""The proxy, over servers that the test plays."""

import msgspec
import pyarrow as pa
import pytest

from penstock.query.errors import NotServed, TooManyReads, UnknownJob, UnknownKey, Unreachable
from penstock.query.protocol import Announcement, Describe, Description, Found, Get, Held, Hold, Release, Scan, encode
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
        if isinstance(request, Describe):
            return encode(described())
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stream(self, request, seconds):
        self.asked.append(request)
        return ROWS.schema, iter([ROWS])


def described(blocks=range(16), kind="value", newest=1):
    state = QueryableState(
        name="totals", uid="u", operator="o", state="s", kind=kind, type="long", key_type="", max_parallelism=32
    )
    return Description(
        job_id="id",
        job_name="orders",
        lineage="l",
        oldest=1,
        newest=newest,
        ended=False,
        timestamp=0,
        states=[state],
        blocks=dict.fromkeys(blocks, 1),
    )


def proxy_of(clock, *servers, divided=False, **description):
    proxy = Proxy(lambda address: None, clock=clock, sleep=clock.sleep)
    for number, server in enumerate(servers):
        blocks = range(number, 16, len(servers)) if divided else range(16)
        proxy.register(f"server {number}", [described(blocks, **description)], server=server)
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
    proxy.answer(Release(job="orders", lease="1,server 0=a,server 1=b"))
    assert [msgspec.structs.asdict(server.asked[0])["lease"] for server in servers] == ["a", "b"]


def test_a_lease_is_renewed_also_at_a_server_that_has_got_blocks_since():
    clock = Clock()
    servers = [Server(encode(Held(checkpoint=7, lineage="l", lease=lease))) for lease in ("a", "b")]
    proxy = proxy_of(clock, *servers, divided=True)
    answer = proxy.answer(Hold(job="orders", lease="7,server 0=a"))
    assert [(each.asked[0].lease, each.asked[0].checkpoint) for each in servers] == [("a", None), ("", 7)]
    assert msgspec.msgpack.decode(answer, type=Held).lease == "7,server 0=a,server 1=b"


def announced(address, beat=1, **description):
    return Announcement(
        server="ab", beat=beat, address=address, reach="", wanted=[], description=described(**description)
    )


def test_servers_on_other_hosts_are_asked_and_forgotten_if_they_are_silent():
    clock = Clock()
    here, there = Server(FOUND), Server(FOUND)
    proxy = Proxy({"there": there}.get, clock=clock, sleep=clock.sleep)
    for _ in range(2):
        proxy.register("here", [described(range(0))], [announced("there")], here)
        assert proxy.answer(GET) == FOUND
    assert (len(here.asked), len(there.asked)) == (0, 2)
    there.answers = [Unreachable("dead")]
    with pytest.raises(NotServed, match="No living state server has the block of this key"):
        proxy.answer(GET)
    assert len(there.asked) == 3
    # It has not announced anything since, so it is not asked.
    proxy.register("here", [described(range(0))], [announced("there")], here)
    with pytest.raises(NotServed):
        proxy.answer(GET)
    assert len(there.asked) == 3
    there.answers = [FOUND]
    proxy.register("here", [described(range(0))], [announced("there", beat=2)], here)
    assert proxy.answer(GET) == FOUND


def test_a_server_knows_better_what_it_has_than_the_announcement_that_another_one_saw():
    clock = Clock()
    one, other = Server(FOUND), Server(FOUND)
    proxy = proxy_of(clock, one)
    proxy.register("other", [described(range(0))], [announced("server 0", blocks=range(0))], other)
    assert proxy.answer(GET) == FOUND
    assert len(one.asked) == 1


def test_a_pinned_read_goes_to_the_server_that_has_the_checkpoint():
    clock = Clock()
    former, new = Server(FOUND), Server(FOUND)
    proxy = Proxy(lambda address: None, clock=clock, sleep=clock.sleep)
    proxy.register("former", [described()], server=former)
    recent = msgspec.structs.replace(described(range(8, 16)), blocks=dict.fromkeys(range(16), 5))
    proxy.register("new", [recent], server=new)
    proxy.answer(msgspec.structs.replace(GET, checkpoint=4))
    assert (len(former.asked), len(new.asked)) == (1, 0)


def test_a_job_has_one_name_at_the_proxy_and_another_at_a_server_that_was_started_by_hand():
    clock = Clock()
    with_job, by_hand = Server(FOUND), Server(FOUND)
    proxy = Proxy(lambda address: None, clock=clock, sleep=clock.sleep)
    proxy.register("with the job", [described(range(0))], server=with_job)
    proxy.register("by hand", [msgspec.structs.replace(described(), job_id="folder", job_name="x")], server=by_hand)
    assert proxy.answer(GET) == FOUND
    assert [each.job for each in by_hand.asked] == ["folder"]


def test_a_name_means_the_last_run_of_the_job_if_servers_of_former_ones_are_gone():
    clock = Clock()
    former, current = Server(Unreachable("dead")), Server(FOUND)
    proxy = proxy_of(clock, former)
    clock.now = 10.0
    # Restored from a savepoint: another id and lineage.
    restarted = msgspec.structs.replace(described(), job_id="id 2", lineage="m")
    proxy.register("server 9", [restarted], server=current)
    assert proxy.answer(GET) == FOUND
    assert proxy.answer(msgspec.structs.replace(GET, job="id 2")) == FOUND
    with pytest.raises(NotServed):
        proxy.answer(msgspec.structs.replace(GET, job="id"))


def test_a_name_means_the_last_run_of_the_job_also_while_servers_of_a_former_one_linger():
    clock = Clock()
    former, current = Server(Unreachable("asked")), Server(FOUND)
    proxy = proxy_of(clock, former)
    restarted = msgspec.structs.replace(described(), job_id="id 2", lineage="m")
    proxy.register("server 9", [restarted], server=current)
    assert proxy.answer(GET) == FOUND
    assert former.asked == []


class Describing:
    """Describes itself, and notes what it is asked."""

    def __init__(self, description):
        self.description = description
        self.asked = []

    def call(self, request, seconds):
        self.asked.append(request)
        if isinstance(request, Describe):
            return encode(self.description)
        return encode(Held(checkpoint=request.checkpoint, lineage="l", lease="x"))


def test_a_pin_of_the_newest_checkpoint_waits_for_the_one_that_the_client_has_seen():
    clock = Clock()
    behind, ahead = Describing(described(range(8), newest=8)), Describing(described(range(8, 16), newest=9))
    proxy = Proxy(lambda address: None, clock=clock, sleep=clock.sleep)
    for name, server in (("behind", behind), ("ahead", ahead)):
        proxy.register(name, [server.description], server=server)
    answer = proxy.answer(Hold(job="orders", seen=9, seen_in="l"))
    assert msgspec.msgpack.decode(answer, type=Held).checkpoint == 8
    # A real server waits, and fails at the deadline.
    assert [(each.asked[0].seen, each.asked[0].seen_in) for each in (behind, ahead)] == [(9, "l")] * 2
