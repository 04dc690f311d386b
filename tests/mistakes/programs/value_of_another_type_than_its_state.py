from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor
from penstock.testing import JobHarness


class Longest(KeyedProcessFunction):
    def open(self, runtime_context):
        self.longest = runtime_context.get_state(ValueStateDescriptor("longest", int))

    def process_element(self, value, ctx):
        if len(value) > (self.longest.value() or 0):
            self.longest.update(value)


env = StreamExecutionEnvironment.get_execution_environment()
longest = env.from_collection(["to", "be"]).key_by(lambda word: word[0]).process(Longest()).uid("longest")

with JobHarness(longest) as job:
    job.run()
