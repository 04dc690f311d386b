from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import JobHarness


class Count(KeyedProcessFunction):
    def opne(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, word, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield word, self.count.value()


env = StreamExecutionEnvironment.get_execution_environment()
counts = env.from_collection(["tea", "milk"]).key_by(lambda word: word).process(Count()).uid("count")

with JobHarness(counts) as job:
    job.run()
