"""Programs and helpers shared by the savepoint tests."""

from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import Source
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor


class Sum(KeyedProcessFunction):
    """Emits (key, running sum) for pairs."""

    def __init__(self, state="sum"):
        self.state = state

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor(self.state, int))

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value[1])
        yield value[0], self.total.value()


class Remember(KeyedProcessFunction):
    """Stores every value of a key, in a list and in a map by value."""

    def open(self, runtime_context):
        self.values = runtime_context.get_list_state(ListStateDescriptor("values", int))
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", int, int))

    def process_element(self, value, ctx):
        self.values.add(value[1])
        self.seen.put(value[1], (self.seen.get(value[1]) or 0) + 1)
        yield value


class Quiet(Source):
    """Never emits a record."""

    bounded = False

    def advance(self, positions, limit):
        return positions

    def read(self, split, start, end):
        raise AssertionError("nothing was planned")


def environment():
    return StreamExecutionEnvironment.get_execution_environment()


def by_first(stream):
    return stream.key_by(lambda pair: pair[0])


def numbers(env, uid="numbers"):
    return env.from_collection([]).uid(uid)


def sums(uid="sum", source="numbers"):
    return by_first(numbers(environment(), source)).process(Sum()).uid(uid)


def remembered():
    return by_first(numbers(environment())).process(Remember()).uid("remember")
