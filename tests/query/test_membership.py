"""What state servers decide from each other's announcements, with a clock that the test moves."""

import errno

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.query.announcements import Announcements
from penstock.query.division import ALL_BLOCKS
from penstock.query.membership import Membership
from penstock.query.protocol import Description
from penstock.state.storage import MissingObject

TIMEOUT, INTERVAL = 3.0, 1.0


class Root:
    """The directory of a job."""

    where = "the job"

    def __init__(self):
        self.objects = {}
        self.read_only = False

    def write(self, name, data):
        if self.read_only:
            raise OSError(errno.EROFS, "read-only")
        assert name not in self.objects
        self.objects[name] = data

    def read(self, name, at_most=None):
        if name not in self.objects:
            raise MissingObject(name, self.where)
        return self.objects[name]

    def list(self, prefix):
        return sorted(name for name in self.objects if name.startswith(prefix))

    def delete(self, name):
        self.objects.pop(name, None)

    def delete_all(self, names):
        for name in names:
            self.delete(name)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Server:
    """A server that drops blocks when its membership says so, and builds them some time later."""

    def __init__(self, root, clock, name, reach="", newest=5):
        announcements = Announcements(root, name, TIMEOUT, clock)
        self.name = name
        self.membership = Membership(announcements, name, f"grpc://{name}", reach, INTERVAL, clock)
        self.blocks, self.newest, self.oldest, self.held = {}, newest, 1, None
        self.plan = None

    def beat(self):
        described = Description(
            job_id="id",
            job_name="job",
            lineage="l",
            oldest=self.oldest,
            newest=self.newest,
            ended=False,
            timestamp=0,
            states=[],
            blocks=self.blocks,
        )
        self.plan = self.membership.beat(described, self.held)

        self.blocks = {block: each for block, each in self.blocks.items() if block not in self.plan.dropped}

    def adapt(self):
        self.blocks = dict.fromkeys(self.plan.wanted, self.oldest) | self.blocks

    def step(self):
        self.beat()
        self.adapt()


class Job:
    def __init__(self):
        self.root, self.clock = Root(), Clock()
        self.servers = {}

    def join(self, name, **options):
        self.servers[name] = Server(self.root, self.clock, name, **options)
        return self.servers[name]

    def pass_time(self, beats=1):
        for _ in range(beats):
            self.clock.now += INTERVAL
            for server in self.servers.values():
                server.step()

    def sizes(self):
        return sorted(len(server.blocks) for server in self.servers.values())


@pytest.fixture
def job():
    return Job()


def test_the_first_server_has_everything_at_once(job):
    job.join("a").step()
    assert job.sizes() == [16]


def test_a_server_keeps_its_blocks_until_another_one_has_had_them_for_some_beats(job):
    first = job.join("a")
    job.pass_time()
    second = job.join("b")
    second.beat()
    assert len(second.plan.wanted) == 8
    for _ in range(5):
        job.clock.now += INTERVAL
        first.step()
        second.beat()
        assert len(first.blocks) == 16
    second.adapt()
    second.beat()
    for _ in range(3):
        job.clock.now += INTERVAL
        first.step()
        assert len(first.blocks) == 16
        second.beat()
    job.pass_time()
    assert job.sizes() == [8, 8]
    assert first.blocks.keys() | second.blocks.keys() == ALL_BLOCKS


def test_a_server_gives_no_block_to_one_that_has_fallen_behind(job):
    first = job.join("a")
    job.pass_time()
    second = job.join("b", newest=4)
    job.pass_time(20)
    assert job.sizes() == [8, 16]
    second.newest = first.newest
    job.pass_time(6)
    assert job.sizes() == [8, 8]


def test_a_server_keeps_a_checkpoint_that_only_it_has_for_a_minute_or_as_long_as_it_is_read(job):
    first = job.join("a")
    job.pass_time()
    second = job.join("b")
    second.oldest = 5
    first.held = 3
    job.pass_time(100)
    assert job.sizes() == [8, 16]
    first.held = None
    job.pass_time()
    assert job.sizes() == [8, 8]


def test_the_blocks_of_a_dead_server_are_taken_after_the_timeout(job):
    for name in "abc":
        job.join(name)
    job.pass_time(10)
    assert job.sizes() == [5, 5, 6]
    dead = job.servers.pop("b")
    job.pass_time(3)
    assert sum(job.sizes()) == 16 - len(dead.blocks)
    job.pass_time(2)
    assert job.sizes() == [8, 8]


def test_the_announcements_of_a_dead_server_are_removed_some_time_later(job):
    for name in "ab":
        job.join(name)
    job.pass_time(10)
    del job.servers["b"]
    job.pass_time(59)
    assert len(job.root.list("servers/b-")) == 1
    job.pass_time(3)
    assert job.root.list("servers/b-") == []
    assert len(job.root.list("servers/")) == 1


