from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment

config = Configuration()
config.set_string("state.checkpoints.dir", "gs://bucket/checkpoints")
env = StreamExecutionEnvironment.get_execution_environment(config)
env.from_collection([1, 2, 3]).print()
env.execute("numbers")
