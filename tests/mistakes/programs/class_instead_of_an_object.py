from penstock.datastream import MapFunction, StreamExecutionEnvironment


class Double(MapFunction):
    def map(self, value):
        return 2 * value


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2, 3]).map(Double).print()
    env.execute()


main()
