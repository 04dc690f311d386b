import os

from penstock.common import Types
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import JobHarness


class Totals(KeyedProcessFunction):
    def open(self, runtime_context):
        descriptor = ValueStateDescriptor("total", Types.LONG())
        if os.environ:
            descriptor.set_queryable("totals")
        self.total = runtime_context.get_state(descriptor)

    def process_element(self, order, ctx):
        self.total.update((self.total.value() or 0) + order[1])


env = StreamExecutionEnvironment.get_execution_environment()
orders = env.from_collection([("ann", 3), ("bob", 4)])
totals = orders.key_by(lambda order: order[0]).process(Totals()).uid("totals")
with JobHarness(totals) as job:
    job.push(("ann", 3)).epoch()
