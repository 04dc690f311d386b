from penstock.datastream import CheckpointedFunction, MapFunction, StreamExecutionEnvironment
from penstock.datastream.state import ListStateDescriptor
from penstock.testing import JobHarness

SEEN = ListStateDescriptor("seen", int)


class Remember(MapFunction, CheckpointedFunction):
    def __init__(self, getter):
        self.getter = getter

    def initialize_state(self, context):
        self.seen = getattr(context.get_operator_state_store(), self.getter)(SEEN)

    def map(self, value):
        self.seen.add(value)

    def snapshot_state(self, context):
        pass


def remember(getter):
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([1, 2]).uid("numbers").map(Remember(getter)).name("remember").uid("remember")


with JobHarness(remember("get_list_state")) as before:
    before.epoch()
    JobHarness(remember("get_union_list_state"), storage=before.storage).push(3).epoch()
