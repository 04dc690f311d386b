"""Jobs with queryable state, for the tests of this folder."""

import threading

import msgspec

from chaos.servers.ports import free_port
from penstock.checkpoint.lineages import Lineages
from penstock.common.configuration import Configuration
from penstock.common.typeinfo import Types
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.query.follower import Follower
from penstock.query.protocol import Announcement
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.local_storage import LocalStorage
from penstock.state.storage import MissingObject
from penstock.testing import JobHarness


def environment(enabled=True, **settings):
    configuration = Configuration()
    configuration.set_string("queryable-state.enable", str(enabled).lower())
    for key, value in settings.items():
        configuration.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


class Mean:
    """An aggregate function whose accumulator differs from its result."""

    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, one, other):
        return one[0] + other[0], one[1] + other[1]


def descriptors():
    """Return one descriptor for each kind of keyed state, by queryable name."""
    accumulator = Types.TUPLE([Types.LONG(), Types.LONG()])
    found = [
        ValueStateDescriptor("value", Types.LONG()),
        ListStateDescriptor("list", Types.LONG()),
        MapStateDescriptor("map", Types.STRING(), Types.LONG()),
        ReducingStateDescriptor("reducing", lambda a, b: a + b, Types.LONG()),
        AggregatingStateDescriptor("aggregating", Mean(), accumulator),
    ]
    for each in found:
        each.set_queryable(f"the {each.name}")
    return {each.queryable_name: each for each in found}


class EveryKind(KeyedProcessFunction):
    """Keeps the numbers of a key in all kinds of state. A negative number clears them; zero deletes a map entry."""

    def open(self, runtime_context):
        known = descriptors()
        self.value = runtime_context.get_state(known["the value"])
        self.list = runtime_context.get_list_state(known["the list"])
        self.map = runtime_context.get_map_state(known["the map"])
        self.reducing = runtime_context.get_reducing_state(known["the reducing"])
        self.aggregating = runtime_context.get_aggregating_state(known["the aggregating"])

    def process_element(self, record, ctx):
        _, number = record
        if number < 0:
            for state in (self.value, self.list, self.map, self.reducing, self.aggregating):
                state.clear()
            return
        self.value.update(number)
        self.list.add(number)
        if number:
            self.map.put(f"n{number % 7}", number)
        else:
            self.map.remove("n1")
        self.reducing.add(number)
        self.aggregating.add(number)


def every_kind(
    backend="filesystem", parallelism=2, storage=None, key_type=None, settings=None, from_savepoint=None, **options
):
    """Return a harness of a job with all kinds of keyed state, over records (key, number)."""
    env = environment(**options)
    stream = env.from_collection([]).key_by(lambda record: record[0], key_type).process(EveryKind()).uid("kinds")
    return JobHarness(
        stream,
        backend=backend,
        parallelism=parallelism,
        max_parallelism=32,
        storage=storage,
        settings=settings,
        from_savepoint=from_savepoint,
    )


def free_ports(count):
    """Return different ports that nothing listens on. No process gets them by asking the kernel for any free port."""
    return [free_port() for _ in range(count)]


replicas = None
"""Makes the replicas of `new_follower`; see the fixture `server_backend`."""


def new_follower(*arguments, **options):
    """Return a follower with its replicas in the backend of `server_backend`, if a test uses it."""
    return Follower(*arguments, **({} if replicas is None else {"make_replica": replicas.replica}), **options)


class Job:
    """A job with all kinds of state, whose checkpoints are where a driver on Spark puts them."""

    def __init__(self, root, settings=None):
        self.root = LocalStorage(root)
        self.settings = settings
        lineages = Lineages(self.root)
        self.harness = every_kind(storage=lineages.storage_of(lineages.current()), settings=settings)

    def run(self, *records):
        self.harness.push(*records).epoch()
        return self.harness.checkpoint

    def start_over(self):
        """End the lineage, and begin the next one."""
        lineages = Lineages(self.root)
        lineages.end(lineages.current(), last=self.harness.checkpoint, retain=True)
        self.harness = every_kind(storage=lineages.storage_of(lineages.current()))

    def announced(self):
        """Return the last announcement of each state server."""
        found = {}
        for name in self.root.list("servers/"):
            try:
                each = msgspec.json.decode(self.root.read(name), type=Announcement)
            except MissingObject:
                continue
            found[each.server] = max(each, found.get(each.server, each), key=lambda each: each.beat)
        return list(found.values())


def until(condition):
    """Return once a condition is true. The test's timeout ends a test that waits for ever."""
    while not condition():
        threading.Event().wait(0.005)


def served_blocks(servers):
    """Return the blocks of the first job that each server in this process has."""
    return [set(next(iter(server.service._jobs.values())).description().blocks) for server in servers]


def sizes(servers):
    """Return how many blocks of the first job each server has."""
    return sorted(len(blocks) for blocks in served_blocks(servers))


def divided(servers):
    """Wait until each block has exactly one server, and the proxy knows it."""
    until(lambda: sum(sizes(servers)) == 16 and max(sizes(servers)) - min(sizes(servers)) <= 1)
    for server in servers:
        server.register()
