from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment


def invert(value):
    return 1 / value


env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({"spark.master": "local[1]"}))
env.from_collection([2, 1, 0]).map(invert).name("invert").uid("invert").print()
env.execute()
