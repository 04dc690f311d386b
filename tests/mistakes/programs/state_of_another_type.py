from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import JobHarness


class Total(KeyedProcessFunction):
    def __init__(self, kind):
        self.kind = kind

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", self.kind))

    def process_element(self, value, ctx):
        self.total.update(self.kind(value))


def totals(kind):
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection([1, 2]).uid("numbers").key_by(lambda n: n % 2)
    return keyed.process(Total(kind)).name("totals").uid("totals")


with JobHarness(totals(int)) as before:
    before.epoch()
    JobHarness(totals(str), storage=before.storage).push(3).epoch()
