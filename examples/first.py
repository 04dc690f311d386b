from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, url, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield url, self.count.value()


env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
urls = env.from_collection(["/api/a", "/api/b", "/api/a"])
urls.key_by(lambda url: url).process(Count()).print()
env.execute()
