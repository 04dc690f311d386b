from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
doubled = env.from_collection([1, 2, 3]).map(lambda n: 2 * n).set_parallelism(2)
doubled.forward().map(str).name("to text").uid("text").set_parallelism(3).print()
env.execute()
