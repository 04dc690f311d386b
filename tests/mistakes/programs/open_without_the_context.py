from penstock.datastream import MapFunction, StreamExecutionEnvironment


class Prefix(MapFunction):
    def open(self):
        self.prefix = "> "

    def map(self, value):
        return self.prefix + value


env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection(["tea", "milk"]).map(Prefix()).print()
env.execute()