def test_a_server_that_wakes_gets_its_part_again_without_a_gap(job):
    for name in "ab":
        job.join(name)
    job.pass_time(10)
    asleep = job.servers.pop("b")
    job.servers["a"].newest = 50
    job.pass_time(10)
    assert job.sizes() == [16]
    job.servers["b"] = asleep
    job.pass_time(10)
    # It has not caught up, so the other one keeps everything.
    assert job.sizes() == [8, 16]
    asleep.newest = 50
    job.pass_time(5)
    assert job.sizes() == [8, 8]


def test_a_server_that_wakes_does_not_think_that_the_others_are_dead(job):
    for name in "ab":
        job.join(name)
    job.pass_time(10)
    job.clock.now += 100
    job.servers["a"].beat()
    assert len(job.servers["a"].plan.wanted) == 8


def test_a_server_that_leaves_answers_until_the_others_have_its_blocks(job):
    for name in "ab":
        job.join(name)
    job.pass_time(10)
    leaving = job.servers["b"]
    leaving.membership.leaving = True
    job.pass_time(1)
    assert len(leaving.blocks) == 8
    job.pass_time(5)
    assert (len(leaving.blocks), len(job.servers["a"].blocks)) == (0, 16)
    leaving.membership.leave()
    assert job.root.list("servers/b-") == []


def test_the_last_server_keeps_everything_when_it_leaves(job):
    job.join("a").membership.leaving = True
    job.join("b")
    job.pass_time(10)
    job.servers["b"].membership.leaving = True
    job.pass_time(10)
    assert job.sizes() == [0, 16]


def test_servers_that_only_their_own_hosts_can_reach_do_not_divide_the_blocks_of_other_hosts(job):
    for name, reach in [("a", "one"), ("b", "one"), ("c", "two"), ("d", ""), ("e", "")]:
        job.join(name, reach=reach)
    job.pass_time(10)
    assert [len(server.blocks) for server in job.servers.values()] == [8, 8, 16, 8, 8]
    assert len(job.servers["c"].membership.others) == 4


def test_a_server_that_cannot_announce_itself_has_everything(job):
    job.root.read_only = True
    job.join("a")
    job.pass_time(3)
    assert job.sizes() == [16]


def test_a_server_that_can_announce_itself_no_more_keeps_what_it_has(job):
    for name in "ab":
        job.join(name)
    job.pass_time(10)
    job.root.read_only = True
    job.pass_time()
    assert job.sizes() == [8, 8]


def test_announcements_that_cannot_be_read_and_other_files_are_ignored(job):
    job.root.objects |= {
        "servers/README": b"",
        "servers/ff-1": b"{}",
        "servers/ee-1": b"\xff",
        "servers/dd-x": b"",
    }
    job.join("a")
    job.pass_time(3)
    lies = msgspec.json.decode(job.root.read(job.root.list("servers/a-")[0]))
    job.root.objects["servers/cc-9"] = msgspec.json.encode(lies)
    job.pass_time(3)
    assert job.sizes() == [16]
    assert job.servers["a"].membership.others == []


NAMES = "abc"
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.sampled_from(NAMES)),
        st.tuples(st.just("die"), st.sampled_from(NAMES)),
        st.tuples(st.just("beat"), st.sampled_from(NAMES)),
        st.tuples(st.just("build"), st.sampled_from(NAMES)),
        st.tuples(st.just("pass"), st.sampled_from([0.3, 0.7, 1.0])),
        st.tuples(st.just("pass"), st.just(1.0)),
    ),
    min_size=10,
    max_size=100,
)


@given(EVENTS)
def test_no_block_is_without_a_server_unless_its_last_one_died(events):
    job = Job()
    job.join("f").step()
    served = dict.fromkeys(ALL_BLOCKS, job.servers["f"])
    beaten = {"f": 0.0}

    def late(name):
        # Servers beat in time: one that does not counts as dead for the others.
        return job.clock.now - beaten[name] >= 1.0

    for event, which in events:
        if event == "pass":
            job.clock.now += which
            for name in [name for name in job.servers if late(name)]:
                beaten[name] = job.clock.now
                job.servers[name].beat()
        elif event == "join" and which not in job.servers:
            job.join(which).beat()
            beaten[which] = job.clock.now
        elif event == "die" and len(job.servers) > 1:
            job.servers.pop(which, None)
            job.root.delete_all(job.root.list(f"servers/{which}-"))
        elif which in job.servers and event == "beat":
            beaten[which] = job.clock.now
            job.servers[which].beat()
        elif which in job.servers and event == "build":
            job.servers[which].adapt()
        living = list(job.servers.values())
        for block in ALL_BLOCKS:
            having = [server for server in living if block in server.blocks]
            # Only a death leaves a block without a server; a living server gives it up only to another one.
            assert having or served[block] not in living
            served[block] = having[0] if having else served[block]
    job.pass_time(12)
    sizes = job.sizes()
    assert sum(sizes) == 16
    assert sizes[-1] - sizes[0] <= 1
