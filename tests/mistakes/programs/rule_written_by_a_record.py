from penstock.common import Types
from penstock.datastream import BroadcastProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import MapStateDescriptor
from penstock.testing import JobHarness

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Learn(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value, 1)

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(*value)


env = StreamExecutionEnvironment.get_execution_environment()
rules = env.from_collection([("a", 1)]).broadcast(RULES)
learned = env.from_collection(["b"]).connect(rules).process(Learn()).name("learn").uid("learn")
JobHarness(learned, parallelism=2).epoch()
