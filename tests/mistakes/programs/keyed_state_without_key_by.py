from penstock.datastream import MapFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor


class Count(MapFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def map(self, value):
        self.count.update((self.count.value() or 0) + 1)
        return value, self.count.value()


env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["a", "b", "a"])
words.map(Count()).uid("count").print()
env.execute()
