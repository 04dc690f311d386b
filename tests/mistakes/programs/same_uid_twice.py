from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection([1, 2, 3])
numbers.map(lambda n: n + 1).name("plus one").uid("plus").print()
numbers.map(lambda n: n + 2).name("plus two").uid("plus").print()
env.execute()
