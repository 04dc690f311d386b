from penstock.datastream import StreamExecutionEnvironment


def numbers(*values):
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection(values)


both = numbers(1, 2).union(numbers(3, 4))
